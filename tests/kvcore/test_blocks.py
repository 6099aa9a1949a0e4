"""The transition table, pair by pair."""

import itertools

import pytest

from kvcore.blocks import TRANSITIONS, VOLATILE, BlockState, Guard, IllegalTransition, Tier, transition

S = BlockState
PAIRS = list(itertools.permutations(S, 2))
WAYS = [
    dict(zip(("force", "told", "purging"), flags, strict=True)) for flags in itertools.product((False, True), repeat=3)
]


def test_thirteen_of_thirty_and_two_from_absent() -> None:
    assert len(PAIRS) == 30
    assert sum(p in TRANSITIONS for p in PAIRS) == 13
    assert {after for before, after in TRANSITIONS if before is None} == {S.ALLOCATED, S.COMMITTED}
    assert len(TRANSITIONS) == 15


@pytest.mark.parametrize(("before", "after"), [*PAIRS, *((None, s) for s in S)])
def test_each_pair(before: BlockState | None, after: BlockState) -> None:
    for way in WAYS:
        guard = TRANSITIONS.get((before, after))
        met = {Guard.ALWAYS: True, Guard.FORCE: way["force"], Guard.TOLD: way["told"],
               Guard.NOT_PURGED: not way["purging"]}  # fmt: skip
        legal = guard is not None and met[guard]
        if legal:
            assert transition(before, after, **way) is after
        else:
            with pytest.raises(IllegalTransition) as e:
                transition(before, after, **way)
            assert (e.value.before, e.value.after) == (before, after)


@pytest.mark.parametrize("state", S)
def test_repeating_is_no_error(state: BlockState) -> None:
    assert transition(state, state) is state


def test_tiers() -> None:
    assert [t.value for t in Tier] == ["hbm", "pinned", "dram", "ssd", "remote"]
    assert {t.value for t in VOLATILE} == {"hbm", "pinned", "dram"}
