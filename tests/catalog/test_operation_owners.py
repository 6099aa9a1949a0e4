"""Places: all of them, also where nothing was ever believed to be, each under one number whatever its rows do."""

import time

import pytest

from catalog.operation_owners import held, place_number, places, totals
from tests.catalog.ingest.rig import BYTES, Rig, Sim, add, plant_namespace, plant_node, superuser

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_place_has_one_number_that_json_can_say():
    number = place_number("n", "reference", 0, "hbm")
    assert number == place_number("n", "reference", 0, "hbm")
    others = {place_number(*other) for other in (("n", "reference", 1, "hbm"), ("n", "reference", 0, "ssd"),
                                                 ("m", "reference", 0, "hbm"), ("n", "remote", 0, "hbm"))}  # fmt: skip
    assert number not in others
    assert len(others) == 4
    assert 0 < number < 2**52


def test_every_declared_tier_is_a_place_of_the_source_that_speaks_for_it(postgres, request):
    with superuser(postgres) as cx:
        node = plant_node(cx, "n", tiers=["hbm", "ssd", "remote"])
        plant_node(cx, "silent", tiers=["hbm"])
        ns = plant_namespace(cx, "a")
        rig = Rig(now=time.time())
        request.addfinalizer(rig.close)
        engine, store = Sim(node, "reference"), Sim(node, "remote")
        rig.send(node, engine.frame(add(ns, 1, 2)))
        rig.send(node, store.frame())
        found = {(p.source, p.tier): p for p in places()}
        assert set(found) == {("reference", "hbm"), ("reference", "ssd"), ("remote", "remote")}
        assert found["reference", "hbm"].boot == engine.boot
        assert found["reference", "hbm"].reachable
        at = (found["reference", "hbm"].source_id, "hbm")
        assert held([(ns, 2)])[ns][at].blocks == 2
        assert held([(ns, 2)])[ns][at].bytes == 2 * BYTES
        assert held([(ns, 1)]) == {}
        assert totals() == {"hbm": 2 * BYTES}
        cx.execute("UPDATE catalog_node SET last_heard_at = now() - interval '7 seconds' WHERE id = %s", (node,))
        assert not any(p.reachable for p in places())
        cx.execute("UPDATE catalog_node SET state = 'fenced' WHERE id = %s", (node,))
        assert all(p.retired for p in places())
        engine.restart()
        before = found["reference", "hbm"].owner
        cx.execute("UPDATE catalog_node SET state = 'ready' WHERE id = %s", (node,))
        rig.folder.nodes.dirty = True
        rig.send(node, engine.frame(add(ns, 3)), step=1.0)
        assert {p.owner for p in places() if p.tier == "hbm"} == {before}
