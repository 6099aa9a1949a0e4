"""Decides how the writer remembers its shard: sources, owners, keyspaces, holdings, and the fold of steps into runs."""

from uuid import UUID

from catalog.index.steps import Keyspace, SourceRow, Touched, Work


class Memory:
    """Everything the writer of one shard knows; it can be rebuilt from the tables at any time."""

    def __init__(self) -> None:
        self.sources: dict[int, SourceRow] = {}
        self.keyspaces: dict[int, Keyspace] = {}
        self.owner_of: dict[tuple[int, str], int] = {}
        """(source, tier) → number of the live owner."""
        self.holding: dict[tuple[int, int], list[int]] = {}
        """(keyspace, owner) → [blocks, lo, hi], the sums of `kvcore.keys.digest_add`."""

    def source(self, node_id: UUID, name: str, dp_rank: int, touched: Touched, now: float) -> SourceRow:
        """The source's row, made if it is new."""
        raise NotImplementedError

    def keyspace(self, digest: bytes, generation: int, group: int, touched: Touched, *, tenant_id: UUID,
                 namespace_id: UUID | None = None, block_tokens: int = 0, block_bytes: int = 0, claimed: bool = True
                 ) -> Keyspace:  # fmt: skip
        """The keyspace, made if it is new; a later call with `claimed` gives an unclaimed one to its tenant."""
        raise NotImplementedError

    def apply(self, work: list[Work]) -> Touched:
        """The steps are folded in order; nothing is durable yet."""
        raise NotImplementedError

    def digests(self, source: int) -> dict[tuple[int, str], tuple[int, int, int]]:
        """(keyspace, tier) → (blocks, lo, hi) of everything the source is believed to hold."""
        raise NotImplementedError
