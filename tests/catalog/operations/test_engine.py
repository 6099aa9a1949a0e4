"""Operations from request to certificate, with a real log, signer and writer, and far sides of every kind."""

import json
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approval_decide
from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, Plan, Step
from catalog.operation_orders import operation_change
from catalog.operation_views import operation_view, operations_shown
from catalog.operations.dispatching import in_turn
from catalog.operations.engine import operations_due, reconcile
from catalog.operations.observing import observe
from catalog.operations.probing import node_of
from catalog.operations.supplements import supplements_due
from kvconsole.infra.keystore import keystore, namespace_name
from kvcore.plan_steps import steps
from tests.catalog.ingest.rig import plant_node
from tests.catalog.operations.world import asked, person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def view(operation):
    operation.refresh_from_db()
    return operation_view(operation, now=datetime.now(UTC))


def facts(operation):
    return {one["type"]: (one["status"], one["reason"]) for one in view(operation)["conditions"]}


def kinds(side):
    return [(c.kind, c.args["tier"]) for c in side.orders]


def events(name):
    return Event.objects.filter(event_type=TYPES[name].number).count()


@pytest.fixture
def two(world):
    """Two nodes, the first of which holds three blocks of the label on two tiers."""
    namespace, first, second = world.namespace(), world.node("n1"), world.node("n2")
    world.hold(first, namespace, 1, 2)
    world.hold(first, namespace, 3, tier="dram")
    return namespace, first, second


def test_a_deletion_is_fenced_at_once_and_ends_in_a_certificate(world, two):
    namespace, first, second = two
    operation = asked(world)
    namespace.refresh_from_db()
    assert (namespace.generation, namespace.min_gen) == (2, 2)
    assert operation.risk == "R1"
    assert facts(operation)["Fenced"][0] == "true"
    assert view(operation)["state"] == "fenced"
    world.acknowledged()
    assert world.go_on(operation) == "completed"
    both = [("erase", "dram"), ("erase", "hbm"), ("verify", "dram"), ("verify", "hbm")]
    assert sorted(kinds(first)) == both
    assert sorted(kinds(second)) == [*both[:2], ("probe", "dram"), ("probe", "hbm"), *both[2:]]  # also of nothing
    probe = next(c for c in second.orders if c.kind == "probe" and c.args["tier"] == "hbm")
    assert (probe.args["node"], len(probe.args["canaries"]), probe.args["targets"]) == (first.node, 2, [])
    assert not Step.objects.filter(operation=operation.id, args__has_key="sample").exists()
    assert world.left(namespace) == 0
    shown = view(operation)
    assert (shown["state"], shown["done"], shown["finalizers"]) == ("completed", True, [])
    assert {cell["state"] for cell in shown["progress"]["cells"]} == {"verified"}
    assert shown["t_fence"] <= shown["t_erase"] <= shown["t_verify"]
    certificate = certificate_of_operation(operation.id)
    body = json.loads(certificate.body)
    assert (body["operation"], body["class"], body["seal"]) == (str(operation.id), 3, False)
    assert sum(copy["blocks"] for copy in body["copies"]) == 3
    assert len(body["receipts"]) == 10
    told = {(copy["node"], copy["tier"]): copy for copy in body["copies"]}
    assert all(told[first.node, tier]["evidence"]["scanned"] for tier in ("hbm", "dram"))
    assert {(c["class"], *c["flags"]) for c in told.values() if c["absent"]} == {
        (2, "EMULATED", "SELF_ATTESTED"), (2, "SELF_ATTESTED"),
    }  # fmt: skip
    assert events("certificate.issued") == events("operation.concluded") == events("order.approved") == 1
    assert events("receipt.accepted") == 10
    store = keystore()
    assert not store.exists(namespace_name(bytes(namespace.digest), 1))
    assert store.exists(namespace_name(bytes(namespace.digest), 2))


def test_the_order_goes_out_only_under_its_checkpoint(world, two, monkeypatch):
    monkeypatch.setattr("catalog.operations.engine.ORDER_SECONDS", 0.1)
    _, first, _ = two
    operation = asked(world)
    reconcile(operation_id=operation.id, holder="test")
    assert first.orders == []  # its fence rides on every answer meanwhile
    assert facts(operation)["Erased"] == ("false", "order-not-logged")
    world.sealed()
    Operation.objects.filter(id=operation.id).update(due_at=datetime.now(UTC))
    reconcile(operation_id=operation.id, holder="test")
    assert "erase" in {c.kind for c in first.orders}


