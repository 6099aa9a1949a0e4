"""Decides what the agent knows of its blocks: spaces, runs and their copies on tiers.

A run is the unit that is kept, moved and dropped: up to `RUN_BLOCKS` consecutive blocks of one chain. So the work per
block is its key, its content and its copy; everything else is done once per run.
"""

from collections.abc import Iterable
from typing import Any

from kvcore.blocks import BlockState, Tier, transition
from kvcore.keys import KEY_BYTES
from nodeagent.tiers.base import RunMeta, sums

RUN_BLOCKS = 32
"""Blocks of a run as the reference engine cuts them: one 512-token block of a request trace."""
_MASK = 2**64 - 1


class Space:
    """One (namespace, generation, cache group) and what this node holds of it per tier."""

    __slots__ = ("block_bytes", "block_tokens", "fenced", "gen", "group", "ns", "share", "tenant", "totals")

    def __init__(self, ns: bytes, gen: int, group: int, *, block_tokens: int, block_bytes: int) -> None:
        self.ns, self.gen, self.group = ns, gen, group
        self.block_tokens, self.block_bytes = block_tokens, block_bytes
        self.tenant = ""
        """Whose it is, as far as leases have told; its bytes are charged to it."""
        self.fenced = False
        """Its generation is below `min_gen`: never served or published again, first to go."""
        self.share = 0.5
        """Moving share of looked-up blocks that were here, or would have been: how likely a new block is used again."""
        self.totals: dict[Tier, tuple[int, int, int]] = {}
        """(blocks, lo, hi) per tier, as `kvcore.keys.digest_add` would have summed them."""

    def count(self, tier: Tier, run: "Run", sign: int) -> None:
        """Adds the run to the tier's digest (+1) or takes it away (-1)."""
        blocks, lo, hi = self.totals.get(tier, (0, 0, 0))
        blocks += sign * run.blocks
        if blocks:
            self.totals[tier] = blocks, (lo + sign * run.lo) & _MASK, (hi + sign * run.hi) & _MASK
        else:
            del self.totals[tier]


class Copy:
    """A run's bytes on one tier. `place` is the tier's word for where they are."""

    __slots__ = ("held_bytes", "place", "refs", "since", "state")

    def __init__(self, now: float) -> None:
        self.state = transition(None, BlockState.ALLOCATED)
        self.place: Any = None
        self.refs = 0
        self.held_bytes = 0
        self.since = now

    def to(self, state: BlockState, *, told: bool = False, force: bool = False) -> None:
        """Changes the state by the one transition table.

        Raises:
            IllegalTransition: the state is unchanged.
        """
        self.state = transition(self.state, state, told=told, force=force)

    def acquire(self) -> None:
        """One more user holds the copy; it cannot be evicted."""
        self.refs += 1
        self.to(BlockState.REFERENCED)

    def release(self) -> None:
        """One user fewer."""
        self.refs -= 1
        if not self.refs and self.state is BlockState.REFERENCED:  # it may have been lost meanwhile
            self.to(BlockState.COMMITTED)


class Run:
    """Consecutive blocks of one chain, where they are, and how often they were used."""

    __slots__ = ("blocks", "born", "copies", "depth", "heat", "hi", "hits", "keys", "last", "lo", "meta", "space")

    def __init__(self, space: Space, meta: RunMeta, *, now: float) -> None:
        self.space, self.meta = space, meta
        self.keys, self.blocks, self.depth = meta.keys, meta.blocks, meta.depth
        self.lo, self.hi = sums(meta.keys)
        self.copies: dict[Tier, Copy] = {}
        self.born = self.last = now
        self.hits = 0
        self.heat = 0.0
        """Fading sum of the milliseconds that uses of this run saved, as of `last`."""

    @property
    def last_key(self) -> bytes:
        """Key of the run's last block: the parent of what follows it."""
        return self.keys[-KEY_BYTES:]

    def agrees(self, chain: bytes, at: int, base: int = 0) -> int:
        """How many blocks of the packed `chain` from block `at` on are this run's; the block at `at` is one of them.

        `base` counts blocks before the chain.
        """
        offset = (base + at - self.depth) * KEY_BYTES
        start = at * KEY_BYTES
        size = min(len(self.keys) - offset, len(chain) - start)
        if chain[start : start + size] == self.keys[offset : offset + size]:
            return size // KEY_BYTES
        low, high = KEY_BYTES, size  # blocks agree up to low, not up to high
        while high - low > KEY_BYTES:
            middle = (low + high) // 2 // KEY_BYTES * KEY_BYTES
            if chain[start : start + middle] == self.keys[offset : offset + middle]:
                low = middle
            else:
                high = middle
        return low // KEY_BYTES


class Only:
    """Runs that hold one of some keys, which are named by their first 16 bytes in hex; all runs where none is named."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = {bytes.fromhex(key)[:16] for key in keys}

    def has(self, run: Run) -> bool:
        """Whether the run is meant."""
        keys = run.keys
        return not self._keys or any(keys[at : at + 16] in self._keys for at in range(0, len(keys), KEY_BYTES))


ALL = Only()
