"""What must not be where it is: folded, flagged, told; and agents hear when a rule changes."""

from datetime import UTC, datetime

import pytest

from catalog.refused import attempts_tell
from kvcore.events import Move
from tests.catalog.ingest.rig import Rig, Sim, add, keys, plant_namespace, plant_node, plant_tenant

pytestmark = pytest.mark.django_db(transaction=True)
EVENTS = (
    "SELECT event_type, tenant_id, convert_from(body, 'UTF8')::json->'data' FROM audit_event"
    " WHERE event_type IN (753, 754) ORDER BY id"
)


@pytest.fixture
def restricted(planted):
    tenant = plant_tenant(planted, classes=["restricted"], scope="class")
    ns = plant_namespace(planted, "", tenant=tenant, data_class="restricted")
    node = plant_node(planted, "n", tiers=["hbm", "ssd"], engine={"kind": "reference"})
    rig = Rig()
    yield planted, rig, Sim(node), tenant, ns
    rig.close()


def test_a_fact_that_must_not_be_is_folded_flagged_and_told(restricted):
    _, rig, sim, tenant, ns = restricted
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3), Move(ns=ns, gen=1, keys=keys(1, 2), from_="hbm", to="ssd")))
    assert {line[3]: sums[0] for line, sums in rig.holdings(sim.node).items()} == {"hbm": 1, "ssd": 2}
    assert rig.state(sim.node) == ("recovering", "unverified")  # as without it: a new boot with a persistent tier
    assert rig.refused() == {"misplaced-blocks": 1}
    assert attempts_tell(now=datetime.now(UTC)) == 1
    ((number, whose, data),) = rig.rows(EVENTS)
    assert (number, whose) == (0x02F2, tenant)
    assert data == {"namespace": ns.hex(), "node": str(sim.node), "tier": "ssd", "reason": "data-class", "count": 2}


def test_agents_hear_of_a_change_and_the_new_rule_is_judged_by(restricted):
    cx, rig, sim, tenant, ns = restricted
    before = rig.send(sim.node, sim.beat()).allowances
    assert rig.send(sim.node, sim.beat(), step=11).allowances["policy"] == before["policy"]
    rig.send(sim.node, sim.frame(add(ns, 1)))
    cx.execute(
        "INSERT INTO catalog_classrule (tenant_id, data_class, tiers, regions, min_protection)"
        " VALUES (%s, 'restricted', '{ssd}', NULL, 'plain')", (tenant,)
    )  # fmt: skip
    rig.folder.policies.dirty = rig.folder.dealer.dirty = True
    assert rig.send(sim.node, sim.beat()).allowances["policy"] > before["policy"]
    policies = rig.folder.policies
    assert policies.refusal(sim.node, ns, "ssd") == ""
    assert policies.refusal(sim.node, ns, "hbm") == "data-class"
    cx.execute("UPDATE catalog_node SET dedicated_to = %s", (plant_tenant(cx, isolation="node"),))
    rig.folder.nodes.dirty = True
    rig.tick(0.1)
    assert policies.refusal(sim.node, ns, "ssd") == "isolation"
    assert policies.refusal(sim.node, bytes(32), "ssd") == ""
