"""The writer's memory without a database: places, families, masks, notes, and the reference fold beside it."""

import random
import uuid
from typing import Any

import numpy as np
import pytest

from catalog.index import facts, keymap
from catalog.index.memory import Memory
from catalog.index.placements import may_become
from catalog.index.steps import NO_FAMILY, Touched, Work, replacement
from kvcore.blocks import BlockState
from kvcore.events import STATES
from kvcore.fold import _legal
from tests.catalog.stored import NODE, TENANT, chain


class Fold:
    """A memory, folded step by step."""

    def __init__(self) -> None:
        self.m = Memory()
        self.ks = self.m.keyspace(bytes(32), 1, 0, Touched(), tenant_id=TENANT).id
        self.other = self.m.keyspace(bytes(32), 1, 1, Touched(), tenant_id=TENANT).id

    def __call__(self, kind: str, keys: list[bytes] | None = None, tier: str = "hbm", **more: Any) -> Touched:
        named = {"source": 1, "tier": tier, "keyspace": self.ks, "keys": b"".join(keys or []), **more}
        return self.do(Work(kind, **named))

    def do(self, *work: Work) -> Touched:
        self.m.unprepared = 0  # no store takes the batches over here
        return self.m.apply(list(work))

    def places(self, keys: list[bytes]) -> list[tuple[int, int]]:
        return [tuple(p) for p in self.m.known(self.ks, b"".join(keys)).tolist()]

    def held(self, tier: str = "hbm", source: int = 1) -> int:
        o = self.m.owner_of.get((source, tier))
        return sum(m.bit_count() for m in self.m.place[o].values()) if o else 0


@pytest.fixture
def fold() -> Fold:
    return Fold()


