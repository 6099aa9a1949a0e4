"""Decides which node a bearer token stands for; an answer is kept for five seconds, so that a revoked one ends soon.

Tokens that were good in the last hour are looked up apart from strange ones, and of strange ones only so many wrong
ones from each address: whoever sends tokens that nobody has keeps no node waiting.
"""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from django.db import Error, close_old_connections, connections

from catalog.ingest.codes import Unavailable
from kvconsole.infra.access import Principal
from kvconsole.infra.addresses import neighbourhood
from tenants.selectors import token_principal
from tenants.tokens import parse

KEPT_S, KNOWN_S = 5.0, 3600.0
"""How long an answer holds, and how long a node is no stranger after its last one."""
KEPT_MOST = 10_000
TOKEN_BYTES_MOST = 512
FREE, REFILL_S = 60, 1.0
"""Wrong tokens of one address that are looked up at once, and the seconds after which it has one more."""
WAITING_MOST = 256
"""Strange tokens that wait for their look-up."""


class Attempts:
    """How many wrong tokens each address may still send; a bounded number of addresses, the others have all."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def begin(self, address: str, now: float) -> float:
        """An attempt counts as wrong before it is looked at: the seconds to wait where it must not be made, else 0."""
        left = self._at(address, now)
        if left < 1:
            return (1 - left) * REFILL_S
        self._set(address, left - 1, now)
        return 0.0

    def passed(self, address: str, now: float) -> None:
        """It was right, or not looked at."""
        self._set(address, self._at(address, now) + 1, now)

    def _at(self, address: str, now: float) -> float:
        left, at = self._left.get(address, (float(FREE), now))
        return min(float(FREE), left + (now - at) / REFILL_S)

    def _set(self, address: str, left: float, now: float) -> None:
        self._left[address] = (left, now)
        self._left.move_to_end(address)
        while len(self._left) > KEPT_MOST:
            self._left.popitem(last=False)


class Credentials:
    """Tokens seen lately: the good ones with their nodes, and apart from them the bad ones, which displace no other."""

    def __init__(self) -> None:
        self.good: OrderedDict[str, tuple[float, UUID]] = OrderedDict()
        self.bad: OrderedDict[str, float] = OrderedDict()
        self.attempts, self.waiting = Attempts(), 0
        self.known, self.strange = ThreadPoolExecutor(1, "tokens"), ThreadPoolExecutor(1, "strange-tokens")

    async def node(self, header: bytes, address: str = "") -> UUID | None:
        """The node that the Authorization header speaks for, None if it is nobody's.

        Args:
            header: as it came.
            address: of who sent it.

        Raises:
            Unavailable: tokens cannot be checked now, or no more strange ones from this address.
        """
        kind, _, token = header.decode("latin-1").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or len(token) > TOKEN_BYTES_MOST:
            return None
        now = time.monotonic()
        until, node = self.good.get(token, (0.0, None))
        if node is not None and until > now:
            return node
        if node is not None and until + KNOWN_S > now:
            return self._keep(token, await self._ask(self.known, token), now)
        if self.bad.get(token, 0.0) > now or parse(token) is None:
            return None
        return await self._stranger(token, neighbourhood(address), now)

    async def _stranger(self, token: str, address: str, now: float) -> UUID | None:
        if wait := self.attempts.begin(address, now):
            raise Unavailable("rate-limited", wait)
        if self.waiting >= WAITING_MOST:
            self.attempts.passed(address, now)
            raise Unavailable("rate-limited")
        self.waiting += 1
        try:
            node = await self._ask(self.strange, token)
        except BaseException:
            self.attempts.passed(address, now)
            raise
        finally:
            self.waiting -= 1
        if node is not None:
            self.attempts.passed(address, now)
        return self._keep(token, node, now)

    async def _ask(self, pool: ThreadPoolExecutor, token: str) -> UUID | None:
        return await asyncio.get_running_loop().run_in_executor(pool, self._look, token)

    def _keep(self, token: str, node: UUID | None, now: float) -> UUID | None:
        (self.good if node is None else self.bad).pop(token, None)
        kept: OrderedDict[str, float] | OrderedDict[str, tuple[float, UUID]]
        if node is None:
            self.bad[token], kept = now + KEPT_S, self.bad
        else:
            self.good[token], kept = (now + KEPT_S, node), self.good
        kept.move_to_end(token)
        while len(kept) > KEPT_MOST:
            kept.popitem(last=False)
        return node

    def close(self) -> None:
        """No more look-ups; the connections of their threads are closed."""
        for pool in (self.known, self.strange):
            pool.submit(connections.close_all)
            pool.shutdown(wait=True)

    def _look(self, token: str) -> UUID | None:
        try:
            principal = token_principal(token)
        except Error as e:
            close_old_connections()
            raise Unavailable("shard-unavailable") from e
        return node_of(principal)


def node_of(principal: Principal | None) -> UUID | None:
    """The node a principal is, None if it is something else."""
    if principal is None or not principal.may("node"):
        return None
    try:
        return UUID(principal.holder or principal.id)
    except ValueError:
        return None
