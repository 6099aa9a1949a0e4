"""Events of one call are one; what a savepoint undid is none; calls of other routes are not touched."""

import json
import uuid

import pytest
from django.db import transaction

from audit.models import Event
from audit.services import record
from kvconsole.infra import evidence, rest
from kvconsole.infra.access import system, tenant_context
from tests.tenants.making import a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
WHO = system("test")


def one(event_type="log.note", tenant=None, **fields):
    body = {
        "log.note": {"note": "n"},
        "token.revoked": {"kind": "user", "reason": "r"},
        "command.ordered": {"step": "s", "kind": "k", "node": "n", "args": {}},
    }[event_type]
    return record(**{
        "event_type": event_type, "outcome": "success", "actor": WHO, "tenant_id": tenant, "object_kind": "x",
        "object_id": some(), "body": body, **fields,
    })  # fmt: skip


def events():
    rows = Event.objects.using("default").defer("pii_ct", "pii_key").exclude(event_type=0x0101).order_by("id")
    return [(json.loads(bytes(row.body)), row) for row in rows]


@pytest.fixture
def call():
    token = rest._request_id.set("r-1")
    with evidence.call() as made:
        evidence.audits(True)
        yield made
    rest._request_id.reset(token)


def test_what_a_call_records_is_one_event_the_most_telling_one(call):
    with tenant_context(WHO):
        one("token.revoked")
        one()
        one("token.revoked", flags=16)
        assert not events(), "it is written at the end"
    ((body, row),) = events()
    assert (body["action"], [part["action"] for part in body["also"]]) == ("log.note", ["token.revoked"] * 2)
    assert (row.request_id, row.flags) == ("r-1", 16)
    assert call.left()


def fails():
    one()
    raise RuntimeError


def test_what_was_undone_is_no_event(call):
    with tenant_context(WHO):
        with pytest.raises(RuntimeError), transaction.atomic():
            fails()
        assert not call.left()
    with pytest.raises(RuntimeError), tenant_context(WHO):
        fails()
    with tenant_context(WHO):
        one()
        transaction.set_rollback(True)
    assert not events()
    assert not call.left()


def test_what_another_tenant_must_not_read_is_an_event_of_its_own_that_names_the_cause(call):
    mine, other = a_tenant(), a_tenant()
    with tenant_context(WHO):
        one("token.revoked", other.id)
        one("token.revoked", None)
        one("log.note", mine.id)
    (main, first), (apart, second) = events()
    assert [part["action"] for part in main["also"]] == ["token.revoked"]
    assert (apart["cause"], second.request_id, second.tenant_id) == (str(first.event_id), "", other.id)
    assert first.request_id == "r-1"


def test_more_than_fits_is_told_one_by_one(call):
    with tenant_context(WHO):
        one()
        for _ in range(103):
            one("token.revoked")
    bodies = [body for body, _ in events()]
    assert len(bodies[0]["also"]) == 100
    assert [body.get("cause") is not None for body in bodies] == [False, True, True, True]


def test_what_others_refer_to_by_its_hash_is_written_at_once(call):
    with tenant_context(WHO):
        made = one("command.ordered")
        assert len(events()) == 1
        assert made.id
    assert len(events()) == 1


def test_personal_data_of_two_people_is_never_sealed_together(call):
    with tenant_context(WHO):
        one(object_kind="user", object_id=str(uuid.uuid4()), pii={"username": "a"})
        one("token.revoked", object_kind="user", object_id=str(uuid.uuid4()), pii={"username": "b"})
    assert len(events()) == 2


def test_calls_of_counted_routes_and_work_outside_of_calls_are_as_they_were():
    with evidence.call(), tenant_context(WHO):
        one()
        one()
    with tenant_context(WHO):
        one()
    assert len(events()) == 3


def test_a_call_that_turns_out_to_be_counted_leaves_none_beside_and_gathers_none(call):
    evidence.counts()
    with tenant_context(WHO):
        one()
        one("token.revoked")
        assert len(events()) == 2, "each at once, as without an audited call"
    assert call.left()
    assert evidence.current() is None
