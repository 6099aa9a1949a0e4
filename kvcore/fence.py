"""Decides whether a block may be seen after deletions, clears, restarts and losses: late events never resurrect.

A pure reducer over what the directory hears about one block of one namespace generation on one store (one tier of one
node). `visible` is what a router may use, `gone` is what a certificate may claim; between them lies what is neither.
The rules have the numbers of the threat model; `Rules` can switch each of them off, so that the exhaustive checker
(`kvcore.fence_check`) can show that every single one is needed. Used by operations and by tests of ingest.
"""

from enum import IntEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

Position = tuple[int, int]
"""(ordinal of the boot, sequence number in it). −1 = before the first event of that boot."""
NEVER: Position = (0, -1)


class Op(IntEnum):
    """What an event of the stream says about the block; OTHER is about another block and only takes a number."""

    ADD = 1
    REMOVE = 2
    CLEAR = 3
    OTHER = 4


class Heard(msgspec.Struct, frozen=True, gc=False):
    """An event of the store's own stream."""

    at: Position
    op: Op


class Ordered(msgspec.Struct, frozen=True, gc=False):
    """A deletion of the block begins; the order is on its way to the store."""


class Receipted(msgspec.Struct, frozen=True, gc=False):
    """The store's receipt: deleted, and `at` is the last position its stream had then. It may overtake the stream."""

    at: Position


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """The answer to an administrative clear of the whole store, with the position of the clear in the stream."""

    at: Position


class Fenced(msgspec.Struct, frozen=True, gc=False):
    """The namespace's fence as this message knew it."""

    min_gen: int


class Listed(msgspec.Struct, frozen=True, gc=False):
    """An inventory of the store, exact as of `at`."""

    at: Position
    present: bool


class Collapsed(msgspec.Struct, frozen=True, gc=False):
    """The retention of tombstones is over: all that is remembered becomes one fence of the closed generation."""


Message = Heard | Ordered | Receipted | Cleared | Fenced | Listed | Collapsed


class Rules(msgspec.Struct, frozen=True, gc=False):
    """All true in production."""

    old_boot_is_late: bool = True  # 1
    new_boot_wipes_volatile: bool = True  # 1
    persistent_is_uncertain: bool = True  # 1: until listed
    persistent_survives: bool = True  # 1: a new boot never wipes it
    numbers_grow: bool = True  # 2
    clears_reach_back: bool = True  # 3
    pending_hides: bool = True  # 4
    receipts_reach_back: bool = True  # 5
    generations_fence: bool = True  # 6
    fences_only_grow: bool = True  # 6
    zombies_are_told: bool = True  # 6: what is there below its fence is deleted again
    gaps_are_uncertain: bool = True  # 7: nothing is folded beyond a gap
    collapse_fences: bool = True  # 8
    receipts_are_of_one_store: bool = True  # an order ends where its own receipt came, nowhere else


RULES = Rules()


class Copy(msgspec.Struct, frozen=True, gc=False):
    """What is known of the block on one store. `added` is the position of what made it present, `cut` the highest
    position up to which a receipt or a clear says that nothing is left, `held` the events beyond an open gap."""

    gen: int = 0
    persistent: bool = False
    at: Position = NEVER
    present: bool = False
    added: Position = NEVER
    cut: Position = NEVER
    pending: bool = False
    unlisted: bool = False
    min_gen: int = 0
    held: tuple[Heard, ...] = ()


class Effect(IntEnum):
    """What the caller has to do or to count."""

    LATE = 1  # an event of an ended boot, or below the position, was ignored
    SUPPRESSED = 2  # the echo of deleted data: count `late_add_suppressed` and log it
    REDELETE = 3  # a fenced generation is there again: open a re-delete for this node
    REPLAY = 4  # ask for the missing events
    LIST = 5  # ask for an inventory


Effects = tuple[Effect, ...]


def uncertain(copy: Copy) -> bool:
    """Whether the store's content is unknown: a gap is open, or a persistent store was not listed since its boot."""
    return copy.unlisted or bool(copy.held)


def visible(copy: Copy, rules: Rules = RULES) -> bool:
    """Whether a router may be told of the block: present, certain, newer than every deletion, not fenced."""
    return (
        copy.present
        and copy.added > copy.cut
        and not (copy.pending and rules.pending_hides)
        and not uncertain(copy)
        and (copy.gen >= copy.min_gen or not rules.generations_fence)
    )


def gone(copy: Copy) -> bool:
    """Whether it may be claimed that the store does not hold the block."""
    return not (copy.present and copy.added > copy.cut) and not copy.pending and not uncertain(copy)


