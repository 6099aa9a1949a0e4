"""Nodes whose receipts do not agree with what they announced, what they count, or what another node sees."""

import json
from datetime import UTC, datetime

import pytest

from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Step
from catalog.operation_views import operation_view
from tests.catalog.ingest.rig import BYTES, TOKENS, add
from tests.catalog.operations.test_certificate import verdict
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
LIES = {
    "hides": "contradicted:fewer-than-announced",
    "miscounts": "contradicted:counters-differ",
    "denies": "contradicted:found-by-scan",
}


def codes(operation, side):
    rows = Step.objects.filter(operation=operation.id, node=side.sim.node, kind__in=("erase", "verify"), tier="hbm")
    return set(rows.exclude(code="").values_list("code", flat=True))


def test_whoever_contradicts_what_else_was_seen_is_caught_and_gets_no_certificate(world, tmp_path, monkeypatch):
    monkeypatch.setattr("kvcore.plan_steps.WAIT_SECONDS", 0.0)
    namespace, sides = world.namespace(), {mood: world.node(f"n-{mood}") for mood in (*LIES, "well")}
    for number, side in enumerate(sides.values()):
        world.hold(side, namespace, 2 * number, 2 * number + 1)
    for mood, side in sides.items():
        side.mood = mood
    operation = asked(world, reason="gone", confirm_phrase="delete 8 objects")
    world.acknowledged()
    assert world.go_on(operation, rounds=3) not in ("completed", "completed_with_exceptions")
    assert certificate_of_operation(operation.id) is None
    assert {mood: codes(operation, side) for mood, side in sides.items()} == {
        **{mood: {code} for mood, code in LIES.items()}, "well": set(),
    }  # fmt: skip
    refused = Event.objects.filter(event_type=TYPES["receipt.refused"].number)
    assert refused.count() >= len(LIES)
    for side in sides.values():
        side.mood = "well"
    assert world.go_on(operation, rounds=12) == "completed_with_exceptions"
    assert all(side.held.get("hbm") == 0 for side in sides.values())
    body = json.loads(certificate_of_operation(operation.id).body)
    named = {one["node"] for one in body["exceptions"] if one["code"] == "CONTRADICTED"}
    assert named == {side.node for mood, side in sides.items() if mood != "well"}
    found = verdict(tmp_path / "certificate.json", operation)
    assert (found["verdict"], found["problems"], found["certificate"]["seal"]) == ("valid", [], False)


def test_a_consistent_lie_is_the_nodes_own_word_and_one_that_is_announced_again_a_contradiction(world, monkeypatch):
    monkeypatch.setattr("kvcore.plan_steps.WAIT_SECONDS", 0.0)
    namespace, first, second, third = world.namespace(), *(world.node(f"n{n}") for n in (1, 2, 3))
    world.hold(first, namespace, 1, 2)
    first.mood, second.mood = "denies", "blind"  # nobody else sees the medium
    world.heard(third, "lost")
    operation = asked(world, reason="gone")
    world.acknowledged()
    world.go_on(operation, rounds=3)
    shown = operation_view(operation, now=datetime.now(UTC))
    (cell,) = (c for c in shown["progress"]["cells"] if (c["node"], c["tier"]) == ("n1", "hbm"))
    assert (cell["state"], cell["class"], world.left(namespace)) == ("verified", 2, 0)
    assert codes(operation, first) == set()
    world.send(first, add(bytes(namespace.digest), 1, tier="hbm", bytes=BYTES * TOKENS))
    world.go_on(operation, rounds=2)
    assert codes(operation, first) == {"contradicted:announced-again"}
    (condition,) = (
        c for c in operation_view(operation, now=datetime.now(UTC))["conditions"] if c["type"] == "Consistent"
    )
    assert world.go_on(operation, rounds=3) in ("working", "quiet"), condition
