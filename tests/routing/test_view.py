"""What the view makes of facts, without a database."""

import struct
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.facts import Facts, pack, pack_states
from routing.index import DictIndex
from routing.view import View, _pick


def view(keys_max=1000):
    made = View(DictIndex(), keys_max, live=True)
    made.keyspace(1, b"d" * 32, 3, 0)
    made.source(1, UUID(int=1), "ref", 0, "exact")
    made.owner(1, 1, "hbm", False)
    return made


def catalog_keys(*numbers):
    return b"".join(struct.pack("<QQ", n, 0) for n in numbers)


def chain(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@given(st.integers(0, 2**240 - 1))
def test_a_mask_picks_the_keys_at_its_offsets(mask):
    keys = bytearray(chain(*range(240)))
    assert _pick(keys, mask) == chain(*(i for i in range(240) if mask >> i & 1))


def test_facts_are_absolute_and_may_come_twice():
    made = view()
    facts = Facts(
        born=[(7, 1, -1, -1, 0, None)], keys=[(7, 0, catalog_keys(1, 2, 3))], places=[(1, 7, *pack(0b111), None)]
    )
    made.apply(facts)
    made.apply(facts)
    assert made.index.lookup(1, chain(1, 2, 3)) == [(3, [1])]
    made.apply(Facts(places=[(1, 7, *pack(0b101), None)]))
    assert made.index.lookup(1, chain(1, 2, 3)) == [(1, [1])]
    assert made.keys == 3


def test_what_is_not_committed_is_not_routable_and_referenced_is():
    made = view()
    made.apply(Facts(born=[(7, 1, -1, -1, 0, None)], keys=[(7, 0, catalog_keys(1, 2, 3))]))
    for state, depth in (("evicting", 1), ("transferring", 1), ("quarantined", 1), ("referenced", 3)):
        made.apply(Facts(places=[(1, 7, *pack(0b111), pack_states({state: 0b010}))]))
        assert made.index.lookup(1, chain(1, 2, 3)) == [(depth, [1])]


class Watched(dict):
    """Keys of a space that note who holds each after every change."""

    def __init__(self, space):
        super().__init__(space.keys)
        self.space, self.seen = space, []
        space.keys = self

    def __setitem__(self, key, number):
        super().__setitem__(key, number)
        self.seen.append(self.space.sets[number].bit_count())

    def __delitem__(self, key):
        super().__delitem__(key)
        self.seen.append(0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**12 - 1), st.integers(0, 2**12 - 1), st.booleans())
def test_what_changes_hands_in_one_row_of_the_ledger_is_with_one_owner_at_any_time(goes, back, evicting):
    """Blocks go to another owner while some of that one's come here: each is in one place whenever anybody looks."""
    made = view()
    made.owner(2, 1, "dram", False)
    mine, other = 0b0000_1111_1111_1111, 0b1111_0000_0000_0000
    made.apply(Facts(born=[(7, 1, -1, -1, 0, None)], keys=[(7, 0, catalog_keys(*range(16)))],
                     places=[(1, 7, *pack(mine), None), (2, 7, *pack(other), None)]))  # fmt: skip
    watched = Watched(made.index.spaces[1])
    goes, back = goes & mine, (back << 8) & other
    left = pack_states({"evicting": goes}) if evicting and goes else None
    here = (1, 7, *pack((mine if left else mine & ~goes) | back), left)
    there = (2, 7, *pack(other & ~back | goes), None)
    made.apply(Facts(places=[here, there]))
    assert set(watched.seen) <= {1}
    made.apply(Facts(places=[there, here]))
    holders = {i: [o for _, owners in made.index.lookup(1, chain(i)) for o in owners] for i in range(16)}
    now = mine & ~goes | back
    assert holders == {i: [1] if now >> i & 1 else [2] for i in range(16)}


def test_a_retired_owner_is_gone_at_once_and_drained_in_steps():
    made = view()
    for segment in range(50):
        made.segment(segment, 1, catalog_keys(*range(100 * segment, 100 * segment + 10)))
        made.placement(1, segment, *pack(2**10 - 1), None)
    made.apply(Facts(owners=[(1, 1, "hbm", True), (2, 1, "hbm", False)]))
    assert made.index.lookup(1, chain(0, 1)) == []
    assert made.index.sizes()["keys"] == 0
    made.apply(Facts(places=[(2, 0, *pack(0b11), None)]))
    assert made.index.lookup(1, chain(0, 1, 2)) == [(2, [2])]


def test_dead_segments_leave_also_what_a_retired_owner_held():
    made = view()
    made.segment(1, 1, catalog_keys(1, 2))
    made.placement(1, 1, *pack(0b11), None)
    made.live = False  # nothing is drained meanwhile
    made.owner(1, 1, "hbm", True)
    made.apply(Facts(dead=[1]))
    assert made.index.sizes()["keys"] == 0
    assert made.keys == 0


def test_the_owners_of_a_lost_source_are_hidden_until_it_is_back():
    made = view()
    made.segment(1, 1, catalog_keys(1))
    made.placement(1, 1, 1, None, None)
    made.source(1, UUID(int=1), "ref", 0, "lost")
    assert made.index.lookup(1, chain(1)) == []
    made.owner(2, 1, "dram", False)
    made.placement(2, 1, 1, None, None)
    assert made.index.lookup(1, chain(1)) == []
    made.source(1, UUID(int=1), "ref", 0, "recovering")
    assert made.index.lookup(1, chain(1)) == [(1, [1, 2])]


def test_a_fence_drops_what_is_below_it_and_keeps_it_out():
    made = view()
    made.segment(1, 1, catalog_keys(1))
    made.placement(1, 1, 1, None, None)
    made.fence(b"d" * 32, 3)
    assert made.routable(1)
    made.fence(b"d" * 32, 4)
    made.fence(b"d" * 32, 2)
    assert not made.routable(1)
    made.apply(Facts(born=[(9, 1, -1, -1, 0, None)], keys=[(9, 0, catalog_keys(5))], places=[(1, 9, 1, None, None)]))
    assert made.index.sizes()["keys"] == made.keys == 0
