"""Hot prefixes over a real writer: hits of the hour, copies that really lie there, and nobody else's."""

# ruff: noqa: F811

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.prefix_reads import hot_prefixes
from kvcore.events import Drop
from tests.catalog.ingest.conftest import planted, rig  # noqa: F401  (fixtures)
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node
from tests.catalog.ingest.test_pictures import use

pytestmark = pytest.mark.django_db(transaction=True)


def begin(rig):
    rig.tick(1.1)
    rig.now = int(rig.now) // 60 * 60 + 61


def later(rig, *sims):
    for _ in range(3):
        rig.batch(*((sim.node, sim.beat()) for sim in sims), step=10)
    return datetime.fromtimestamp(rig.now, UTC)


def test_nothing_was_hit(planted):
    assert hot_prefixes(now=datetime.now(UTC), limit=5) == []


def test_a_prefix_counts_the_nodes_and_bytes_that_hold_its_first_run(planted, rig):
    ns = plant_namespace(planted, "repo")
    one, two, three = (Sim(plant_node(planted, name)) for name in ("n1", "n2", "n3"))
    begin(rig)
    for sim, chain in ((one, (1, 2, 3)), (two, (1, 2, 3)), (three, (7,))):
        rig.send(sim.node, sim.frame(add(ns, *chain)))
    for sim, head, hit in ((one, 2, 640), (two, 2, 640), (three, 7, 64)):
        rig.send(sim.node, sim.frame(use(ns=ns, head=keys(head), hit=hit, prompt=700)))
    now = later(rig, one, two, three)
    with CaptureQueriesContext(connection) as queries:
        found = hot_prefixes(now=now, limit=5)
    assert len(queries) <= 8
    first, second = found
    assert (first.copies, second.copies) == (2, 1)
    assert first.run_blocks == 3
    assert first.bytes == 2 * 3 * first.block_bytes
    assert (first.hit_tokens, second.hit_tokens) == (1280, 64)
    assert first.saved_ms == 10.0
    assert first.family.startswith("pfx_")
    assert sorted(first.tiers.values()) == [first.bytes]


def test_a_copy_without_the_first_block_is_none(planted, rig):
    ns = plant_namespace(planted, "repo")
    one, two = (Sim(plant_node(planted, name)) for name in ("n1", "n2"))
    begin(rig)
    for sim in (one, two):
        rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
        rig.send(sim.node, sim.frame(use(ns=ns, head=keys(2))))
    rig.send(two.node, two.frame(Drop(ns=ns, gen=1, keys=keys(1), tier="hbm", reason="ttl")))
    (found,) = hot_prefixes(now=later(rig, one, two), limit=5)
    assert (found.copies, found.bytes) == (1, 5 * found.block_bytes)


def test_a_tenant_is_given_its_own_and_what_is_shared_with_it(planted, rig):
    ns = plant_namespace(planted, "repo")
    sim = Sim(plant_node(planted, "n1"))
    begin(rig)
    rig.send(sim.node, sim.frame(add(ns, 1, 2)))
    rig.send(sim.node, sim.frame(use(ns=ns, head=keys(1))))
    now = later(rig, sim)
    (mine,) = hot_prefixes(now=now, limit=5)
    nobody = "00000000-0000-7000-8000-0000000000ff"
    assert hot_prefixes(now=now, limit=5, tenant=mine.tenant_id) == [mine]
    assert hot_prefixes(now=now, limit=5, tenant=nobody) == []
    assert hot_prefixes(now=now, limit=5, tenant=nobody, shared=[bytes.fromhex(mine.digest)]) == [mine]
