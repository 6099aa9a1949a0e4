"""Decides whether the log in the database is still what was sealed: everything is hashed again, round after round.

A signed tree head is made from the stored frontier, so it says nothing of a leaf or body that was edited since. Each
round goes from index 0 to the end: leaves and their hashes, tiles, frontier and root, every stored checkpoint, the
event behind each leaf, its body, and the producers' numbers. The first index where something differs is named. All
hashing is done here and none by PostgreSQL. Run by the sequencer's process, or alone by `manage.py scrubber`.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

from audit import rehash, signing, tiles
from audit.epochs import Log, logs, path_of
from audit.findings import finding_open, findings_settle, log_event
from audit.gaps import Tally, gaps_tell, tally_begun
from audit.tree import LogTorn, asked
from kvcore import notes
from kvcore.proofs import Frontier

ROUND_SECONDS = 600.0
"""A round begins so long after the last one began; 10 million leaves take a third of it."""
PACED = 3
LEAST_RATE = 2_000.0
SAVE_SECONDS = 5.0
SWITCH_SECONDS = 0.0005
"""So long a thread that hashes keeps the interpreter from others that wait for it. Who reads the next leaves, or seals,
needs it many times for a moment, and would each time wait up to ten times as long."""
LOCK = 0x4B564C47_00000002
NICE = 10
KINDS = ("leaf", "event", "body", "tile", "checkpoint", "signature", "frontier", "log-shrunk")
UNSETTLED = 5_000
"""Numbers that are missing so near the end may be on their way; the gap finder sees to them."""
NAMED = 100
"""So many divergences of a round are told; the rest is counted."""

_log = logging.getLogger("kvc.scrubber")


class Verdict(NamedTuple):
    """What one full round found."""

    size: int
    seconds: float
    first_divergent: int | None
    divergences: int


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """While something is hashed, all threads of the process take turns of `SWITCH_SECONDS`; then they do as before."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Scrubber:
    """One walk over the log after another; keeps where it is, and goes on there after a restart."""

    def __init__(self, dsn: str, *, rate: float | None = None) -> None:
        """`rate`: leaves per second at most; None: a round takes a third of `ROUND_SECONDS`; 0: as fast as may be."""
        self.dsn, self.rate = dsn, rate
        self.stopping = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._found = 0
        self._log_now: Log | None = None
        self._known: dict[tuple[str, int], bytes] = {}

    def run(self) -> None:
        """Rounds until told to stop, whatever becomes of the database."""
        if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
            with contextlib.suppress(OSError):  # of this thread alone, on Linux
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while not self.stopping.is_set():
            wait = 1.0
            try:
                if self._lead():
                    wait = self._due() or 0.0
                    if not wait:
                        self.round()
            except (psycopg.Error, LogTorn, OSError) as e:
                _log.warning("the round stands still: %s", e, exc_info=True)
                self.close()
            except Exception as e:
                if not isinstance(e.__cause__, psycopg.Error):
                    raise
                _log.warning("the round stands still: %s", e, exc_info=True)
                self.close()
            self.stopping.wait(min(wait, 5.0))
        self.close()

    def close(self) -> None:
        """No connection is held."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
        connection.close()

    def round(self) -> Verdict | None:
        """The rest of the round at hand; None: told to stop before its end. What differs is a row and an event.

        Logs that ended come first, each from its first leaf on.
        """
        with _short_turns():
            return self._round()

    def _round(self) -> Verdict | None:
        walk, number = self._resume()
        begin = time.monotonic()
        for log in logs()[number - 1 :]:
            self._log_now = log
            self._held.execute(f"SET search_path = {path_of(log)}".encode())
            walk.key = notes.vkey_parse(log.key) if log.key else signing.log_key()
            walk.known = self._known
            part = self._through(walk, begin)
            if part is None:
                return None
            if not log.ended:
                return self._conclude(walk, part, time.monotonic() - begin)
            walk = rehash.Walk(Frontier(), tally_begun(asked()), walk.spent)
        return None

    def _through(self, walk: rehash.Walk, begin: float) -> rehash.Part | None:
        """The last part of the log at hand; None: told to stop before it."""
        saved = paced_from = time.monotonic()
        done = 0
        with ThreadPoolExecutor(1, thread_name_prefix="scrub") as pool:
            ahead = pool.submit(rehash.read, self._held, walk.frontier.size)
            while True:
                part = ahead.result()
                more = part.end < part.size
                if more:
                    ahead = pool.submit(rehash.read, self._held, part.end)
                self._check(walk, part)
                done += part.end - part.first
                if not more:
                    return part
                if time.monotonic() - saved > SAVE_SECONDS:
                    self._save(walk, time.monotonic() - begin)
                    saved = time.monotonic()
                self._pace(done, paced_from, part.size)
                if self.stopping.is_set():
                    ahead.result()
                    self._save(walk, time.monotonic() - begin)
                    return None

    # --- inside ---

    @property
    def _held(self) -> psycopg.Connection[Any]:
        if self._connection is None and not self._lead():
            raise psycopg.OperationalError("another scrubber is at work")
        assert self._connection is not None
        return self._connection

    def _lead(self) -> bool:
        if self._connection is not None:
            return True
        options = "-c max_parallel_workers_per_gather=0 -c statement_timeout=60s"
        c = psycopg.connect(self.dsn, autocommit=True, connect_timeout=3, options=options)
        row = c.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
        if row is None or not row[0]:
            c.close()
            return False
        c.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        c.read_only = True
        self._connection = c
        return True

    def _due(self) -> float:
        """Seconds until the next round may begin; 0 while one is under way."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT w.next, extract(epoch FROM clock_timestamp() - w.started_at)::float8, t.size"
                " FROM audit_walk w, audit_tree t WHERE w.name = 'scrub'"
            )
            next_, since, size = cursor.fetchone()
        if not size:
            return 1.0
        return 0.0 if next_ or since is None else max(0.0, ROUND_SECONDS - since)

    def _resume(self) -> tuple[rehash.Walk, int]:
        """The walk, and the number of the log that it is in."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT next, frontier, tally, spent, found, epoch FROM audit_walk WHERE name = 'scrub'")
            next_, frontier, tally, spent, found, number = cursor.fetchone()
            with contextlib.suppress(ValueError):
                kept = Frontier.unpack(bytes(frontier), next_)
                if next_ and next_ % tiles.WIDE == 0:
                    self._found = found
                    seen = Tally(tally if isinstance(tally, dict) else json.loads(tally))
                    return rehash.Walk(kept, seen, spent), number
            self._found = 0
            cursor.execute(
                "UPDATE audit_walk SET next = 0, epoch = 1, frontier = '', tally = '{}', spent = 0, found = 0,"
                " started_at = clock_timestamp() WHERE name = 'scrub'"
            )
        return rehash.Walk(Frontier(), Tally(), 0.0), 1

    def _save(self, walk: rehash.Walk, seconds: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE audit_walk SET next = %s, frontier = %s, tally = %s, spent = %s, found = %s, epoch = %s"
                " WHERE name = 'scrub'",
                (walk.frontier.size, walk.frontier.pack(), walk.tally.pack(), walk.spent + seconds, self._found,
                 self._number()),
            )  # fmt: skip

    def _check(self, walk: rehash.Walk, part: rehash.Part) -> None:
        path = path_of(self._log_now) if self._log_now else "public"
        for one in rehash.check(walk, part, make_conninfo(self.dsn, options=f"-c search_path={path}")):
            self._tell(one)

    def _number(self) -> int:
        return self._log_now.number if self._log_now else 1

    def _tell(self, one: rehash.Divergence) -> None:
        self._found += 1
        if self._found > NAMED:
            return
        ended = self._log_now.origin if self._log_now and self._log_now.ended else ""
        detail = f"{ended}: {one.detail}" if ended else one.detail
        finding_open(
            kind=one.kind,
            subject=f"{one.kind}/{self._number()}:{one.at}" if ended else f"{one.kind}/{one.at}",
            first_index=one.at,
            detail=detail,
            event_type="log.divergence_found",
            body={"kind": one.kind, "index": one.at, "detail": detail},
        )

    def _conclude(self, walk: rehash.Walk, part: rehash.Part, seconds: float) -> Verdict:
        gaps_tell([hole for hole in walk.tally.holes() if hole.at < part.size - UNSETTLED], walk.tally.doubled)
        looked_at = [kind for kind in KINDS if kind != "signature" or walk.key is not None]
        with transaction.atomic(), connection.cursor() as cursor:
            if self._found <= NAMED:
                cursor.execute("SELECT started_at FROM audit_walk WHERE name = 'scrub'")
                findings_settle(kinds=looked_at, why="as-sealed", unseen_since=cursor.fetchone()[0])
            cursor.execute(
                "SELECT min(first_index) FROM audit_finding WHERE resolved_at IS NULL AND kind = ANY(%s)",
                (list(KINDS),),
            )
            first = cursor.fetchone()[0]
            verdict = Verdict(part.size, walk.spent + seconds, first, self._found)
            cursor.execute(
                "UPDATE audit_walk SET next = 0, epoch = 1, frontier = '', tally = '{}', spent = 0, found = 0,"
                " done_at = clock_timestamp(), done_size = %s WHERE name = 'scrub'",
                (part.size,),
            )
            body: dict[str, Any] = {"size": part.size, "leaves": part.size, "seconds": round(verdict.seconds, 3)}
            body["verdict"] = f"diverges at {first}" if verdict.divergences else "as sealed"
            log_event("log.scrubbed", "failure" if verdict.divergences else "success", body, "scrub")
        return verdict

    def _pace(self, done: int, begin: float, size: int) -> None:
        rate = max(LEAST_RATE, size * PACED / ROUND_SECONDS) if self.rate is None else self.rate
        if rate:
            self.stopping.wait(max(0.0, done / rate - (time.monotonic() - begin)))
