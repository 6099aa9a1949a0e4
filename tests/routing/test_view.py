"""What the view makes of facts, without a database."""

import random
import struct
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.index.facts import Facts, pack, pack_states
from routing.forms import best
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


def test_what_is_loaded_is_what_would_have_been_followed():
    """Rows in any order, masks with holes, a parent behind its child: filled, and vouched for only where closed."""
    rng = random.Random(5)
    for make in (DictIndex, best):
        for _ in range(20):
            followed, loaded = view(), View(make(), 1000)
            loaded.keyspace(1, b"d" * 32, 3, 0)
            loaded.source(1, UUID(int=1), "ref", 0, "exact")
            segments = [(n, 1, catalog_keys(*range(10 * n, 10 * n + 10)), n - 1 if n else -2, 9 if n else -1)
                        for n in range(5)]  # fmt: skip
            full = rng.random() < 0.5
            places = [(owner, n, *pack((1 << 10) - 1 if full else rng.getrandbits(10)), None)
                      for owner in (1, 2, 3) for n in range(rng.randrange(6))]  # fmt: skip
            for made in (followed, loaded):
                for owner in (1, 2, 3):
                    made.owner(owner, 1, ("hbm", "dram", "ssd")[owner - 1], False)
            for segment in segments:
                followed.segment(*segment)
            followed.placements(places)
            for segment in rng.sample(segments, 5):
                loaded.segment(*segment)
            for place in places:
                loaded.place(*place)
            assert not loaded.live
            list(loaded.fill())
            assert loaded.live
            assert loaded.residency.closed(1) == followed.residency.closed(1)
            for end in (1, 7, 23, 50):
                assert loaded.index.lookup(1, chain(*range(end))) == followed.index.lookup(1, chain(*range(end)))
            assert loaded.index.sizes()["keys"] == followed.index.sizes()["keys"]


def test_the_cap_in_bytes_evicts_what_was_asked_for_longest_ago_while_following_and_while_loading():
    for make in (DictIndex, best):
        made = View(make(), 10**9, 400_000, live=True)
        made.source(1, UUID(int=1), "ref", 0, "exact")
        made.owner(1, 1, "hbm", False)
        for keyspace in range(1, 60):
            made.keyspace(keyspace, bytes([keyspace]) * 32, 3, 0)
            made.used[keyspace] = 100.0 - keyspace
            made.segment(keyspace, keyspace, catalog_keys(*range(keyspace * 1000, keyspace * 1000 + 200)), -2, -1)
            made.placement(1, keyspace, *pack(2**200 - 1), None)
            made.shed()
            assert made.size() <= 400_000
        assert made.evicted
        assert made.index.lookup(1, chain(*range(1000, 1200))) == [(200, [1])]
        assert sum(map(made.routable, range(1, 60))) > 3
        again = View(make(), 10**9, 100_000, used=dict(made.used))
        again.source(1, UUID(int=1), "ref", 0, "exact")
        again.owner(1, 1, "hbm", False)
        for keyspace in range(1, 60):
            again.keyspace(keyspace, bytes([keyspace]) * 32, 3, 0)
            again.segment(keyspace, keyspace, catalog_keys(*range(keyspace * 1000, keyspace * 1000 + 200)), -2, -1)
            again.place(1, keyspace, *pack(2**200 - 1), None)
        list(again.fill())
        assert again.size() <= 100_000
        assert again.index.lookup(1, chain(*range(1000, 1200))) == [(200, [1])]


def test_what_is_dropped_leaves_nothing_behind_and_takes_nothing_more():
    made = view()
    for segment in range(5):
        made.segment(segment, 1, catalog_keys(*range(10 * segment, 10 * segment + 10)))
        made.placement(1, segment, *pack(2**10 - 1), None)
    held = made.size()
    made.fence(b"d" * 32, 4)
    made.apply(Facts(places=[(1, 2, *pack(0b11), None), (1, 77, *pack(0b1), None)]))
    assert made._place == {1: {}}
    assert made.size() < held - 5 * 170
    assert made.residency.segments == made.residency.below == {}