def apply(copy: Copy, message: Message, rules: Rules = RULES) -> tuple[Copy, Effects]:
    """What is known after the message, and what follows from it. Messages may come late, doubled and in any order.

    Source: threat model, rules 1 to 8 of the fence protocol.
    """
    match message:
        case Heard():
            return _heard(copy, message, rules)
        case Ordered():
            return replace(copy, pending=True), ()
        case Receipted(at=at):
            copy, effects = _life(copy, at[0], rules)
            return replace(_cut(copy, at, rules.receipts_reach_back), pending=False), effects
        case Cleared(at=at):
            copy, effects = _life(copy, at[0], rules)
            return _cut(copy, at, rules.clears_reach_back), effects
        case Fenced(min_gen=min_gen):
            known = max(copy.min_gen, min_gen) if rules.fences_only_grow else min_gen
            news, copy = known != copy.min_gen, replace(copy, min_gen=known)
            return copy, _redelete(copy, rules) if news else ()
        case Listed():
            return _listed(copy, message, rules)
        case Collapsed():
            closed = max(copy.min_gen, copy.gen + 1) if rules.collapse_fences else copy.min_gen
            return Copy(copy.gen, copy.persistent, unlisted=copy.persistent, min_gen=closed), ()
        case _:
            assert_never(message)


def apply_at(
    copies: tuple[Copy, ...], store: int | None, message: Message, rules: Rules = RULES
) -> tuple[tuple[Copy, ...], Effects]:
    """The copies of one block on several stores after a message from one of them, or to all (`store` None).

    Orders and fences are for all stores; a receipt ends the order on its own store and nowhere else.
    """
    out = list(copies)
    effects: Effects = ()
    for i, copy in enumerate(copies):
        if store is None or i == store:
            out[i], more = apply(copy, message, rules)
            effects += more
        elif isinstance(message, Receipted) and not rules.receipts_are_of_one_store:
            out[i] = replace(copy, pending=False)
    return tuple(out), effects


def _life(copy: Copy, boot: int, rules: Rules) -> tuple[Copy, Effects]:
    """The copy under the newest boot heard of: rule 1."""
    if boot <= copy.at[0]:
        return copy, ()
    if copy.persistent and rules.persistent_survives:
        return replace(copy, at=(boot, -1), held=(), unlisted=rules.persistent_is_uncertain), (Effect.LIST,)
    present = copy.present and not rules.new_boot_wipes_volatile
    return replace(copy, at=(boot, -1), held=(), present=present), ()


def _cut(copy: Copy, at: Position, reaches_back: bool) -> Copy:
    """The block as of a statement that nothing up to `at` is left: rules 3 and 5."""
    if not reaches_back:
        return replace(copy, present=False) if copy.at <= at else copy
    return replace(copy, cut=max(copy.cut, at))


def _heard(copy: Copy, event: Heard, rules: Rules) -> tuple[Copy, Effects]:
    boot, seq = event.at
    if boot < copy.at[0]:
        if rules.old_boot_is_late:
            return copy, (Effect.LATE,)
        return _fold(copy, event, rules)
    copy, effects = _life(copy, boot, rules)
    if seq <= copy.at[1]:
        if rules.numbers_grow:
            return copy, (*effects, Effect.LATE)
        return _fold(copy, event, rules)
    if seq > copy.at[1] + 1 and rules.gaps_are_uncertain:
        if event in copy.held:
            return copy, (*effects, Effect.LATE)
        held = tuple(sorted((*copy.held, event), key=lambda e: e.at))
        return replace(copy, held=held), (*effects, Effect.REPLAY)
    copy, more = _fold(replace(copy, at=event.at), event, rules)
    copy, rest = _unhold(copy, rules) if copy.held else (copy, ())
    return copy, effects + more + rest


def _unhold(copy: Copy, rules: Rules) -> tuple[Copy, Effects]:
    """What was held is folded as far as the numbers are contiguous, strictly in order."""
    effects: Effects = ()
    while copy.held and copy.held[0].at[1] <= copy.at[1] + 1:
        event = copy.held[0]
        copy = replace(copy, held=copy.held[1:])
        if event.at > copy.at:
            copy, more = _fold(replace(copy, at=event.at), event, rules)
            effects += more
    return copy, effects


def _fold(copy: Copy, event: Heard, rules: Rules) -> tuple[Copy, Effects]:
    if event.op is Op.ADD:
        copy = replace(copy, present=True, added=event.at)
        if event.at <= copy.cut:
            return copy, (Effect.SUPPRESSED,)
        return copy, _redelete(copy, rules)
    if event.op is Op.OTHER:
        return copy, ()
    return replace(copy, present=False), ()


def _listed(copy: Copy, message: Listed, rules: Rules) -> tuple[Copy, Effects]:
    """An inventory replaces what was believed, unless it is older than that; then what was held goes on from it."""
    if message.at < copy.at:
        return copy, (Effect.LATE,)
    copy, _ = _life(copy, message.at[0], rules)
    added = message.at if message.present else copy.added
    held = tuple(e for e in copy.held if e.at > message.at)
    copy = replace(copy, at=message.at, present=message.present, added=added, unlisted=False, held=held)
    copy, effects = _unhold(copy, rules)
    return copy, effects + _redelete(copy, rules)


def _redelete(copy: Copy, rules: Rules) -> Effects:
    zombie = copy.present and copy.gen < copy.min_gen and rules.zombies_are_told
    return (Effect.REDELETE,) if zombie else ()
