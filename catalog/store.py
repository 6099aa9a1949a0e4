"""The only writer of segments, placements, holdings, owners, cursors and the ledger: one transaction per batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalog.index.memory import Memory
from catalog.index.steps import Touched

Extras = Sequence[tuple[str, Sequence[Any]]]
"""(SQL, parameters) of statements that run in the same transaction."""


class Deposed(Exception):
    """Another writer holds the shard, or this one lost track: drop the store with its memory and open a new one."""


@dataclass
class Prepared:
    """One transaction, ready to be sent; it holds no reference into the memory, so that folding may go on."""

    seq: int


class Store:
    """Single writer of one shard.

    `commit` = `write(prepare(…))`. `prepare` belongs to the thread that folds and takes milliseconds; `write` waits
    for the network and may run in another thread while the next batch is folded, one write at a time, in order.
    """

    def __init__(self, dsn: str, shard: int = 0, defer: float = 2.0) -> None:
        """The shard is fenced for this writer and its memory loaded."""
        self.memory = Memory()
        self.seq = 0

    def prepare(self, touched: Touched, extras: Extras = (), now: float | None = None, flush: bool = False) -> Prepared:
        """The transaction for what was touched; `flush` also writes every row that lags behind."""
        raise NotImplementedError

    def write(self, prepared: Prepared) -> int:
        """Durable when it returns: the ledger's number. A lost connection is mended and the transaction sent once.

        Raises:
            Deposed: nothing of it was written.
        """
        raise NotImplementedError

    def commit(self, touched: Touched, extras: Extras = (), now: float | None = None, flush: bool = False) -> int:
        """Durable when it returns: the ledger's number."""
        return self.write(self.prepare(touched, extras, now, flush))

    def idle(self, now: float | None = None) -> bool:
        """To be called between batches, a few times a second: rows that are due or that a barrier waits for are
        written, and one bounded piece of sweeping is done. True = there is more to sweep."""
        raise NotImplementedError

    def close(self) -> None:
        """The connection is closed."""
