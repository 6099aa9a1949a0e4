"""A second person agrees: refusals first, then decisions, once, by somebody else, told to their owner."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from audit import approvals
from audit.models import Approval, Event
from audit.services import record
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore.leaf import APPROVAL

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
TOLD = []


def sender(name, *arguments):
    TOLD.append((name, *arguments))


def person(*roles, at=NOW):
    return Principal(kind="user", id=str(uuid7()), roles=frozenset(roles or ("approver",)), proved_at=at.timestamp())


def asked(by=None, **fields):
    by = by or person("operator")
    given = {"kind": "share_group", "object_id": str(uuid7()), "tenant_id": PLATFORM, "what": {"n": 2**60, "at": NOW},
             "risk": "R2", "actor": by, "expires_at": NOW + timedelta(days=7), "now": NOW, **fields}  # fmt: skip
    with transaction.atomic():
        found = approvals.approval_request(**given)
        record(event_type="log.note", outcome="success", actor=by, tenant_id=None, object_kind="test", object_id="",
               body={"note": "asked"})  # fmt: skip
    return found


def refused(code, **fields):
    given = {"approve": True, "actor": person(), "now": NOW, **fields}
    with pytest.raises(Problem) as caught:
        approvals.approval_decide(**given)
    assert caught.value.code == code


def test_who_asked_does_not_decide_whatever_roles_they_have():
    me = person("operator", "approver")
    one = asked(me)
    refused("approval-own", approval_id=one.id, actor=me)
    refused("approval-own", approval_id=one.id, actor=me, approve=False)
    with pytest.raises(IntegrityError), transaction.atomic():
        Approval.objects.filter(id=one.id).update(state="approved", decided_by=me.subject)


def test_only_a_person_decides_who_has_just_proved_themselves():
    one = asked()
    for kind in ("token", "gateway", "node", "system"):
        refused("person-needed", approval_id=one.id, actor=replace(person(), kind=kind))
    refused("step-up-required", approval_id=one.id, actor=person(at=NOW - timedelta(seconds=301)))
    assert Approval.objects.get(id=one.id).state == "open"


def test_what_is_not_there_decided_or_too_late_is_not_decided():
    one = asked()
    refused("not-found", approval_id=uuid7())
    late = NOW + timedelta(days=7)
    refused("approval-expired", approval_id=one.id, now=late, actor=person(at=late))
    assert approvals.approval_state(one, NOW + timedelta(days=7)) == "expired"
    approvals.approval_decide(approval_id=one.id, approve=False, actor=person(), now=NOW, reason="no")
    refused("approval-decided", approval_id=one.id)
    refused("approval-decided", approval_id=one.id, approve=False)


def test_a_kind_without_an_owner_and_a_risk_that_is_none_are_bugs():
    for fields in ({"kind": "nothing"}, {"risk": "R9"}):
        with pytest.raises(ValueError, match="is no risk"):
            asked(**fields)


@pytest.mark.django_db(transaction=True)
def test_a_decision_is_an_event_and_its_owner_is_told_by_name_after_commit(settings):
    settings.TASK_SENDER = f"{__name__}.sender"
    TOLD.clear()
    who, one = person(), asked()
    found = approvals.approval_decide(approval_id=one.id, approve=True, actor=who, now=NOW, reason="fine")
    assert (found.state, found.decided_by, found.reason) == ("approved", who.subject, "fine")
    assert [("tenants.approval_decided", one.object_id)] == TOLD
    event = Event.objects.only("id", "flags", "body").latest("id")
    assert event.flags & APPROVAL
    body = json.loads(bytes(event.body))
    assert body["action"] == "approval.decided"
    assert body["data"] == {
        "kind": "share_group", "object": one.object_id, "decision": "approved", "risk": "R2",
    }, "what was typed is sealed"  # fmt: skip
    assert one.what == {"n": str(2**60), "at": "2026-09-01T12:00:00Z"}


def test_what_is_withdrawn_waits_for_nobody():
    one, other = asked(), asked()
    with transaction.atomic():
        approvals.approval_withdraw(kind="share_group", object_id=one.object_id, tenant_id=one.tenant_id, now=NOW)
        record(event_type="log.note", outcome="success", actor=None, tenant_id=None, object_kind="test", object_id="",
               body={"note": "withdrawn"})  # fmt: skip
    assert [a.id for a in approvals.approvals("open")] == [other.id]
    assert approvals.approval_of("share_group", one.object_id, tenant_id=one.tenant_id).state == "withdrawn"
    refused("approval-decided", approval_id=one.id)


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_the_decision_stands(settings):
    settings.TASK_SENDER = f"{__name__}.broken"
    one = asked()
    assert approvals.approval_decide(approval_id=one.id, approve=True, actor=person(), now=NOW).state == "approved"
    assert Approval.objects.get(id=one.id).state == "approved"


def broken(*_):
    raise OSError("the broker is away")