def test_a_chain_fills_segments_of_240_and_grows_at_its_end(fold: Fold) -> None:
    keys = chain(500)
    fold("add", keys[:100])
    fold("add", keys[100:], parent=keys[99])
    assert fold.places(keys) == [(i // keymap.CAP, i % keymap.CAP) for i in range(500)]
    assert fold.m.seg_up[:3].tolist() == [keymap.ROOT, 0, 1]
    assert fold.m.seg_fam[:3].tolist() == [0, 1, 1]  # a root, its child, and what is below the child


def test_a_branch_opens_a_segment_below_its_parent(fold: Fold) -> None:
    trunk, branch = chain(50), chain(10, 1)
    fold("add", trunk)
    fold("add", branch, parent=trunk[19])
    assert fold.places(branch) == [(1, i) for i in range(10)]
    assert (fold.m.seg_up[1], fold.m.seg_up_off[1], fold.m.seg_fam[1]) == (0, 19, 1)


def test_the_same_keys_stand_apart_in_two_keyspaces(fold: Fold) -> None:
    keys = chain(10)
    fold("add", keys)
    fold("add", keys, keyspace=fold.other)
    assert fold.m.next_seg == 2
    assert {ks: h[0] for ks, h in fold.m.holding[1].items()} == {fold.ks: 10, fold.other: 10}


def test_an_orphan_is_adopted_when_its_parent_comes(fold: Fold) -> None:
    keys = chain(20)
    fold("add", keys[10:], parent=keys[9])
    assert fold.m.orphans == {0}
    assert fold.m.adopt() == []
    fold("add", keys[:10])
    assert fold.m.adopt() == [(0, 1, 9)]
    assert not fold.m.orphans


def test_a_ring_of_parents_is_never_closed(fold: Fold) -> None:
    a, b = chain(2)
    fold("add", [a], parent=b)
    fold("add", [b], parent=a)
    assert fold.m.adopt() == []
    assert fold.held() == 2


def test_a_buried_segment_is_forgotten_and_its_children_wait(fold: Fold) -> None:
    trunk, branch = chain(30), chain(5, 1)
    fold("add", trunk)
    fold("add", branch, parent=trunk[-10])
    fold("drop", trunk, reason="watermark")
    assert fold.m.unused == {0}
    fold.m.bury([0])
    assert fold.places(trunk[:1]) == [(-1, -1)]
    assert fold.m.orphans == {1}
    fold("add", trunk)
    assert fold.m.adopt() == [(1, 2, 20)]


def test_the_map_keeps_its_places_when_it_grows(fold: Fold) -> None:
    chains = [chain(300, seed) for seed in range(40)]
    for keys in chains:
        fold("add", keys)
    assert len(fold.m.tab) > 12_000 / 0.75
    assert all(s >= 0 for keys in chains for s, _ in fold.places(keys))
    assert fold.m.blocks() == 12_000


def test_adds_find_their_own_parents(fold: Fold) -> None:
    one, two = chain(10), chain(10, 1)
    fold("add", one)
    fold("add", two)
    new = chain(3, 2)
    t = fold("adds", new, parents=one[-1] + two[-1] + bytes(32))
    assert fold.places(new) == [(0, 10), (1, 10), (2, 0)]
    assert sum(t.added.values()) == 3


def test_a_mismatched_parent_is_counted_and_the_first_report_stands(fold: Fold) -> None:
    keys, other = chain(10), chain(5, 1)
    fold("add", keys)
    fold("add", other)
    t = fold("add", keys[4:6], parent=other[0], source=2, tag=7)
    assert t.mismatched == {(2, 7): 1}
    assert fold.places(keys[4:6]) == [(0, 4), (0, 5)]
    assert not fold("add", keys[4:], parent=keys[3]).mismatched
    assert not fold("add", keys[:2]).mismatched
    assert fold("add", keys[1:2], parent=None).mismatched == {(1, 0): 1}


def test_what_the_owner_did_not_hold_is_noted(fold: Fold) -> None:
    keys = chain(10)
    fold("add", keys[:5])
    assert fold("drop", keys[3:], reason="engine", tag=3).unheld == {(1, 3): 5}
    assert fold("state", keys[:5], state="evicting", tag=4).unheld == {(1, 4): 2}
    t = fold("move", keys[2:4], to="ssd")
    assert t.unheld == {(1, 0): 1}
    assert fold.held("ssd") == 2  # what is told to be there is there


def test_a_moved_key_that_nobody_announced_gets_a_place(fold: Fold) -> None:
    t = fold("move", chain(3), to="ssd")
    assert (t.unheld[1, 0], sum(t.added.values()), fold.m.next_seg) == (3, 3, 3)
    assert fold.m.seg_up_off[:3].tolist() == [keymap.LOOSE] * 3  # no prompt begins there, as far as anybody said
    fold("add", chain(2, seed=9))
    assert fold.m.seg_up_off[3] == -1


def test_repeating_changes_nothing(fold: Fold) -> None:
    keys = chain(10)
    fold("add", keys)
    t = fold("add", keys)
    assert not t.placed
    assert not t.added
    assert fold("add", keys[:3] + keys[:3], tier="ssd").added[1, "ssd", fold.ks, 0] == 3


def test_holdings_are_sums_of_keys(fold: Fold) -> None:
    keys = chain(300)
    fold("add", keys)
    fold("drop", keys[5:7] + keys[250:251], reason="ttl")
    left = keys[:5] + keys[7:250] + keys[251:]
    lo = sum(int.from_bytes(k[:8], "little") for k in left) % 2**64
    hi = sum(int.from_bytes(k[8:16], "little") for k in left) % 2**64
    assert fold.m.digests(1) == {(fold.ks, "hbm"): (297, lo, hi)}


def test_retiring_is_one_entry_and_draining_is_bounded(fold: Fold) -> None:
    for seed in range(20):
        fold("add", chain(10, seed))
    t = fold("reset")
    assert t.dropped == {(1, "hbm", "reset", fold.ks, NO_FAMILY): 200}
    assert fold.held() == 0
    gone, over = fold.m.drain(15)
    assert (len(gone), over, sum(fold.m.resident.values())) == (15, [], 50)
    gone, over = fold.m.drain(15)
    assert (len(gone), over, fold.m.resident) == (5, [1], {})
    assert fold.m.unused == set(range(20))


def test_reset_spares_what_outlives_the_process(fold: Fold) -> None:
    keys = chain(4)
    fold("add", keys)
    fold("add", keys, tier="ssd")
    fold("reset")
    assert (fold.held("hbm"), fold.held("ssd")) == (0, 4)
    fold("lose")
    assert fold.held("ssd") == 0


def test_clear_of_a_keyspace_leaves_the_others(fold: Fold) -> None:
    keys = chain(4)
    fold("add", keys)
    fold("add", keys, keyspace=fold.other)
    t = fold("clear", keyspaces=(fold.ks,))
    assert t.dropped == {(1, "hbm", "clear", fold.ks, 0): 4}
    assert list(fold.m.holding[1]) == [fold.other]


def test_an_inventory_replaces_by_difference(fold: Fold) -> None:
    keys, new = chain(10), chain(3, 1)
    fold("add", keys)
    fold("add", keys[:2], tier="ssd")
    fold("state", keys[:4], state="referenced")
    listed = [Work("add", 1, "hbm", fold.ks, b"".join(keys[2:8])), Work("add", 1, "hbm", fold.ks, b"".join(new))]
    t = fold.do(*replacement(1, listed))
    assert t.dropped == {(1, "hbm", "inventory", fold.ks, 0): 4, (1, "ssd", "inventory", fold.ks, 0): 2}
    assert t.added == {(1, "hbm", fold.ks, 1): 3}
    assert fold.m.states == {(1, 0): {"referenced": 0b1100}}
    assert fold.m.digests(1).keys() == {(fold.ks, "hbm")}
    assert not fold.do(*replacement(1, listed)).placed


def test_states_follow_the_table(fold: Fold) -> None:
    names = [*STATES, BlockState.COMMITTED.value]
    for before in names:
        for after in names:
            assert may_become(before, after) == (before == after or _legal(before, after)), (before, after)
    keys = chain(4)
    fold("add", keys)
    fold("state", keys[:2], state="evicting")
    t = fold("state", keys[:3], state="quarantined", tag=9)
    assert t.illegal == {(1, 9): 2}
    assert fold.m.states == {(1, 0): {"evicting": 0b11, "quarantined": 0b100}}
    fold("add", keys)  # ends what passes, and neither unmarks nor unpins
    assert fold.m.states == {(1, 0): {"quarantined": 0b100}}
    fold("drop", keys[2:3], reason="ttl")
    assert not fold.m.states


def test_a_batch_must_be_taken_over_before_the_next(fold: Fold) -> None:
    fold("add", chain(1))
    with pytest.raises(RuntimeError):
        fold.m.apply([Work("add", 1, "hbm", fold.ks, chain(1)[0])])


def test_sources_and_keyspaces_are_made_once(fold: Fold) -> None:
    t = Touched()
    row = fold.m.source(NODE, "engine", 0, t, 1.0)
    assert fold.m.source(NODE, "engine", 0, t, 2.0) is row
    assert (t.sources, row.state, row.since) == ({1}, "recovering", 1.0)
    open_ = fold.m.keyspace(b"x" * 32, 1, 0, t, tenant_id=TENANT, claimed=False)
    t = Touched()
    tenant, namespace = uuid.uuid4(), uuid.uuid4()
    claim: dict[str, Any] = {"tenant_id": tenant, "namespace_id": namespace, "block_tokens": 16, "block_bytes": 64}
    assert fold.m.keyspace(b"x" * 32, 1, 0, t, **claim) is open_
    assert (t.claimed, open_.tenant_id, open_.claimed, open_.block_bytes) == ({open_.id}, tenant, True, 64)
    assert bool(Touched()) is False


def test_masks_go_through_their_packed_forms() -> None:
    rnd = random.Random(4)
    for mask in (0, 1, 0b111, 0b101, (1 << 240) - 1, *(rnd.getrandbits(240) for _ in range(50))):
        assert facts.unpack(*facts.pack(mask)) == mask
    assert facts.pack(0b1111) == (4, None)
    states = {"evicting": 0b1010, "quarantined": 1 << 239}
    assert facts.unpack_states(facts.pack_states(states)) == states
    assert facts.pack_states({}) is None
    told = facts.Facts(keys=[(1, 2, b"k" * 16)], dead=[3])
    assert facts.decode(facts.encode(told)) == told


def test_poor_keys_do_not_make_long_searches(fold: Fold) -> None:
    keys = [bytes(7) + bytes([i % 256]) + (i // 256).to_bytes(8, "little") + bytes(16) for i in range(2000)]
    fold("add", keys)
    assert all(s >= 0 for s, _ in fold.places(keys))
    assert np.count_nonzero(fold.m.tab[:, 0]) == 2000
