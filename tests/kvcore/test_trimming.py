"""What leaves a tier that is over its quota: the coldest, never what is pinned or held, and no more than is over."""

from collections.abc import Collection, Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcore.trimming import CLASSES, Cut, Lot, rank, trim

BLOCK = 16


def lot(ns: str, blocks: int = 4, warm_at: float = 0.0, data_class: str = "internal") -> Lot:
    return Lot(
        ns=ns, data_class=data_class, blocks=blocks, size_bytes=blocks * BLOCK, block_bytes=BLOCK, warm_at=warm_at
    )


def keys(one: Lot, most: int) -> list[bytes]:
    return [f"{one.ns}{n}".encode() for n in reversed(range(one.blocks))][:most]


def cut(
    excess: int, *lots: Lot, spared: Collection[str] = (), pinned: Mapping[str, Collection[bytes]] | None = None
) -> list[Cut]:
    return trim(excess, lots, spared=spared, pinned=pinned or {}, leaves=keys)


def named(cuts: list[Cut]) -> list[tuple[str, int | None]]:
    return [(one.lot.ns, None if one.keys is None else len(one.keys)) for one in cuts]


def test_the_coldest_goes_first_and_of_the_last_only_the_ends_that_are_over() -> None:
    cuts = cut(6 * BLOCK, lot("warm", warm_at=900), lot("cold", warm_at=100), lot("hot", warm_at=9000))
    assert named(cuts) == [("cold", None), ("warm", 2)]
    assert cuts[1].keys == (b"warm3", b"warm2")
    assert named(cut(1, lot("a"))) == [("a", 1)]
    assert cut(0, lot("a")) == []


def test_among_what_is_as_cold_the_class_that_asks_for_least_goes_first() -> None:
    lots = [lot(name, warm_at=10.0 + n, data_class=name) for n, name in enumerate(reversed(CLASSES))]
    assert [one.lot.ns for one in cut(16 * BLOCK, *lots)] == list(CLASSES)
    assert rank("internal") < rank("their-own") < rank("confidential")


def test_what_is_held_or_pinned_stays() -> None:
    assert named(cut(99 * BLOCK, lot("held"), lot("free"), spared={"held"})) == [("free", None)]
    found = cut(99 * BLOCK, lot("a"), pinned={"a": {b"a3", b"a0"}})
    assert [one.keys for one in found] == [(b"a2", b"a1")]
    assert cut(99 * BLOCK, lot("a", blocks=1), pinned={"a": {b"a0"}}) == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])  # the first draw imports much
@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(0, 1e6), st.sampled_from(CLASSES)), max_size=12),
    st.integers(0, 5000),
)
def test_as_much_goes_as_is_over_and_less_than_a_block_more(what: list[tuple[int, float, str]], excess: int) -> None:
    lots = [lot(f"n{i:02}", blocks, warm, cls) for i, (blocks, warm, cls) in enumerate(what)]
    gone = sum(one.size_bytes for one in cut(excess, *lots))
    there = sum(one.size_bytes for one in lots)
    assert min(excess, there) <= gone < excess + BLOCK or gone == excess == 0
