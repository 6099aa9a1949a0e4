"""Decides how calls that changed nothing become events: one at once, repetitions as one a minute with their count.

Called by name after the refused call was rolled back (`kvconsole.infra.access.leave_evidence`). No count is lost: what
was silent is told when its minute is over, or the process ends (`tell`); while PostgreSQL is away it waits on disk
(`audit.spool`).
"""

import atexit
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from audit import spool
from audit.services import record
from kvconsole.infra import outage, rest
from kvconsole.infra.access import Principal, plane, system, tenant_context
from kvconsole.infra.evidence import Answered
from kvconsole.infra.keystore import KeyStoreUnavailable

QUIET_SECONDS = 60.0
REMEMBERED = 10_000
EVERY_SECONDS = 5.0
OTHERS = "others"
"""Stands for callers that there is no place to remember one by one."""
_log = logging.getLogger("kvc.audit")


class Said(NamedTuple):
    """What is known of a kind of call that is repeated."""

    last: float
    silent: int
    what: Any


class Repetitions:
    """How often the same refusal came since its last event; bounded, and without losing a count."""

    def __init__(self, write: Callable[[Any, int], bool] | None = None) -> None:
        """`write` writes an event for what was silent: (what it is, how many calls) → whether it is there."""
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, ...], Said] = OrderedDict()
        self._write = write
        if write is not None:
            _all.append(self)

    def due(self, key: tuple[str, ...], now: float, what: Any = None) -> int | None:
        """How many came before this one without an event, or None: too soon for another event.

        Args:
            key: what makes refusals the same.
            now: seconds of any steady clock.
            what: by which `write` knows it.
        """
        with self._lock:
            key, what = self._place(key, what)
            said = self._seen.get(key) or Said(-QUIET_SECONDS, 0, what)
            if now - said.last < QUIET_SECONDS:
                self._seen[key] = Said(said.last, said.silent + 1, what)
                _start()
                return None
            self._seen.pop(key, None)
            self._seen[key] = Said(now, 0, what)
            return said.silent

    def _place(self, key: tuple[str, ...], what: Any) -> tuple[tuple[str, ...], Any]:
        """Where it is counted: with the others, once everybody who is remembered has something left to tell."""
        if key in self._seen or len(self._seen) < REMEMBERED:
            return key, what
        oldest = next(iter(self._seen))
        if not self._seen[oldest].silent:
            del self._seen[oldest]
            return key, what
        return (OTHERS, *key[1:]), what.of_others() if hasattr(what, "of_others") else what

    def back(self, key: tuple[str, ...], count: int, what: Any) -> None:
        """So many calls have no event after all."""
        with self._lock:
            said = self._seen.get(key) or Said(time.monotonic(), 0, what)
            self._seen[key] = Said(said.last, said.silent + count, what)

    def over(self, now: float) -> list[tuple[tuple[str, ...], int, Any]]:
        """What was silent and has waited a minute; it is taken out."""
        with self._lock:
            found = [key for key, said in self._seen.items() if now - said.last >= QUIET_SECONDS]
            taken = [(key, self._seen.pop(key)) for key in found]
        return [(key, said.silent, said.what) for key, said in taken if said.silent]

    def tell(self, now: float) -> int:
        """Events were written for what is over; answers how many. What could not be written waits on."""
        told = 0
        for key, count, what in self.over(now):
            if self._write is not None and self._write(what, count):
                told += 1
            else:
                self.back(key, count, what)
        return told


_all: list[Repetitions] = []


class Call(NamedTuple):
    """Who called, and how it was answered."""

    principal: Principal | None
    answered: Answered

    def of_others(self) -> "Call":
        """The same of callers that nobody has a place for."""
        return Call(None, self.answered)


