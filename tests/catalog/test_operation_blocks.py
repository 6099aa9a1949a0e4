"""Which blocks a prefix and an age mean: of segments that are cut anywhere, of all who hold some, set-wise."""

import time

import pytest

from catalog.operation_blocks import blocks_meant
from kvcore.plans import Selector
from kvcore.targets import KEY, keys_hash, packed
from tests.catalog.ingest.rig import BYTES, Rig, Sim, add, plant_namespace, plant_node, superuser
from tests.catalog.ingest.rig import keys as key

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rig(postgres, transactional_db):
    rig = Rig(now=time.time() - 1000)
    rig.cx = superuser(postgres)
    yield rig
    rig.close()
    rig.cx.close()


def meant(ns, *parts, gen=2):
    found = blocks_meant([(ns, gen)], parts, sample=5)
    keys = {bytes(one.keys[at : at + KEY]) for one in found.meant for at in range(0, len(one.keys), KEY)}
    return found, keys


def short(*numbers):
    return {key(n)[:KEY] for n in numbers}


def test_a_prefix_is_its_blocks_and_all_that_continues_them(rig):
    node, other = (plant_node(rig.cx, name) for name in "ab")
    ns, foreign = plant_namespace(rig.cx, "x"), plant_namespace(rig.cx, "y")
    one, two = Sim(node), Sim(other)
    rig.send(node, one.frame(add(ns, 1, 2, 3, 4), add(foreign, 1, 2, 3, 4)))
    rig.send(node, one.frame(add(ns, 5, 6, parent=2), add(ns, 7, 8, parent=6, tier="dram"), add(ns, 20, 21)))
    rig.send(other, two.frame(add(ns, 7, 8, parent=6)))
    found, keys = meant(ns, Selector(prefix=(key(2).hex(),)))
    assert keys == short(2, 3, 4, 5, 6, 7, 8)
    assert all(one.below for one in found.meant)
    places = {tier: held for (_, tier), held in sorted(found.held[ns].items()) if tier == "dram"}
    assert places["dram"].blocks == 2
    hbm = sorted(held.blocks for (_, tier), held in found.held[ns].items() if tier == "hbm")
    assert hbm == [2, 5]
    assert {held.bytes for (_, tier), held in found.held[ns].items() if tier == "dram"} == {2 * BYTES}
    assert foreign not in found.held
    assert set(found.sample) <= {k.hex() for k in keys}
    assert len(found.sample) == 5
    assert meant(ns, Selector(prefix=(key(6).hex(), key(21).hex())))[1] == short(6, 7, 8, 21)
    assert meant(ns, Selector(prefix=(key(99).hex(),)))[0].meant == []
    assert meant(ns, Selector(prefix=(key(2).hex(),)), gen=1)[0].meant == []
    one_part = found.meant[0].parts()
    assert one_part == [(keys_hash(packed(keys)), packed(keys))]


def test_parts_narrow_each_other(rig):
    node = plant_node(rig.cx, "a")
    ns, sim = plant_namespace(rig.cx, "x"), Sim(node)
    rig.send(node, sim.frame(add(ns, 1, 2, 3), add(ns, 4, parent=2)))
    both = Selector(prefix=(key(1).hex(),)), Selector(prefix=(key(3).hex(), key(4).hex()))
    assert meant(ns, *both)[1] == short(3, 4)
    assert meant(ns, Selector(prefix=(key(3).hex(),)), Selector(prefix=(key(4).hex(),)))[1] == set()


def test_a_block_is_old_where_any_copy_of_it_is(rig):
    node = plant_node(rig.cx, "a")
    ns, sim = plant_namespace(rig.cx, "x"), Sim(node)
    rig.send(node, sim.frame(add(ns, 1, 2), add(ns, 3, parent=1)))
    middle = rig.now + 50
    rig.send(node, sim.frame(add(ns, 10, 11), add(ns, 12, parent=1), add(ns, 1, tier="dram")), step=100)
    found, keys = meant(ns, Selector(older_than=middle))
    assert keys == short(1, 2, 3)
    assert not any(one.below for one in found.meant), "what continues something old may be young"
    assert sum(held.blocks for held in found.held[ns].values()) == 4, "with its copies"
    assert meant(ns, Selector(older_than=middle - 100))[1] == set()
    assert meant(ns, Selector(prefix=(key(2).hex(),), older_than=middle))[1] == short(2)
    assert meant(ns, Selector(prefix=(key(1).hex(),)), Selector(older_than=middle + 1000))[1] == short(1, 2, 3, 12)


def test_a_million_blocks_are_selected_in_a_moment(rig):
    """Planted as they lie; what is measured is this process, as others share the machine."""
    node = plant_node(rig.cx, "a")
    ns, sim = plant_namespace(rig.cx, "x"), Sim(node)
    rig.send(node, sim.frame(add(ns, 1)))
    ((keyspace, owner, tenant),) = rig.cx.execute(
        "SELECT k.id, o.id, k.tenant_id FROM catalog_keyspace k, catalog_owner o WHERE k.digest = %s", (ns,)
    ).fetchall()
    rig.cx.execute(
        "INSERT INTO catalog_segment (id, head, up, family, keyspace, up_off, tenant_id, parent, keys)"
        " SELECT 1000 + n, n, CASE WHEN n %% 10 > 0 THEN 999 + n END, 1000, %s,"
        "   CASE WHEN n %% 10 > 0 THEN 239 END, %s, NULL, b.keys"
        "  FROM generate_series(0, 999) n, LATERAL (SELECT string_agg(decode(md5(n || '/' || i), 'hex'), ''::bytea"
        "       ORDER BY i) AS keys FROM generate_series(0, 239) i) b",
        (keyspace, tenant),
    )
    rig.cx.execute(
        "INSERT INTO catalog_placement (seg, born, owner, keyspace, tenant_id, n)"
        " SELECT 1000 + n, now() - interval '1 day', %s, %s, %s, 240 FROM generate_series(0, 999) n",
        (owner, keyspace, tenant),
    )
    heads = [r[0] for r in rig.cx.execute(
        "SELECT encode(substr(keys, 16 * 5 + 1, 16), 'hex') FROM catalog_segment WHERE id % 10 = 0 AND id >= 1000"
    )]  # fmt: skip
    some = Selector(prefix=tuple(heads)), Selector(older_than=rig.now - 60)
    for part, blocks in zip(some, (1000 * 240 - 100 * 5, 240_000), strict=True):
        began = time.process_time()
        found = blocks_meant([(ns, 2)], [part], sample=100)
        took = time.process_time() - began
        assert sum(held.blocks for held in found.held[ns].values()) == blocks
        assert sum(len(one.keys) for one in found.meant) == blocks * KEY
        assert took < 3.0 * 0.24, "3 s for 10^6"
