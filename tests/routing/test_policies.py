from datetime import UTC, datetime

import psycopg
import pytest

from audit.models import Event
from kvconsole.infra import sql
from kvconsole.infra.access import system
from kvconsole.infra.rest import Problem
from kvcore.policies import built_in
from routing import policies
from tests.routing.deciding import Stand, worker

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 30, tzinfo=UTC)
WHO = system("test")


def put(name="default", **document):
    return policies.policy_put(name=name, document={"kind": "predicted", **document}, actor=WHO, now=NOW)


def code(**fields):
    with pytest.raises(Problem) as e:
        put(**fields)
    return e.value.code


def test_kinds_have_a_built_in_version_and_other_names_none():
    assert policies.policy_find("linear").version == 0
    assert policies.policy_find("default").kind == "predicted"
    assert policies.policy_find("nobody") is None


def test_a_change_is_a_version_with_one_event():
    before = Event.objects.count()
    first, second = put(params={"stickiness_cap": 2.0}), put(kind="linear")
    assert (first.version, second.version) == (1, 2)
    assert first.document["params"]["stickiness_cap"] == 2.0
    assert policies.policy_find("default") == second
    assert Event.objects.count() == before + 2
    with sql.connect("operator") as cx, pytest.raises(psycopg.errors.InsufficientPrivilege):
        cx.execute("UPDATE routing_policy SET version = 9")


def test_what_is_no_policy_is_refused_with_its_place():
    assert code(params={"stickiness_cap": -1}) == "policy-invalid"
    assert code(params={"mystery": 1}) == "policy-invalid"
    assert code(kind="magic") == "policy-invalid"
    assert code(name="Bad Name") == "policy-invalid"
    put("one", model="m1")
    assert code(name="two", model="m1") == "policy-model-taken"
    assert put("one", model="m1").version == 2


def test_a_dry_run_says_what_would_change_and_changes_nothing():
    stand = Stand(worker("a", load={"queue_ms": 0.0}), worker("b", load={"queue_ms": 1.0}))
    stand.holds("b", 40)
    for _ in range(4):
        stand.route()
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    now, then = policies.dry_run(name="default", document={"kind": "round_robin"})
    assert (now.policy, now.version, now.requests, now.changed) == ("default", 0, 4, 0)
    assert (then.version, then.kind, then.requests) == (1, "round_robin", 4)
    assert then.changed > 0
    assert policies.policy_find("default").version == 0
    found = policies.compared(["predicted", "random", "nobody"])
    assert [c.policy for c in found] == ["predicted", "random"]


def test_a_document_reads_back_as_itself():
    read = policies.policy_read(
        "tree_p2c", 3, {"kind": "tree_p2c", "params": built_in("tree_p2c").document()["params"]}
    )
    assert read.params == built_in("tree_p2c").params