def call_record(*, principal: Principal | None, answered: Answered) -> bool:
    """The call that changed nothing is an event of its own, or counted towards the next one.

    Done without a change, it always is; refused, or asking for what there is already, repetitions are counted.

    Returns:
        Whether an event was written. A database that is away puts it on disk; it costs no answer.
    """
    now, call = time.monotonic(), Call(principal, answered)
    who = principal.subject if principal else "nobody"
    if answered.status >= 500 and answered.code in ("", "internal"):
        return False  # a fault of ours is in the log, not in the trail; nothing was decided
    if not answered.refused and answered.route not in COUNTED_WHERE_UNCHANGED:
        return _write(call, 0, 1)
    key = (who, answered.route, answered.method, str(answered.status), answered.code)
    repeated = _calls.due(key, now, call)
    if repeated is None:
        return False
    if not _write(call, repeated, repeated + 1):
        _calls.back(key, repeated + 1, call)
        return False
    return True


def found_again(principal: Principal, route: str, method: str) -> None:
    """A call that was answered from memory is counted as one that changed nothing."""
    answered = Answered(route=route, method=method, status=200, code="", why="unchanged")
    key = (principal.subject, route, method, "200", "")
    call = Call(principal, answered)
    if (silent := _calls.due(key, time.monotonic(), call)) is not None:
        _calls.back(key, silent + 1, call)


def _told(call: Call, count: int) -> bool:
    return _write(call, count, count)


def _write(call: Call, repeated: int, calls: int) -> bool:
    fields = fields_of(call.answered, repeated, calls)
    if call.answered.code == "unavailable" and spool.put(fields, actor=call.principal, request_id=rest.request_id()):
        return True  # the database was just not there: to ask for it again would keep the caller waiting as long again
    try:
        with tenant_context(call.principal or system("web")), transaction.atomic(using=plane()):
            record(**fields, actor=call.principal, tenant_id=call.principal.tenant_id if call.principal else None)
    except (DatabaseError, KeyStoreUnavailable) as why:
        return outage.is_absence(why) and spool.put(fields, actor=call.principal, request_id=rest.request_id())
    return True


def fields_of(answered: Answered, repeated: int, calls: int) -> dict[str, Any]:
    """What the event says, but for who called. `calls`: how many it stands for, all told one by one in the end."""
    body: dict[str, Any] = {
        "route": answered.route,
        "method": answered.method,
        "status": answered.status,
        "repeated": repeated,
        "calls": calls,
    }
    denied = answered.status in (401, 403, 404) or (answered.refused and answered.status < 400)
    said = {"code": answered.code} if answered.refused else {"why": answered.why}
    return {
        "event_type": "access.refused" if answered.refused else "call.unchanged",
        "outcome": ("denied" if denied else "failure") if answered.refused else "success",
        "object_kind": "route",
        "object_id": answered.route,
        "body": body | said,
    }


COUNTED_WHERE_UNCHANGED = frozenset({"namespaces-resolve"})
"""Routes that gateways ask all day long for what is there: told as refusals are, once a minute with a count."""
_calls = Repetitions(_told)


# --- when minutes are over --------------------------------------------------------------------


def tell(*, everything: bool = False) -> int:
    """What was silent for a minute is told, and what waited on disk; answers how many events that were.

    Args:
        everything: also what is not a minute old: the process ends.
    """
    now = time.monotonic() + (QUIET_SECONDS if everything else 0)
    return sum(one.tell(now) for one in list(_all))


_thread: threading.Thread | None = None
_tells = False
_starting = threading.Lock()


def keep_telling() -> None:
    """This process tells what it counts by itself, from the first count on and when it ends; called where it begins."""
    global _tells
    _tells = True


def _start() -> None:
    """Somebody was counted: a thread will tell."""
    global _thread
    if _thread is not None or not _tells:
        return
    with _starting:
        if _thread is None:
            _thread = threading.Thread(target=_tell_on, name="refusals", daemon=True)
            _thread.start()
            atexit.register(_last)


def _tell_on() -> None:
    while True:
        time.sleep(EVERY_SECONDS)
        _tell_and_let_go(everything=False)


def _last() -> None:
    _tell_and_let_go(everything=True)


def _tell_and_let_go(*, everything: bool) -> None:
    try:
        tell(everything=everything)
        spool.take_in()
    except DatabaseError:
        _log.warning("what was counted is told later", exc_info=True)
    except Exception:  # whatever it is: what is counted from now on must be told too
        _log.exception("what was counted is told later")
    finally:
        connections.close_all()
