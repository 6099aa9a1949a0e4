"""Decides which node a bearer token stands for; an answer is kept for five seconds, so that a revoked one ends soon."""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from django.db import Error, close_old_connections, connections

from catalog.ingest.codes import Unavailable
from kvconsole.infra.access import Principal
from tenants.selectors import token_principal

KEPT_S = 5.0
KEPT_MOST = 10_000
TOKEN_BYTES_MOST = 512


class Credentials:
    """Tokens seen in the last seconds, good and bad ones alike."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, tuple[float, UUID | None]] = OrderedDict()
        self.pool = ThreadPoolExecutor(1, "tokens")

    async def node(self, header: bytes) -> UUID | None:
        """The node that the Authorization header speaks for, None if it is nobody's.

        Raises:
            Unavailable: tokens cannot be checked now.
        """
        kind, _, token = header.decode("latin-1").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > TOKEN_BYTES_MOST:
            return None
        now = time.monotonic()
        kept = self.kept.get(token)
        if kept is not None and kept[0] > now:
            return kept[1]
        node = await asyncio.get_running_loop().run_in_executor(self.pool, self._look, token)
        self.kept[token] = (now + KEPT_S, node)
        self.kept.move_to_end(token)
        while len(self.kept) > KEPT_MOST:
            self.kept.popitem(last=False)
        return node

    def close(self) -> None:
        """No more look-ups; the connection of their thread is closed."""
        self.pool.submit(connections.close_all)
        self.pool.shutdown(wait=True)

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
