"""Decides who a bearer token of a router's caller stands for, from memory wherever that is fresh enough.

A look-up holds for `FRESH_SECONDS`. While PostgreSQL is away, who was known before stays known for `KEPT_SECONDS`, as
long as a gateway may use keys without renewing them; after that, and for strangers, nobody can be checked. Strange
tokens have a thread of their own and a budget for each address, so that they keep no known caller waiting.
"""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from django.db import Error, close_old_connections, connections

from kvconsole.infra.access import Principal
from kvconsole.infra.addresses import neighbourhood, within
from kvconsole.infra.rate import Buckets, Policy
from routing.codes import Refusal
from tenants.selectors import Known, as_principal, known_token
from tenants.tokens import parse

FRESH_SECONDS, KEPT_SECONDS = 5.0, 300.0
REST_SECONDS = 1.0
"""After PostgreSQL failed, nobody asks it again for so long: who is known is answered at once."""
MOST, TOKEN_MOST, WAITING_MOST = 20_000, 512, 256
WRONG = Policy("wrong-token", 60, 60)


class _Entry(NamedTuple):
    principal: Principal
    cidr: str
    asked: float


class Callers:
    """Tokens that were good lately, with who they stand for."""

    def __init__(self) -> None:
        self.good: OrderedDict[bytes, _Entry] = OrderedDict()
        self.bad: OrderedDict[bytes, float] = OrderedDict()
        self.wrong, self.waiting, self.away_until = Buckets(), 0, 0.0
        self.known, self.strange = ThreadPoolExecutor(1, "tokens"), ThreadPoolExecutor(1, "strange-tokens")
        self._asking: dict[bytes, asyncio.Future[Known | None]] = {}

    def at_once(self, header: bytes, address: str) -> Principal | None:
        """Who calls, if that is known and fresh; else None: ask `caller`."""
        entry = self.good.get(header)
        if entry is None or time.monotonic() - entry.asked >= FRESH_SECONDS:
            return None
        return entry.principal if not entry.cidr or within(address, [entry.cidr]) else None

    async def caller(self, header: bytes, address: str) -> Principal:
        """Who calls.

        Args:
            header: Authorization, as it came.
            address: of who sent it.

        Raises:
            Refusal: not-authenticated, token-invalid, rate-limited, or unavailable: it cannot be checked now.
        """
        now, entry = time.monotonic(), self.good.get(header)
        if entry is None or now - entry.asked >= FRESH_SECONDS:
            entry = await self._asked(header, address, entry, now)
        if entry.cidr and not within(address, [entry.cidr]):
            raise Refusal("token-invalid")
        return entry.principal

    async def _asked(self, header: bytes, address: str, entry: _Entry | None, now: float) -> _Entry:
        kind, _, rest = header.decode("latin-1").partition(" ")
        token = rest.strip()
        if not header or kind.lower() != "bearer":
            raise Refusal("not-authenticated")
        if len(token) > TOKEN_MOST or parse(token) is None or self.bad.get(header, 0.0) > now:
            raise Refusal("token-invalid")
        if entry is not None and now - entry.asked >= KEPT_SECONDS and now < self.away_until:
            entry = None
        if now < self.away_until:
            return self._kept(entry)
        if entry is None:
            self._budget(neighbourhood(address), now)
        try:
            found = await self._look(header, token, self.known if entry else self.strange)
        except Error:
            self.away_until = time.monotonic() + REST_SECONDS
            return self._kept(entry if entry and now - entry.asked < KEPT_SECONDS else None)
        return self._keep(header, found, address, now)

    def _kept(self, entry: _Entry | None) -> _Entry:
        if entry is None:
            raise Refusal("unavailable", "Tokens cannot be checked now.", retry=REST_SECONDS)
        return entry

    def _budget(self, address: str, now: float) -> None:
        verdict = self.wrong.take(WRONG, address, now=now, cost=0)
        if verdict.wait or self.waiting >= WAITING_MOST:
            raise Refusal("rate-limited", retry=max(1.0, verdict.wait))

    async def _look(self, header: bytes, token: str, pool: ThreadPoolExecutor) -> Known | None:
        """One question at a time for a token, however many wait for the answer."""
        asking = self._asking.get(header)
        if asking is None:
            asking = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(pool, _known, token))
            self._asking[header] = asking
            self.waiting += 1

            def done(_: object) -> None:
                self.waiting -= 1
                del self._asking[header]

            asking.add_done_callback(done)
        return await asyncio.shield(asking)

    def _keep(self, header: bytes, found: Known | None, address: str, now: float) -> _Entry:
        if found is None:
            self.good.pop(header, None)
            self.bad[header] = now + FRESH_SECONDS
            self.wrong.take(WRONG, neighbourhood(address), now=now)
            _trim(self.bad)
            raise Refusal("token-invalid")
        entry = self.good[header] = _Entry(as_principal(found), found.cidr, now)
        self.good.move_to_end(header)
        _trim(self.good)
        return entry

    def close(self) -> None:
        """No thread waits for another token."""
        for pool in (self.known, self.strange):
            leave(pool, 1)


def leave(pool: ThreadPoolExecutor, threads: int) -> None:
    """The pool has ended, and none of its threads left a connection open."""
    together = threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(_left, together)
    pool.shutdown()


def _left(together: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(5)
    connections.close_all()


def _known(token: str) -> Known | None:
    close_old_connections()
    try:
        return known_token(token)
    except Error:
        connections.close_all()
        raise


def _trim(kept: "OrderedDict[bytes, _Entry] | OrderedDict[bytes, float]") -> None:
    while len(kept) > MOST:
        kept.popitem(last=False)
