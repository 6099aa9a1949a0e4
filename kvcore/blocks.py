"""Decides what a tier is, which state a block may be in and which transitions are legal.

Called by agents (which enforce the table) and by the catalog (which counts what it is told).
"""

from enum import StrEnum


class Tier(StrEnum):
    """Where the bytes of a block are, hottest first."""

    HBM = "hbm"
    PINNED = "pinned"
    DRAM = "dram"
    SSD = "ssd"
    REMOTE = "remote"


TIERS: tuple[Tier, ...] = tuple(Tier)
VOLATILE: frozenset[Tier] = frozenset({Tier.HBM, Tier.PINNED, Tier.DRAM})
"""Tiers whose content ends with the process that owns the memory (its `boot`)."""


class BlockState(StrEnum):
    """A block's life on one owner."""

    ALLOCATED = "allocated"
    TRANSFERRING = "transferring"
    COMMITTED = "committed"
    REFERENCED = "referenced"
    EVICTING = "evicting"
    FREE = "free"


class Guard(StrEnum):
    """Under which circumstance a legal transition is legal."""

    ALWAYS = "always"
    FORCE = "force"  # only a purge that waited for the lease's deadline
    TOLD = "told"  # the owner says afterwards that it is gone
    NOT_PURGED = "not_purged"  # a cancelled eviction; a purge is never cancelled block by block


S, G = BlockState, Guard

TRANSITIONS: dict[tuple[BlockState | None, BlockState], Guard] = {
    (None, S.ALLOCATED): G.ALWAYS,
    (None, S.COMMITTED): G.ALWAYS,  # the engine announces late
    (S.ALLOCATED, S.TRANSFERRING): G.ALWAYS,
    (S.ALLOCATED, S.COMMITTED): G.ALWAYS,  # computed in place
    (S.ALLOCATED, S.FREE): G.ALWAYS,  # abort
    (S.TRANSFERRING, S.COMMITTED): G.ALWAYS,
    (S.TRANSFERRING, S.FREE): G.ALWAYS,
    (S.COMMITTED, S.REFERENCED): G.ALWAYS,
    (S.COMMITTED, S.EVICTING): G.ALWAYS,
    (S.COMMITTED, S.FREE): G.TOLD,
    (S.REFERENCED, S.COMMITTED): G.ALWAYS,
    (S.REFERENCED, S.EVICTING): G.FORCE,
    (S.REFERENCED, S.FREE): G.TOLD,
    (S.EVICTING, S.FREE): G.ALWAYS,
    (S.EVICTING, S.COMMITTED): G.NOT_PURGED,
}
"""13 of the 30 ordered pairs of different states, and two from absent (None)."""


class IllegalTransition(Exception):
    """The transition is not in the table; the block keeps its state."""

    def __init__(self, before: BlockState | None, after: BlockState) -> None:
        super().__init__(f"illegal block transition {before or 'absent'} -> {after}; the block keeps its state")
        self.before, self.after = before, after


def transition(
    before: BlockState | None, after: BlockState, *, force: bool = False, told: bool = False, purging: bool = False
) -> BlockState:
    """The state after the transition; repeating the present state is no error.

    Args:
        before: present state, None if the block is absent.
        after: wanted state.
        force: the caller may break a lease (its deadline is over).
        told: the owner reports after the fact that the block is gone.
        purging: a purge of this block is under way.

    Raises:
        IllegalTransition: the pair is not in the table or its guard is not met; nothing changed.

    Transitions: `TRANSITIONS`.
    """
    if before is after:
        return after
    guard = TRANSITIONS.get((before, after))
    met = {None: False, G.ALWAYS: True, G.FORCE: force, G.TOLD: told, G.NOT_PURGED: not purging}[guard]
    if not met:
        raise IllegalTransition(before, after)
    return after
