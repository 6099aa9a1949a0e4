"""Decides what the log says while PostgreSQL is away: one line when it goes, one a minute, one when it is back.

Every loop and every request that needs the database fails then, many times a second; their tracebacks say nothing
that the first line does not. `Quiet` stands in front of the log's handlers (`LOGGING` in settings), so code goes on
logging what it caught, with `exc_info`; whatever is not the absence itself keeps its traceback.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import Error as DjangoError
from django.db.backends.signals import connection_created

REMIND_SECONDS = 60.0
LATE_SECONDS = 10.0
"""After a return, connections that broke with the old server are still found for so long: no new absence."""
STOPPED = frozenset({"57P01", "57P02", "57P03"})
"""SQLSTATE of a server that shuts down, has crashed, or is starting."""

FOREIGN_HOST_LOG, POOL_LOG = "django.security.DisallowedHost", "psycopg.pool"
"""Logger of the pools that web processes share connections in; they try again by themselves, each with its own line."""

_log = logging.getLogger("kvc.database")


def is_absence(exc: BaseException | None) -> bool:
    """Whether the error says that the server cannot be reached, and nothing about what was asked of it."""
    if isinstance(exc, BaseExceptionGroup):
        return all(is_absence(one) for one in exc.exceptions)
    if isinstance(exc, DjangoError):
        exc = exc.__cause__
    if isinstance(exc, psycopg.OperationalError):
        return exc.sqlstate is None or exc.sqlstate.startswith("08") or exc.sqlstate in STOPPED
    return isinstance(exc, psycopg.InterfaceError) and "closed" in str(exc)


class Absence:
    """Whether PostgreSQL is away as far as this process knows, since when, and how much that broke."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._since: float | None = None
        self._said_at = 0.0
        self._back_at = -LATE_SECONDS
        self._held = 0

    @property
    def lasts(self) -> bool:
        """Whether it is away."""
        return self._since is not None

    def noticed(self, why: str) -> str | None:
        """What the log should say now that something failed for it; None: nothing new, it was counted."""
        with self._lock:
            now = self._clock()
            if self._since is None:
                if now - self._back_at < LATE_SECONDS:
                    return None
                self._since = self._said_at = now
                self._held = 0
                return f"PostgreSQL is away ({why}); what fails for it is counted from here on, not listed"
            self._held += 1
            if now - self._said_at < REMIND_SECONDS:
                return None
            self._said_at = now
            return f"PostgreSQL is away for {now - self._since:.0f} s; {self._held} failures were not listed"

    def ended(self) -> str | None:
        """What the log should say now that somebody was connected; None: it was not away."""
        if self._since is None:  # the usual case takes no lock
            return None
        with self._lock:
            since, self._since, self._back_at = self._since, None, self._clock()
            if since is None:
                return None
            return f"PostgreSQL is back after {self._back_at - since:.1f} s; {self._held} failures were not listed"


absence = Absence()
"""The one of this process."""


def connected(**_: Any) -> None:
    """A connection was made: called by whoever makes one."""
    if (said := absence.ended()) is not None:
        _log.warning(said)


class Quiet(logging.Filter):
    """Lets the absence through as a few lines, and everything else as it is."""

    def __init__(self, of: Absence | None = None) -> None:
        super().__init__()
        self._absence = of or absence
        connection_created.connect(connected, dispatch_uid="kvconsole.infra.outage")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written. The first one of an absence becomes the line that says so."""
        if record.name == FOREIGN_HOST_LOG:  # anybody may send such a header: that is one line, and no trace
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = str(record.msg).partition(" You may need to add")[0][:200], ()
            record.exc_info = record.exc_text = None
            return True
        exc = record.exc_info[1] if record.exc_info else _told_by_pool(record)
        if not is_absence(exc):
            # pages that say 503 because of it, and connections that a pool throws away, without an exception
            after = getattr(record, "status_code", None) == 503 or record.name == POOL_LOG
            return not (self._absence.lasts and after)
        said = self._absence.noticed(_reason(exc))
        if said is None:
            return False
        record.levelno, record.levelname = logging.ERROR, "ERROR"
        record.name, record.msg, record.args = _log.name, said, ()
        record.exc_info = record.exc_text = None
        return True


def _told_by_pool(record: logging.LogRecord) -> BaseException | None:
    """The error that a pool of connections met in its own threads; it logs that as words only."""
    if record.name != POOL_LOG or not isinstance(record.args, tuple):
        return None
    return next((arg for arg in record.args if isinstance(arg, BaseException)), None)


def _reason(exc: BaseException | None) -> str:
    """Class and first line, without the driver's advice behind it."""
    first = str(exc).strip().partition("\n")[0]
    return f"{type(exc).__name__}: {first}"[:200]