def test_every_node_has_its_first_command_before_any_has_its_second(world, two):
    _, first, second = two
    operation = asked(world)
    world.acknowledged()
    world.sealed()
    for side in (first, second):  # however long that took
        world.heard(side)
    seen = observe(operation, now=datetime.now(UTC))
    wishes = [wish for wish in steps(seen.intent, seen.observed) if wish.kind == "erase"]
    leased = sorted(((wish, 1, 1) for wish in wishes), key=lambda one: str(node_of(seen, one[0])))
    sent = [str(node_of(seen, wish)) for wish, _, _ in in_turn(seen, leased)]
    assert len(sent) == len(wishes) == 4
    assert set(sent[:2]) == set(sent[2:]) == {first.node, second.node}


def test_a_node_that_is_off_keeps_the_operation_open_and_is_named(world, two):
    namespace, _, second = two
    world.heard(second, "lost")
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation, rounds=3) in ("working", "quiet")
    shown = view(operation)
    assert (shown["done"], shown["state"]) == (False, "erasing")
    reachable = next(one for one in shown["conditions"] if one["type"] == "NodesReachable")
    assert reachable["status"] == "false"
    assert "n2" in reachable["message"]
    assert {cell["state"] for cell in shown["progress"]["cells"] if cell["node"] == "n2"} == {"silent"}
    assert second.orders == []
    assert world.left(namespace) == 0
    world.returned(second)
    assert world.go_on(operation) == "completed"
    assert second.orders


def test_a_node_that_enrolled_and_was_never_heard_is_a_waiting_cell(world, two):
    """What it holds is unknown, and that is not nothing; who leaves for good is not waited for."""
    plant_node(world.cx, "n3", tiers=["hbm", "ssd"])
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation, rounds=3) in ("working", "quiet")
    cells = [cell for cell in view(operation)["progress"]["cells"] if cell["node"] == "n3"]
    assert {(cell["state"], cell["tier"]) for cell in cells} == {("silent", "hbm"), ("silent", "ssd")}
    assert facts(operation)["Erased"] == ("false", "silent")
    world.cx.execute("UPDATE catalog_node SET state = 'fenced' WHERE name = 'n3'")
    assert world.go_on(operation) == "completed"


def test_where_no_node_is_there_nobody_answered_and_nothing_says_so(world):
    world.namespace()
    operation = asked(world)
    assert world.go_on(operation).startswith("completed")
    body = json.loads(certificate_of_operation(operation.id).body)
    assert (body["copies"], body["receipts"], set(body["times"])) == ([], [], {"request", "fence"})
    assert (view(operation)["progress"]["percent"], operation.erased_at, operation.verified_at) == (None, None, None)
    shown = operations_shown([operation], now=datetime.now(UTC))
    assert shown[0]["progress"]["percent"] is None


def test_what_a_look_finds_is_erased_again(world, two, monkeypatch):
    monkeypatch.setattr("kvcore.plan_steps.WAIT_SECONDS", 0.0)
    namespace, first, _ = two
    first.mood = "lies"
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation, rounds=2) != "completed"
    assert world.left(namespace) > 0
    first.mood = "well"
    assert world.go_on(operation, rounds=10) == "completed"
    assert kinds(first).count(("erase", "hbm")) > 1


def test_two_receipts_after_one_are_two_histories(world, two):
    _, first, _ = two
    operation = asked(world)
    world.acknowledged()
    first.mood = "forks"
    world.go_on(operation, rounds=2)
    codes = set(Step.objects.filter(operation=operation.id, node=first.sim.node).values_list("code", flat=True))
    assert "contradicted:receipt-chain-forked" in codes


def test_a_receipt_for_other_targets_is_none(world, two):
    """A command that looked for something else comes back clean: the node says of which targets its word is."""
    _, first, _ = two
    operation = asked(world)
    world.acknowledged()
    first.mood = "strays"
    assert world.go_on(operation, rounds=2) != "completed"
    codes = set(Step.objects.filter(operation=operation.id, node=first.sim.node).values_list("code", flat=True))
    assert codes - {""} == {"contradicted:other-targets"}


def test_leased_blocks_are_waited_for_and_then_taken(world, two):
    _, first, _ = two
    first.mood = "leased"
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation, rounds=2) != "completed"
    assert facts(operation)["Erased"] == ("false", "leased")
    world.ordered_anew(operation)
    assert world.go_on(operation, rounds=8) == "completed", certificate_of_operation(operation.id).flags
    assert any(c.args["force"] for c in first.orders)


