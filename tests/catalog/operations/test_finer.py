"""Deletions of single blocks: the namespace lives on, keys travel beside their commands, the certificate says which."""

import json
import time
import uuid
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from audit.certifying import certificate_of_operation
from audit.proving import event_body
from catalog.models import OperationTarget
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_views import operation_view
from kvcore.plans import confirm_phrase, plan_from_json, plan_to_json
from kvcore.targets import KEY, keys_hash, packed
from tests.catalog.ingest.rig import BYTES, TOKENS, add
from tests.catalog.ingest.rig import keys as key
from tests.catalog.operations.world import person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def chain(world):
    """Two nodes; the first holds a chain of six blocks and a branch, the second three of the six."""
    namespace, first, second = world.namespace(), world.node("n1"), world.node("n2")
    digest = bytes(namespace.digest)
    world.send(first, add(digest, 1, 2, 3, 4, 5, 6, bytes=BYTES * TOKENS))
    world.send(first, add(digest, 7, parent=2, bytes=BYTES * TOKENS), add(digest, 8, tier="dram", bytes=BYTES * TOKENS))
    world.send(second, add(digest, 3, 4, 5, parent=2, bytes=BYTES * TOKENS))
    first.held["hbm"], second.held["hbm"] = 4, 3
    return namespace, first, second


def asked(world, *, collateral="none", **selector):
    actor, now = person(), datetime.now(UTC)
    plan = plan_create(selector={"tenant": world.tenant.slug, **selector}, options={"collateral": collateral},
                       actor=actor, now=now)  # fmt: skip
    frozen = plan_from_json(plan.body)
    found = deletion_request(plan_id=plan.id, plan_hash=frozen.plan_hash, reason="asked", actor=actor, now=now,
                             confirm_phrase=confirm_phrase(frozen))  # fmt: skip
    return frozen, found


def test_a_prefix_goes_with_what_continues_it_and_its_namespace_lives_on(world, chain):
    namespace, first, second = chain
    plan, operation = asked(world, prefix=[key(3).hex()])
    gone = packed(key(n) for n in (3, 4, 5, 6))
    assert (plan.blocks, plan.risk, plan.reasons) == (7, "R2", ("tier-part-1", "not-own"))
    assert {cell.node: cell.blocks for cell in plan.cells} == {"n1": 4, "n2": 3}
    (row,) = OperationTarget.objects.filter(operation=operation.id)
    assert (bytes(row.keys), row.keys_hash, row.key_count, row.below) == (gone, keys_hash(gone), 4, True)
    assert "packed" not in json.dumps(plan_to_json(plan))
    namespace.refresh_from_db()
    assert (namespace.generation, namespace.min_gen) == (1, 1)
    assert world.go_on(operation) == "completed"
    assert {c.kind for side in (first, second) for c in side.orders} == {"erase", "verify"}
    for command in (c for side in (first, second) for c in side.orders):
        assert command.args["targets"] == [
            {"ns": row.digest.hex(), "gen_upto": "2", "group": 0, "attached": keys_hash(gone), "count": 4,
             "below": True}
        ]  # fmt: skip
        assert not command.args["fencing"]
    assert first.beside == {keys_hash(gone): gone}
    assert there(world, namespace) == {1, 2, 7, 8}
    shown = operation_view(operation, now=datetime.now(UTC))
    unroutable = next(one for one in shown["conditions"] if one["type"] == "Unroutable")
    assert (unroutable["status"], unroutable["reason"]) == ("true", "directory")
    body = json.loads(certificate_of_operation(operation.id).body)
    assert body["targets"] == [
        {"namespace_ref": row.digest.hex(), "gen_upto": "2", "group": 0, "below": True,
         "keys": {"count": 4, "sha256": keys_hash(gone)}}
    ]  # fmt: skip
    assert not any(copy["evidence"]["unroutable"] for copy in body["copies"]), "nothing is claimed of a generation"
    order = json.loads(event_body(operation.order_event))["data"]
    assert (order["kinds"], order["fencing"], order["targets"]) == (["erase"], False, 1)


def there(world, namespace):
    rows = world.rig.rows(
        "SELECT g.keys, p.n, p.held FROM catalog_placement p JOIN catalog_segment g ON g.keyspace = p.keyspace"
        " AND g.id = p.seg JOIN catalog_keyspace k ON k.id = p.keyspace JOIN catalog_owner o ON o.id = p.owner"
        " WHERE k.digest = %s AND NOT o.retired", bytes(namespace.digest),
    )  # fmt: skip
    found = set()
    for keys, n, held in rows:
        mask = (1 << n) - 1 if held is None else int.from_bytes(held, "little")
        found |= {bytes(keys[at * KEY : (at + 1) * KEY]) for at in range(len(keys) // KEY) if mask >> at & 1}
    return {n for n in range(1, 20) if key(n)[:KEY] in found}


def test_who_chooses_the_namespace_takes_those_that_hold_some_of_it_whole(world, chain):
    namespace, _, _ = chain
    other = world.namespace("other")
    plan, _ = asked(world, prefix=[key(3).hex()], collateral="namespace")
    assert [target.namespace for target in plan.targets] == [str(namespace.id)]
    assert plan.blocks == 11
    for row, min_gen in ((namespace, 2), (other, 1)):
        row.refresh_from_db()
        assert row.min_gen == min_gen


def test_what_stands_in_the_way_is_in_the_plan(world, chain):
    namespace, _, _ = chain
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    for until in (now + hour, now - hour):
        world.cx.execute(
            "INSERT INTO catalog_pin (id, tenant_id, namespace, digest, keys, until, reason, requested_by, created_at)"
            " VALUES (%s, %s, %s, %s, NULL, %s, '', 'x', %s)",
            (uuid.uuid4(), world.tenant.id, namespace.id, bytes(namespace.digest), until, until - hour),
        )
    world.cx.execute(
        "INSERT INTO tenants_keylease (tenant_id, namespace_id, holder_kind, holder, generation, granted_at, until,"
        " namespace_tenant_id) SELECT %s, %s, 'node', n::text, 1, now(), now() + n * interval '1 minute', %s"
        " FROM generate_series(1, 3) n",
        (world.tenant.id, namespace.id, world.tenant.id),
    )
    made = plan_create(selector={"tenant": world.tenant.slug, "label": "gone"}, options={}, actor=person(), now=now)
    blockers = plan_from_json(made.body).blockers
    found = [(one.kind, one.ref if one.kind == "key_lease" else "", one.reason) for one in blockers]
    assert found == [("key_lease", "node", "3"), ("pin", "", "namespace")]
    assert made.body["lost_hits"] is None, "nobody told of any request: that is not zero"
    assert time.time() < blockers[0].until < time.time() + 200
    assert msgspec.json.encode(made.body)
