"""Hits from behind a fence are counted for good, and those of requests that were under way are not among them."""

from datetime import UTC, datetime

import msgspec

from catalog.ingest.stale import SETTLE_S
from kvcore.events import Use
from tests.catalog.ingest.rig import TOKENS, Rig, Sim, add, plant_namespace, plant_node


def use(ns, gen, hit=TOKENS):
    return Use(ns=ns, gen=gen, head=None, hit_tokens=hit, tiers={"hbm": hit}, prompt_tokens=hit + 1, saved_ms=1.0,
               measured=True, request="r")  # fmt: skip


def fence(cx, ns, min_gen, at):
    """As `generation_bump` leaves it."""
    cx.execute("UPDATE tenants_namespace SET generation = %s, min_gen = %s WHERE digest = %s", (min_gen, min_gen, ns))
    cx.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT (SELECT coalesce(max(seq), 0) + 1 FROM tenants_fenceentry), tenant_id, id, digest, %s, %s"
        "   FROM tenants_namespace WHERE digest = %s",
        (min_gen, datetime.fromtimestamp(at, UTC), ns),
    )


def test_they_are_counted_once_and_never_forgotten(planted):
    node, ns = plant_node(planted, "n"), plant_namespace(planted, "a")
    rig, sim = Rig(), Sim(node)

    def tell(gen, *, made, hit=TOKENS):
        frame = msgspec.structs.replace(sim.frame(use(ns, gen, hit)), ts=made)
        rig.send(node, frame)
        rig.send(node, frame)  # told twice counts once

    def counted():
        return rig.rows("SELECT hit_tokens::int, requests::int FROM catalog_stalehit ORDER BY keyspace")

    rig.send(node, sim.frame(add(ns, 1, 2)))
    tell(1, made=rig.now)
    raised = rig.now
    fence(planted, ns, 2, raised)
    rig.tick(2)
    tell(1, made=rig.now)  # it was under way
    assert counted() == []
    rig.tick(SETTLE_S)
    tell(2, made=rig.now)
    tell(1, made=raised + 1)  # the node was away: it served this before
    tell(1, made=rig.now, hit=0)
    assert counted() == []
    tell(1, made=rig.now)
    assert counted() == [(TOKENS, 1)]
    rig.open()  # another writer, much later
    rig.now += 40 * 24 * 3600
    rig.send(node, sim.inventory()[0])
    tell(1, made=rig.now, hit=2 * TOKENS)
    assert counted() == [(3 * TOKENS, 2)]
    tell(1, made=rig.now + 10**9)  # a clock that is ahead hides nothing
    assert counted() == [(4 * TOKENS, 3)]
    rig.close()