def test_many_hands_do_nothing_twice(world, two):
    operation = asked(world)
    world.acknowledged()
    world.sealed()
    threads = [
        threading.Thread(target=_in_a_thread, args=(operation.id, f"hand-{n}")) for n in range(4)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert world.go_on(operation) == "completed"
    steps = Step.objects.filter(operation=operation.id)
    assert events("receipt.accepted") == steps.exclude(receipt=None).count() == 10
    assert events("certificate.issued") == 1


def _in_a_thread(operation, holder):
    from django.db import connections

    try:
        reconcile(operation_id=operation, holder=holder)
    finally:
        connections.close_all()


def test_who_is_busy_is_asked_again_and_a_pause_sends_nothing(world, two):
    _, first, _ = two
    first.mood = "busy"
    operation = asked(world)
    world.acknowledged()
    world.go_on(operation, rounds=1)
    step = Step.objects.get(operation=operation.id, node=first.sim.node, tier="hbm", kind="erase")
    assert (step.state, step.done_bytes, step.total_bytes) == ("waiting", 1, 2)
    who = person()
    operation_change(operation=operation, change="paused", actor=who, now=datetime.now(UTC))
    first.mood, before = "well", len(first.orders)
    world.go_on(operation, rounds=2)
    assert len(first.orders) == before
    assert view(operation)["paused"] is True
    operation_change(operation=operation, change="resumed", actor=who, now=datetime.now(UTC))
    assert world.go_on(operation) == "completed"


def test_what_is_stopped_stays_fenced_and_has_no_certificate(world, two):
    namespace, first, _ = two
    operation = asked(world, grace_seconds=3600)
    world.acknowledged()
    world.go_on(operation, rounds=1)
    assert "erase" not in {c.kind for c in first.orders}
    operation_change(operation=operation, change="stopped", actor=person(), now=datetime.now(UTC))
    assert world.go_on(operation) == "stopped"
    assert certificate_of_operation(operation.id) is None
    namespace.refresh_from_db()
    assert (namespace.state, namespace.min_gen) == ("active", 2)
    assert view(operation)["state"] == "stopped"


def test_a_second_person_starts_what_reaches_far(world, two):
    namespace, first, _ = two
    world.hold(first, namespace, *range(10, 60))
    who = person()
    operation = asked(world, who, reason="gone", confirm_phrase="delete 53 objects")
    assert (operation.risk, operation.needs_approval, operation.fenced_at) == ("R3", True, None)
    assert view(operation)["state"] == "awaiting_approval"
    world.go_on(operation, rounds=1)
    assert first.orders == []
    cells = {(c["node"], c["tier"]): c["total_bytes"] for c in view(operation)["progress"]["cells"]}
    planned = {(c["node"], c["tier"]): c["bytes"] for c in Plan.objects.get(id=operation.plan).body["cells"]}
    assert {at: size for at, size in cells.items() if size} == {at: size for at, size in planned.items() if size} != {}
    assert {facts(operation)[one][0] for one in ("Erased", "Verified", "Probed", "Purged")} == {"false"}
    other = person("approver")
    approval_decide(approval_id=operation.approval, approve=True, actor=other, now=datetime.now(UTC))
    world.acknowledged()
    reconcile(operation_id=operation.id, holder="test")
    assert world.go_on(operation) == "completed"
    body = json.loads(certificate_of_operation(operation.id).body)
    assert len(body["approver_refs"]) == 1
    assert body["approver_refs"][0] != body["requester_ref"]


def test_what_is_denied_is_over_and_nothing_was_fenced(world, two):
    namespace, first, _ = two
    world.hold(first, namespace, *range(10, 60))
    operation = asked(world, reason="gone", confirm_phrase="delete 53 objects")
    approval_decide(approval_id=operation.approval, approve=False, actor=person("approver"), now=datetime.now(UTC))
    assert world.go_on(operation, rounds=1) == "denied"
    namespace.refresh_from_db()
    assert namespace.min_gen == 1


def test_what_nobody_was_woken_for_is_found(world, two):
    operation = asked(world)
    assert operations_due(now=datetime.now(UTC)) == [operation.id]
    assert operations_due(now=datetime.now(UTC), late=60) == []
    assert reconcile(operation_id=uuid.uuid4(), holder="test") == "unknown"


def test_what_comes_back_after_a_certificate_opens_an_operation_that_supplements_it(world, two):
    namespace, first, _ = two
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation) == "completed"
    assert supplements_due(now=datetime.now(UTC) + timedelta(seconds=5)) == []
    world.hold(first, namespace, 1, 7)  # of the fenced generation: the node announces what it should not have
    assert world.left(namespace) == 2
    (again,) = supplements_due(now=datetime.now(UTC) + timedelta(seconds=5))
    assert supplements_due(now=datetime.now(UTC) + timedelta(seconds=5)) == []
    more = Operation.objects.get(id=again)
    assert (more.options["supplements"], more.risk) == (str(operation.id), "R0")
    assert world.go_on(more) == "completed"
    assert world.left(namespace) == 0
    assert json.loads(certificate_of_operation(more.id).body)["supplements"] == str(operation.id)
    namespace.refresh_from_db()
    assert namespace.generation == 2  # who asks now is not touched
