"""Where the judge says closed, no owner has a hole on any chain; and it says so where there is none."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.residency import ORPHAN, ROOT, Residency, Segment, stretches


def holes(residency, place):
    """(owner, segment) whose blocks are not all behind blocks of the same owner, by walking up from every block."""
    found = set()
    for owner, mine in place.items():
        for number, mask in mine.items():
            for bit in (i for i in range(mask.bit_length()) if mask >> i & 1):
                at, offset = number, bit
                while True:
                    segment = residency.segments.get(at)
                    if segment is None or not mine.get(at, 0) >> offset & 1:
                        found.add(owner)
                        break
                    if offset:
                        offset -= 1
                    elif segment.up == ROOT:
                        if segment.offset >= 0:
                            found.add(owner)
                        break
                    else:
                        at, offset = segment.up, segment.offset
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_closed_is_what_walking_up_from_every_block_finds(seed):
    rng, residency, place = random.Random(seed), Residency(), {owner: {} for owner in range(3)}
    for number in range(rng.randrange(1, 8)):
        residency.segments[number] = Segment(1, bytearray(8 * 6))
        above = rng.choice([ROOT, ROOT, ORPHAN, *range(number), *range(number)])
        residency.join(number, above, rng.randrange(6) if above >= 0 else rng.choice([-1, -1, 0]))
    for _ in range(40):
        owner, number = rng.randrange(3), rng.choice(list(residency.segments))
        match rng.randrange(8):
            case 0:
                place[owner][number] = rng.getrandbits(6)
            case 1:
                place[owner][number] = 0
            case 2 if residency.segments[number].up == ORPHAN and number:
                residency.join(number, rng.randrange(number), rng.randrange(6))
                for mine in place.values():
                    mine.setdefault(number, 0)
            case _:
                place[owner][number] = (1 << rng.randrange(7)) - 1
        for who, mine in place.items():
            residency.changed(who, number, mine)
            if not mine.get(number, 1):
                del mine[number]
        assert residency.closed(1) == (not holes(residency, place))


def test_what_is_buried_leaves_its_children_open():
    residency, mine = Residency(), {1: 0b11, 2: 0b1}
    residency.segments.update({1: Segment(7, bytearray(16)), 2: Segment(7, bytearray(8))})
    residency.join(1, ROOT, -1)
    residency.join(2, 1, 1)
    for number in (1, 2):
        residency.judge(5, number, mine)
    assert residency.closed(7)
    mine[1] = 0b1
    residency.changed(5, 1, mine)
    assert residency.open[7] == {(5, 2)}
    residency.clear(5, 2)
    assert residency.closed(7)
    assert residency.bury(1).keyspace == 7
    assert residency.bury(1) is None
    residency.judge(5, 2, mine)
    assert not residency.closed(7)
    residency.drop(7)
    assert residency.closed(7)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2**20 - 1)), min_size=1, max_size=5, unique_by=lambda h: h[0])
)
def test_stretches_hold_every_block_once_with_all_its_owners(holders):
    told = {}
    for start, end, owners in stretches(holders):
        assert end > start
        for at in range(start, end):
            assert at not in told
            told[at] = owners
    want = {at: tuple(sorted(o for o, m in holders if m >> at & 1)) for at in range(20)}
    assert told == {at: owners for at, owners in want.items() if owners}
