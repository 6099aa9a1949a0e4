"""Decides whether what was announced came: routers note it, and what nobody watched is neither right nor wrong.

A router has the open announcements in memory, notes the sessions and prefixes that it is asked for, and tells in
batches. Trust counts what was announced once, however often it was said. Called by the router and by tasks.
"""

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import connections, transaction

from kvconsole.infra import sql
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named

PRINT_BYTES = 8
TELL_SECONDS = 0.5
SILENT = timedelta(seconds=30)
"""A router that told nothing for so long does not watch."""
LAG = timedelta(seconds=5)
"""What came is told within so long."""
MOST, KEPT = 50_000, timedelta(days=7)


class Watcher:
    """The open announcements, as one router sees them. `saw` costs a look-up or two; the rest is for a thread."""

    def __init__(
        self, router: str, *, role: str = "router", clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.router, self.role, self._clock = router, role, clock
        self.since = clock()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._sessions: dict[tuple[UUID, bytes], list[UUID]] = {}
        self._prefixes: dict[bytes, dict[int, dict[bytes, list[UUID]]]] = {}
        self._came: dict[UUID, datetime] = {}

    def saw(self, *, tenant: UUID, session: str, namespace: bytes, prints: bytes) -> None:
        """A request was routed now.

        Args:
            tenant: whose.
            session: as it names it, "" = none.
            namespace: digest.
            prints: the first 8 bytes of each block key of the prompt.
        """
        found: list[UUID] = []
        if session and self._sessions:
            found = self._sessions.get((tenant, hashlib.sha256(session.encode()).digest()), [])
        for depth, heads in self._prefixes.get(namespace, {}).items():
            at = depth * PRINT_BYTES
            if at <= len(prints):
                found = found + heads.get(prints[at - PRINT_BYTES : at], [])
        if found:
            now = self._clock()
            with self._lock:
                for one in found:
                    self._came.setdefault(one, now)

    # ---------------------------------------------------------------- the thread
    def start(self) -> None:
        """The thread runs."""
        self._thread = threading.Thread(target=self._run, name="routing-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What came is told, if PostgreSQL takes it now."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with sql.connect(self.role) as cx:
                    while not self._stop.wait(TELL_SECONDS):
                        self.write(cx, self._clock())
                    self.write(cx, self._clock())
            except (psycopg.Error, OSError):
                self.since = self._clock()  # what was announced meanwhile was not known here
                self._stop.wait(TELL_SECONDS)

    def write(self, cx: psycopg.Connection[Any], now: datetime) -> None:
        """What came is told, and what is announced since is known.

        Args:
            cx: as kv_router, autocommit.
            now: aware.
        """
        queries = named("routing", "hints.sql")
        with self._lock:
            came = dict(self._came)
        if came:
            cx.execute(queries["announcements_came"], (list(came), list(came.values())))
            with self._lock:
                self._came = {one: at for one, at in self._came.items() if one not in came}
        sessions: dict[tuple[UUID, bytes], list[UUID]] = defaultdict(list)
        prefixes: dict[bytes, dict[int, dict[bytes, list[UUID]]]] = {}
        rows = cx.execute(queries["announcements_open"], (now, MOST)).fetchall()
        for one, tenant, kind, about, blocks, namespace in rows:
            if kind == "tool":
                sessions[(tenant, bytes(about))].append(one)
            else:
                heads = prefixes.setdefault(bytes(namespace), {}).setdefault(blocks, {})
                heads.setdefault(bytes(about), []).append(one)
        self._sessions, self._prefixes = dict(sessions), prefixes
        if len(rows) == MOST:
            self.since = now  # it did not see all of them
        cx.execute(queries["watch_tell"], (self.router, self.since, now))


def announcements_judge(*, now: datetime) -> dict[str, int]:
    """What is over came, was missed, or was not watched; the tenants' trust has it. Answers how many of each."""
    queries, found = named("routing", "hints.sql"), dict[str, int]()
    with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(queries["announcements_judge"], (now - LAG, now - SILENT, now - SILENT, MOST))
        rows = cursor.fetchall()
        counted: dict[UUID, dict[str, set[Any]]] = defaultdict(lambda: {"came": set(), "missed": set()})
        for tenant, kind, about, came_at, state in rows:
            found[state] = found.get(state, 0) + 1
            if state in ("came", "missed"):
                counted[tenant][state].add((kind, bytes(about), came_at))
        days = [(tenant, now.date(), len(c["came"]), len(c["missed"])) for tenant, c in counted.items()]
        if days:
            cursor.execute(queries["trust_add"], [list(column) for column in zip(*days, strict=True)])
        cursor.execute(queries["announcements_forget"], (now - KEPT,))
        cursor.execute(queries["watches_forget"], (now - timedelta(days=1),))
    return found
