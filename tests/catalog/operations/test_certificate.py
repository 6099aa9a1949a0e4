"""The certificate of a deletion, as somebody checks it who trusts nobody here."""

import json

import pytest

from audit import signing
from audit.certifying import certificate_of_operation
from audit.verifier import kvc_verify
from catalog.models import Step
from catalog.operations.certificate import certificate_text
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def verdict(path, operation):
    """The report of the verifier over the file that is handed out."""
    keys = signing.public_keys()
    assert not isinstance(keys, signing.NotAnswered)
    path.write_bytes(certificate_text(certificate_of_operation(operation.id)))
    words = ["certificate", str(path), "--key", keys.log, "--key", keys.export]
    return json.loads(kvc_verify.run(kvc_verify.arguments().parse_args(words)).as_json())


def held(world):
    namespace, first, second = world.namespace(), world.node("n1"), world.node("n2")
    world.hold(first, namespace, 1, 2)
    return first, second


def test_the_verifier_agrees_and_finds_its_order_in_the_log(world, tmp_path):
    first, _ = held(world)
    first.mood = "leased"
    operation = asked(world)
    world.acknowledged()
    world.go_on(operation, rounds=2)
    first.mood = "well"
    world.ordered_anew(operation)
    assert world.go_on(operation, rounds=8).startswith("completed")
    found = verdict(tmp_path / "certificate.json", operation)
    assert (found["verdict"], found["problems"], found["reasons"]) == ("valid", [], [])
    assert found["certificate"]["operation"] == str(operation.id)
    assert found["certificate"]["copies"] == 4
    assert found["event"]["event_type"] == 0x0501


def test_a_node_that_contradicted_itself_is_said_to_the_end(world, tmp_path, monkeypatch):
    monkeypatch.setattr("kvcore.plan_steps.WAIT_SECONDS", 0.0)
    first, _ = held(world)
    operation = asked(world)
    world.acknowledged()
    first.mood = "forks"
    world.go_on(operation, rounds=2)
    codes = Step.objects.filter(operation=operation.id).values_list("code", flat=True)
    assert "contradicted:receipt-chain-forked" in set(codes)
    first.mood = "well"
    assert world.go_on(operation, rounds=12) == "completed_with_exceptions"
    found = verdict(tmp_path / "certificate.json", operation)
    assert (found["verdict"], found["problems"]) == ("valid", [])
    assert found["certificate"]["class"] in ("E0", "E1")
    assert "CONTRADICTED" in found["certificate"]["flags"]
