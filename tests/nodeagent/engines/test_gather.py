"""What is held back, and that it never changes what the items mean."""

from hypothesis import given
from hypothesis import strategies as st

from kvcore.events import Add, Adds, Clear, Drop, Gap, Item
from kvcore.fold import Place, UnknownKey, apply, fold
from nodeagent.engines.gather import Gatherer

NS = b"n" * 32


def k(*numbers: int) -> bytes:
    return b"".join(n.to_bytes(32, "big") for n in numbers)


def add(*numbers: int, parent: int | None = None, tier: str = "hbm") -> Add:
    return Add(
        ns=NS, gen=1, keys=k(*numbers), parent=None if parent is None else k(parent), tier=tier, tokens=16, bytes=1
    )


def drop(*numbers: int) -> Drop:
    return Drop(ns=NS, gen=1, keys=k(*numbers), tier="hbm", reason="engine")


def test_prompts_and_long_pieces_go_at_once() -> None:
    g = Gatherer()
    assert g.put([add(1), add(2, 3, 4, 5, 6, 7, parent=1)], 0.0) == [add(1), add(2, 3, 4, 5, 6, 7, parent=1)]
    assert g.held == 0


def test_a_chain_is_told_when_six_have_come() -> None:
    g = Gatherer()
    for n in range(2, 7):
        assert g.put([add(n, parent=n - 1)], 0.0) == []
    assert g.held == 5
    assert g.put([add(7, parent=6)], 0.0) == [add(2, 3, 4, 5, 6, 7, parent=1)]


def test_many_chains_are_packed_when_their_time_is_over() -> None:
    g = Gatherer()
    g.put([add(2, parent=1), add(12, parent=11), add(3, parent=2)], 0.0)
    g.put([add(22, parent=21, tier="dram")], 1.0)
    assert g.due(1.9) == []
    (packed,) = g.due(2.0)
    assert packed == Adds(
        ns=NS, gen=1, keys=k(2, 3, 12), parents=k(1, 2, 11), tier="hbm", tokens=16, bytes=1
    )  # fmt: skip
    assert g.due(3.0) == [add(22, parent=21, tier="dram")]


def test_what_depends_on_held_blocks_comes_behind_them() -> None:
    g = Gatherer()
    g.put([add(2, parent=1), add(3, parent=2)], 0.0)
    assert g.put([drop(2)], 0.0) == [add(2, 3, parent=1), drop(2)]
    g.put([add(4, parent=1)], 0.0)
    assert g.put([Gap(since=0.0, reason="ring")], 0.0) == [add(4, parent=1), Gap(since=0.0, reason="ring")]
    g.put([add(5, parent=1), add(6, parent=5)], 0.0)
    branch = add(10, 11, 12, 13, 14, 15, parent=5)
    assert g.put([branch], 0.0) == [add(5, 6, parent=1), branch]
    g.put([add(7, parent=1)], 0.0)
    g.forget()
    assert (g.flush(), g.held) == ([], 0)


numbers = st.integers(2, 12)
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(lambda n: add(n, parent=n - 1), numbers),
    st.builds(lambda n, t: add(n, parent=1, tier=t), numbers, st.sampled_from(["hbm", "dram"])),
    st.builds(drop, numbers),
    st.just(Clear(tiers=("hbm",))),
)


@given(st.lists(items, max_size=40), st.integers(1, 7))
def test_the_same_is_held_afterwards(history: list[Item], every: int) -> None:
    g, told, plain = Gatherer(chain_blocks=3), dict[Place, str](), dict[Place, str]()
    out: list[Item] = []
    for n, item in enumerate(history):
        changes, notes = fold(plain, item)
        if any(isinstance(x, UnknownKey) for x in notes):
            continue  # an engine drops only what it holds
        apply(plain, changes)
        out += g.put([item], float(n))
        if n % every == 0:
            out += g.due(float(n))
    for item in out + g.flush():
        changes, notes = fold(told, item)
        assert notes == []
        apply(told, changes)
    assert told == plain
