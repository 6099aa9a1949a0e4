import secrets

from kvcore.blocks import Tier
from kvcore.events import Add, Adds, Drop, Move, decode_item
from kvcore.keys import ROOT
from nodeagent.outbox import Outbox
from nodeagent.runs import Run, Space
from nodeagent.telling import Teller
from nodeagent.tiers.base import RunMeta

SPACE = Space(bytes(32), 1, 0, block_tokens=16, block_bytes=1024)


def run(count, *, parent=None, depth=0, space=SPACE):
    keys = secrets.token_bytes(32 * count)
    return Run(space, RunMeta(space.ns, space.gen, 0, depth, parent, keys, 1, 16, 1024), now=0.0)


def boxes():
    near, far = Outbox("near", boot="b"), Outbox("far", boot="b")
    return {Tier.HBM: near, Tier.DRAM: near, Tier.REMOTE: far}, near, far


def told(box):
    box.lanes[0].cut(0.0)
    return [decode_item(x) for f in box.lanes[0].frames for x in f.items]


def test_runs_of_one_chain_are_one_item():
    places, near, _ = boxes()
    teller = Teller(places)
    head = run(32)
    tail = run(32, parent=head.last_key, depth=32)
    teller.add(head, Tier.HBM)
    teller.add(tail, Tier.HBM)
    teller.flush()
    (item,) = told(near)
    assert isinstance(item, Add)
    assert (item.keys, item.parent) == (head.keys + tail.keys, None)


def test_short_chains_are_packed_with_their_parents():
    places, near, _ = boxes()
    teller = Teller(places)
    parent = secrets.token_bytes(32)
    first, second, long = run(2, parent=parent, depth=4), run(1), run(9)
    for r in (first, second, long):
        teller.add(r, Tier.HBM)
    teller.flush()
    packed, alone = told(near)
    assert isinstance(packed, Adds)
    assert packed.keys == first.keys + second.keys
    assert packed.parents == parent + first.keys[:32] + ROOT
    assert isinstance(alone, Add)


def test_moves_and_drops_of_one_kind_are_one_item_and_order_is_kept():
    places, near, _ = boxes()
    teller = Teller(places)
    a, b, c = run(1), run(1), run(1)
    teller.move(a, Tier.HBM, Tier.DRAM)
    teller.move(b, Tier.HBM, Tier.DRAM)
    teller.drop(a, Tier.DRAM, "ttl")
    teller.move(c, Tier.HBM, Tier.DRAM)
    teller.drop(c, Tier.DRAM, "value")
    teller.flush()
    kinds = [(type(i), i.keys) for i in told(near)]
    assert kinds == [(Move, a.keys + b.keys), (Drop, a.keys), (Move, c.keys), (Drop, c.keys)]


def test_between_sources_a_move_is_a_copy_and_a_loss():
    places, near, far = boxes()
    teller = Teller(places)
    a = run(1)
    teller.move(a, Tier.DRAM, Tier.REMOTE)
    teller.flush()
    assert [type(i) for i in told(near)] == [Drop]
    (item,) = told(far)
    assert isinstance(item, Add)
    assert item.tier == "remote"


def test_a_reset_takes_back_what_was_not_told_yet():
    places, near, far = boxes()
    teller = Teller(places)
    a = run(1)
    teller.add(a, Tier.REMOTE)
    teller.drop(a, Tier.HBM, "ttl")
    teller.forget(Tier.REMOTE)
    teller.flush()
    assert told(far) == []
    assert len(told(near)) == 1


def test_other_spaces_are_other_items():
    places, near, _ = boxes()
    teller = Teller(places)
    other = Space(bytes(range(32)), 1, 0, block_tokens=16, block_bytes=1024)
    a, b = run(1), run(1, space=other)
    teller.add(a, Tier.HBM)
    teller.add(b, Tier.HBM)
    teller.flush()
    assert [i.ns for i in told(near)] == [SPACE.ns, other.ns]
