"""A tenant that stays over its quota is trimmed of what is missed least, and of nothing that is pinned or held."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.models import Quota
from catalog.operation_planners import input_of
from catalog.rules import quota
from catalog.rules.quota import quota_due
from catalog.trimming import KIND
from kvconsole.infra.access import system
from kvcore.plans import Options, Selector
from tests.catalog.ingest.rig import BYTES, TOKENS
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.tenants.making import a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def now():
    return datetime.now(UTC)


def chosen(tenant):
    """Namespaces and numbers of keys that would go now."""
    asked = input_of(kind=KIND, selector=Selector(tenant=tenant.slug), options=Options(tier="hbm"),
                     actor=system("test"), now=now())  # fmt: skip
    return [(target.ns, target.key_count) for target in asked.targets]


def test_a_tenant_that_stays_over_its_quota_is_trimmed_of_what_is_coldest(world):
    quota.forget()
    tenant = a_tenant(erasure_scope="label")
    cold, warm = (a_namespace(tenant, world.model, label=name) for name in ("cold", "warm"))
    node = world.node("n1")
    world.hold(node, cold, 1, 2, 3)
    world.hold(node, warm, 4, 5)
    world.rig.tick(2.0)  # what lags is written
    world.cx.execute("UPDATE catalog_placement SET born = born - interval '1 hour' WHERE keyspace IN"
                     " (SELECT id FROM catalog_keyspace WHERE digest = %s)", (bytes(cold.digest),))  # fmt: skip
    world.cx.execute("INSERT INTO catalog_quota (tenant_id, tier, limit_bytes, guaranteed_bytes, effective_bytes)"
                     " VALUES (%s, 'hbm', %s, 0, 0)", (tenant.id, 3 * BYTES * TOKENS))  # fmt: skip
    assert Quota.objects.get(tenant_id=tenant.id).limit_bytes
    assert chosen(tenant) == [(bytes(cold.digest).hex(), 2)]
    pin = ("INSERT INTO catalog_pin (id, tenant_id, namespace, digest, keys, until, reason, requested_by, created_at)"
           " VALUES (gen_random_uuid(), %s, %s, %s, NULL, now() + interval '1 hour', '', '', now())")  # fmt: skip
    world.cx.execute(pin, (tenant.id, cold.id, bytes(cold.digest)))
    assert chosen(tenant) == [(bytes(warm.digest).hex(), 0)]  # all of it: no key is named
    world.cx.execute("DELETE FROM catalog_pin")
    assert quota_due(now=now()) == []  # nodes have time to let go of it themselves
    (operation,) = quota_due(now=now() + timedelta(seconds=30))
    assert quota_due(now=now() + timedelta(seconds=40)) == []
    assert (operation.kind, operation.trigger) == ("quota_trim", "quota")
    world.sealed()
    world.go_on(operation)
    assert operation.outcome == "completed"
    (order,) = [c for c in node.orders if c.kind == "erase"]
    assert (order.args["tier"], order.args["force"], order.args["fencing"]) == ("hbm", False, False)
    assert [(t["ns"], t["count"]) for t in order.args["targets"]] == [(bytes(cold.digest).hex(), 2)]
    cold.refresh_from_db()
    assert cold.min_gen == 1


def test_what_a_share_group_holds_counts_for_its_owner_and_goes_like_the_rest(world):
    quota.forget()
    owner, member = a_tenant(), a_tenant()
    shared = a_namespace(owner, world.model, share_group=a_group(owner, member).name)
    own, node = a_namespace(owner, world.model), world.node("n1")
    world.hold(node, shared, 1, 2, 3)
    world.hold(node, own, 4, 5)
    world.rig.tick(2.0)
    world.cx.execute("UPDATE catalog_placement SET born = born - interval '1 hour' WHERE keyspace IN"
                     " (SELECT id FROM catalog_keyspace WHERE digest = %s)", (bytes(shared.digest),))  # fmt: skip
    limit = ("INSERT INTO catalog_quota (tenant_id, tier, limit_bytes, guaranteed_bytes, effective_bytes)"
             " VALUES (%s, 'hbm', %s, 0, 0)")  # fmt: skip
    world.cx.execute(limit, (member.id, BYTES * TOKENS))
    world.cx.execute(limit, (owner.id, 3 * BYTES * TOKENS))
    quota_due(now=now())
    (operation,) = quota_due(now=now() + timedelta(seconds=30))
    assert (operation.tenant_id, operation.needs_approval) == (owner.id, False)
    assert quota_due(now=now() + timedelta(seconds=40)) == []
    world.sealed()
    assert world.go_on(operation) == "completed"
    (order,) = [c for c in node.orders if c.kind == "erase"]
    assert [(t["ns"], t["count"]) for t in order.args["targets"]] == [(bytes(shared.digest).hex(), 2)]
    shared.refresh_from_db()
    assert shared.min_gen == 1
