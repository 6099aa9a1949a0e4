"""A broker that loses every third message, doubles every third and hands them over backwards: the same certificate."""

import json
from collections import Counter
from uuid import UUID

import pytest

from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog import tasks
from catalog.models import Step
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


class Broker:
    """Takes messages like the real one; of three it loses one and doubles one, and the last comes first."""

    def __init__(self):
        self.taken, self.queue = 0, []

    def send(self, name, *arguments):
        self.taken += 1
        copies = (1, 0, 2)[self.taken % 3]
        self.queue += [(name, arguments)] * copies

    def deliver(self):
        waiting, self.queue = self.queue[::-1], []
        for name, arguments in waiting:
            getattr(tasks, name.partition(".")[2]).run(*arguments)
        return len(waiting)


broker = Broker()


def send(name, *arguments):
    """`settings.TASK_SENDER`."""
    broker.send(name, *arguments)


def told(operation):
    """What a certificate says, without what names this one operation and its moments."""
    body = json.loads(certificate_of_operation(operation.id).body)
    copies = [
        (c["node"], c["tier"], c["evidence"]["technique"], c["class"], c["flags"], c["blocks"]) for c in body["copies"]
    ]
    kinds = Counter(one["body"]["kind"] for one in body["receipts"])
    return copies, kinds, body["class"], body["flags"], body["exceptions"], len(body["targets"])


def events(name):
    return Event.objects.filter(event_type=TYPES[name].number).count()


def a_deletion(world, node, label):
    namespace = world.namespace(label)
    world.hold(node, namespace, 1, 2)
    world.hold(node, namespace, 3, tier="dram")
    return namespace, asked(world, selector={"tenant": world.tenant.slug, "label": label})


def test_what_a_broker_loses_and_doubles_changes_nothing(world, settings, monkeypatch):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    first, _ = world.node("n1"), world.node("n2")
    _, plain = a_deletion(world, first, "plain")
    world.acknowledged()
    assert world.go_on(plain) == "completed"
    before = {name: events(name) for name in ("receipt.accepted", "certificate.issued", "operation.concluded")}
    settings.TASK_SENDER = f"{__name__}.send"
    monkeypatch.setattr(tasks.reconcile, "delay", lambda operation: broker.send("catalog.reconcile", operation))
    namespace, operation = a_deletion(world, first, "lossy")
    world.acknowledged()
    for _ in range(30):
        world.sealed()
        for side in world.nodes:
            world.heard(side)
        tasks.reconcile_due.run()
        tasks.rules_due.run()
        broker.deliver()
        world.rig.tick(0.6)
        operation.refresh_from_db()
        if operation.concluded_at:
            break
    assert operation.outcome == "completed"
    assert broker.taken >= 3
    assert told(operation) == told(plain)
    assert world.left(namespace) == 0
    for name, was in before.items():  # each effect once
        assert events(name) == 2 * was, name
    broker.send("catalog.reconcile", str(operation.id))
    broker.send("catalog.operation_decided", str(operation.id))
    broker.deliver()
    assert events("certificate.issued") == 2
    keys = Step.objects.filter(operation__in=[plain.id, operation.id], kind="erase")
    assert {len({c.step for c in side.orders}) for side in world.nodes} == {
        Step.objects.filter(node=UUID(side.node), receipt__isnull=False).count() for side in world.nodes
    }
    assert keys.exclude(state="done").count() == 0
