"""The split of a prompt is the cheapest there is, and it is one: contiguous, loaded first, computed after."""

from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.ranges import NOTHING, Source, Split, split

BLOCK = 16


def source(start: int, end: int, rate: float, wait: float = 0.0, *, remote: bool = False, at: int = 0) -> Source:
    return Source(start, end, rate, wait, at, "dram", remote)


def total(found: Split, linear: float, square: float) -> float:
    tokens = found.blocks * BLOCK
    return found.load_ms - tokens * (linear + square * tokens)


def every(sources: list[Source], usable: int, linear: float, square: float) -> float:
    """The least total over every way to load, range by range."""
    marks = sorted({0, *(min(m, usable) for s in sources for m in (s.start, s.end))})
    spans = list(pairwise(marks))
    least = 0.0
    for count in range(1, len(spans) + 1):
        for way in product(range(len(sources)), repeat=count):
            ms, before = 0.0, -1
            for (low, high), i in zip(spans, way, strict=False):
                s = sources[i]
                if s.start > low or s.end < high:
                    break
                ms += (s.latency_ms if i != before else 0.0) + (high - low) * s.ms_per_block
                before = i
            else:
                tokens = spans[count - 1][1] * BLOCK
                least = min(least, ms - tokens * (linear + square * tokens))
    return least


sources_of = st.lists(
    st.builds(
        lambda a, n, rate, wait, remote: source(a, a + n, rate, wait, remote=remote),
        st.integers(0, 6), st.integers(1, 8), st.floats(0, 2), st.floats(0, 5), st.booleans(),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=300)
@given(sources_of, st.integers(0, 14), st.floats(0, 0.1), st.floats(0, 0.001))
def test_no_way_is_cheaper(sources: list[Source], usable: int, linear: float, square: float) -> None:
    sources[0] = sources[0]._replace(remote=True)  # the walk over ranges, not the short one for a worker's own
    found = split(sources, usable, block_tokens=BLOCK, linear_ms=linear, square_ms=square)
    assert total(found, linear, square) <= every(sources, usable, linear, square) + 1e-9
    assert found.blocks <= usable
    at = 0
    for low, high, i in found.parts:
        assert low == at < high
        assert sources[i].start <= low
        assert high <= sources[i].end
        at = high
    assert at == found.blocks


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 2), st.floats(0, 5)), min_size=1, max_size=4),
       st.integers(0, 30), st.floats(0, 0.1), st.floats(0, 0.001))  # fmt: skip
def test_own_runs_are_split_alike(
    runs: list[tuple[int, float, float]], usable: int, linear: float, square: float
) -> None:
    own, at = [], 0
    for count, rate, wait in runs:
        own.append(source(at, at + count, rate, wait))
        at += count
    short = split(own, usable, block_tokens=BLOCK, linear_ms=linear, square_ms=square)
    walked = split(
        [s._replace(remote=True) for s in own], usable, block_tokens=BLOCK, linear_ms=linear, square_ms=square
    )
    assert abs(total(short, linear, square) - total(walked, linear, square)) < 1e-9


def test_three_parts() -> None:
    # its own first blocks, then another's over the wire, and the last ones are sooner computed than fetched
    own, near, far = source(0, 100, 0.0), source(0, 400, 0.1, 1.0, remote=True, at=1), source(0, 500, 9.0, remote=True)
    found = split([own, near, far], 500, block_tokens=BLOCK, linear_ms=0.01, square_ms=0.0)
    assert found == Split(400, 31.0, ((0, 100, 0), (100, 400, 1)))


def test_what_is_sooner_computed_is_not_loaded() -> None:
    assert split([source(0, 10, 1.0)], 10, block_tokens=BLOCK, linear_ms=0.01, square_ms=0.0) == NOTHING
    assert split([source(0, 10, 0.1, 100.0)], 10, block_tokens=BLOCK, linear_ms=0.01, square_ms=0.0) == NOTHING
    assert split([source(2, 10, 0.0)], 10, block_tokens=BLOCK, linear_ms=0.01, square_ms=0.0) == NOTHING
    assert split([], 10, block_tokens=BLOCK, linear_ms=1.0, square_ms=0.0) == NOTHING
    assert split([source(0, 10, 0.0)], 0, block_tokens=BLOCK, linear_ms=1.0, square_ms=0.0) == NOTHING


def test_a_hole_is_filled_from_elsewhere() -> None:
    own = [source(0, 10, 0.0), source(20, 30, 0.0)]
    found = split([*own, source(0, 20, 0.01, 0.5, remote=True)], 30, block_tokens=BLOCK, linear_ms=1.0, square_ms=0.0)
    assert found.parts == ((0, 10, 0), (10, 20, 2), (20, 30, 1))
    assert split(own, 30, block_tokens=BLOCK, linear_ms=1.0, square_ms=0.0).blocks == 10
