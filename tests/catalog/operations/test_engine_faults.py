"""Connections that end at any write, clocks that are off, a broker that says anything: the same certificate comes of
it, each effect once, and nothing that nobody asked for."""

import contextlib
import json
import uuid
from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, connections

from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog import tasks
from catalog.models import Operation, Step
from catalog.operation_views import operation_view
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
TABLES = ("catalog_step", "catalog_operation", "audit_event", "audit_certificate")
EVERY, SEEDS = 23, (5,)
"""Of so many writes one ends its connection; which, is the seed."""
HOSTILE = ("", "x", "0" * 32, "../../etc", "'; DROP TABLE catalog_step; --", str(uuid.UUID(int=0)), "9" * 5000)


@contextlib.contextmanager
def failing(cx, seed, every=EVERY):
    """Every so many writes of the engine the server ends its connection: nothing of the transaction is there."""
    cx.execute("CREATE SEQUENCE kvc_failing")
    cx.execute(
        "CREATE FUNCTION kvc_fail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        f" IF session_user = 'kv_operator' AND mod(nextval('kvc_failing'), {every}) = {seed}"
        " THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$"
    )
    for table in TABLES:
        cx.execute(
            f"CREATE TRIGGER kvc_fail AFTER INSERT OR UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION kvc_fail()"
        )
    try:
        yield lambda: cx.execute("SELECT last_value FROM kvc_failing").fetchone()[0]
    finally:
        cx.execute("DROP FUNCTION kvc_fail CASCADE")
        cx.execute("DROP SEQUENCE kvc_failing")


def essence(operation):
    """What a certificate says, without ids and times."""
    body = json.loads(certificate_of_operation(operation.id).body)
    names = {node: number for number, node in enumerate(sorted({copy["node"] for copy in body["copies"]}))}
    return body["class"], body["flags"], body["exceptions"], sorted(
        (names[c["node"]], c["tier"], c["class"], c["flags"], c["absent"], c["objects"], c["blocks"], c["bytes"],
         [(one["kind"], one["attempt"]) for one in c["receipts"]], sorted(c["evidence"].items()))
        for c in body["copies"]
    )  # fmt: skip


def ended(world, operation, most=80):
    """How often a connection was lost until it had ended."""
    lost = 0
    for _ in range(most):
        try:
            world.go_on(operation, rounds=1)
            operation.refresh_from_db()
        except DatabaseError:
            lost += 1
            connections.close_all()  # whoever had leased a step is gone, and its lease is over
            world.cx.execute("UPDATE catalog_step SET lease_until = NULL WHERE state = 'waiting'")
            continue
        if operation.concluded_at:
            return lost
    raise AssertionError(operation_view(operation, now=datetime.now(UTC)))


def deleted(world, label, disturb):
    namespace = world.namespace(label)
    for side, tier, numbers in ((world.nodes[0], "hbm", (1, 2)), (world.nodes[0], "dram", (3,))):
        world.hold(side, namespace, *numbers, tier=tier)
    operation = asked(world, selector={"tenant": world.tenant.slug, "label": label})
    world.acknowledged()
    with disturb:
        lost = ended(world, operation)
    return operation, lost


def same_whatever_ends(world, seed):
    """A deletion that nothing disturbs, and one whose connections end."""
    calm, none = deleted(world, f"calm-{seed}", contextlib.nullcontext())
    torn, lost = deleted(world, f"torn-{seed}", failing(world.cx, seed))
    assert (none, lost > 0) == (0, True), f"seed {seed}: {lost} connections"
    assert essence(calm) == essence(torn), f"seed {seed}"
    for operation in (calm, torn):
        told = Step.objects.filter(operation=operation.id).exclude(receipt=None)
        assert set(told.values_list("attempt", flat=True)) == {0}
    return lost


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_write_ends_the_connection_the_same_certificate_comes_of_it(world, seed):
    world.node("n1")
    world.node("n2")
    print(f"seed {seed}: {same_whatever_ends(world, seed)} connections were lost")
    issued = Event.objects.filter(event_type=TYPES["certificate.issued"].number).count()
    assert issued == Operation.objects.exclude(certificate=None).count() == 2
    accepted = Event.objects.filter(event_type=TYPES["receipt.accepted"].number).count()
    assert accepted == Step.objects.exclude(receipt=None).count()


def test_yesterdays_receipt_and_another_nodes_are_none(world):
    first, second = world.node("n1"), world.node("n2")
    before, _ = deleted(world, "before", contextlib.nullcontext())
    assert before.outcome == "completed"
    assert {"erase", "verify"} <= {order.kind for side in (first, second) for order in side.orders}
    namespace = world.namespace("now")
    for side in (first, second):
        world.hold(side, namespace, 1, 2)
    first.mood, second.mood = "yesterday", "borrows"
    operation = asked(world, selector={"tenant": world.tenant.slug, "label": "now"}, reason="gone",
                      confirm_phrase="delete 4 objects")  # fmt: skip
    world.acknowledged()
    world.go_on(operation, rounds=3)
    steps = Step.objects.filter(operation=operation.id, kind="erase", tier="hbm")
    assert set(steps.values_list("code", flat=True)) == {
        "receipt-not-for-this-command", "receipt-signature",
    }  # fmt: skip
    assert not Step.objects.filter(operation=operation.id).exclude(receipt=None).exists()
    assert certificate_of_operation(operation.id) is None
    assert world.left(namespace) == 4
    first.mood = second.mood = "well"
    assert world.go_on(operation, rounds=12) == "completed"
    assert world.left(namespace) == 0


def test_neither_a_clock_that_is_off_nor_a_broker_that_lies_does_anything(world):
    namespace, first = world.namespace(), world.node("n1")
    world.hold(first, namespace, 1, 2)
    operation = asked(world, grace_seconds=3600, reason="gone", confirm_phrase="delete 2 objects")
    world.acknowledged()
    world.go_on(operation, rounds=1)
    before = operation_view(operation, now=datetime.now(UTC))
    counts = Event.objects.count()
    for task in (tasks.reconcile, tasks.operation_decided, tasks.hold_decided, tasks.command_send):
        for word in (*HOSTILE, str(namespace.id), str(operation.id)):
            with contextlib.suppress(ValueError):
                task.run(word)
    for task in (tasks.operations_sweep, tasks.nodes_reconcile):
        task.run()
    after = operation_view(operation, now=datetime.now(UTC))
    assert "erase" not in {c.kind for c in first.orders}
    assert (after["state"], after["done"], after["conditions"]) == (before["state"], False, before["conditions"])
    assert world.left(namespace) == 2
    assert Event.objects.count() == counts
    Operation.objects.filter(id=operation.id).update(grace_until=None)
    first.skew = 3600.0
    world.go_on(operation, rounds=2)
    assert first.receipts == {} or "erase" not in {c.kind for c in first.orders}
    assert "command-expired" in set(Step.objects.filter(operation=operation.id).values_list("code", flat=True))
    assert operation_view(operation, now=datetime.now(UTC))["done"] is False
    first.skew, first.lag = 0.0, -3600.0  # its commands come in time, and its receipts say another hour
    assert world.go_on(operation, rounds=12) == "completed"
    assert json.loads(certificate_of_operation(operation.id).body)["class"] == 2
