"""Reading the log: filters, pages, places, and what its readers see of people."""

import uuid
from datetime import timedelta

import pytest
from django.db import transaction

from audit import disclosure, selectors
from audit.selectors import EventFilter
from audit.services import record
from kvconsole.infra import keystore
from kvconsole.infra.access import system, tenant_context
from tests.tenants.making import a_tenant, a_user, principal, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
AUDITOR = principal(None, "auditor")


def told(count=1, *, actor=None, tenant=None, kind="log.note", outcome="success", object_id="o", pii=None, request=""):
    made = []
    for n in range(count):
        with transaction.atomic():
            body = {"note": str(n)} if kind == "log.note" else {"kind": "user", "reason": "r"}
            made.append(
                record(
                    event_type=kind, outcome=outcome, actor=actor or system("test"), tenant_id=tenant,
                    object_kind="thing", object_id=object_id, body=body, pii=pii, request_id=request,
                )
            )  # fmt: skip
    return made


def found(reader=AUDITOR, **fields):
    return [view.id for view in selectors.events(EventFilter(**fields), reader=reader).items]


def sealed_of(row):
    return disclosure.sealed_of({row.id: row.time_us})[row.id]


def ids(*events):
    return [event.event_id for event in reversed(events)]


def test_every_filter_finds_its_own():
    tenant, person = a_tenant(), principal(None, "operator")
    mine = told(2, actor=person)
    theirs = told(tenant=tenant.id, object_id="x")
    refused = told(outcome="denied", request="req-1")
    revoked = told(kind="token.revoked")
    assert found(actor=f"user:{person.id}") == found(actor=person.id) == ids(*mine)
    assert found(actor=bytes(mine[0].actor_ref).hex()) == ids(*mine)
    assert found(tenant=tenant.slug, object="thing") == found(tenant=str(tenant.id), object="thing") == ids(*theirs)
    assert found(object="thing:x") == ids(*theirs)
    assert found(outcome="denied") == ids(*refused)
    assert found(request_id="req-1") == ids(*refused)
    assert found(action="token.revoked") == found(action="token") == found(action="token.*") == ids(*revoked)
    assert found(action="log", object="thing", tenant="platform")[0] == refused[0].event_id
    assert found(actor="nobody-of-this-name") == found(tenant="no-such") == found(action="no.such") == []


def test_a_person_is_found_by_name_and_in_a_span_of_time():
    user = a_user()
    person = principal(None, "operator")
    person = person.__class__(kind="user", id=str(user.id), roles=person.roles, user_id=str(user.id))
    (event,) = told(actor=person)
    assert event.event_id in found(actor=user.username)
    at = selectors.moment(event.time_us)
    assert found(actor=user.username, object="thing", since=at, until=at + timedelta(microseconds=1)) == ids(event)
    assert found(actor=user.username, object="thing", since=at + timedelta(microseconds=1)) == []
    assert found(actor=user.username, until=at) == [i for i in found(actor=user.username) if i != event.event_id]
    assert selectors.actor_said(user.username) == f"user:{user.id}"
    assert selectors.actor_said("") == ""
    assert selectors.actor_said("nobody-of-this-name") == "nobody:unknown"


def test_pages_follow_each_other_both_ways_and_nothing_shifts():
    events = told(7, object_id=some())
    asked = EventFilter(object=f"thing:{events[0].object_id}")
    first = selectors.events(asked, reader=AUDITOR, limit=3)
    told(2, object_id=events[0].object_id)
    second = selectors.events(asked, first.older, reader=AUDITOR, limit=3)
    third = selectors.events(asked, second.older, reader=AUDITOR, limit=3)
    assert [v.id for page in (first, second, third) for v in page.items] == ids(*events)
    assert third.older == ""
    again = selectors.events(asked, third.newer, reader=AUDITOR, limit=3)
    assert [v.id for v in again.items] == [v.id for v in second.items]
    assert selectors.events(asked, "garbage", reader=AUDITOR, limit=3).items[0].id != first.items[0].id


def test_each_event_has_its_place_once_it_is_in_the_log(sealed):
    (event,) = told()
    (view,) = [v for v in selectors.events(EventFilter(), reader=AUDITOR).items if v.id == event.event_id]
    assert view.index is None
    size = sealed()
    (view,) = [v for v in selectors.events(EventFilter(), reader=AUDITOR).items if v.id == event.event_id]
    assert view.index == size - 1
    assert len(view.leaf_hash) == 64
    assert (view.action, view.data, view.outcome) == ("log.note", {"note": "0"}, "success")
    assert selectors.event(event.event_id).id == event.id
    assert selectors.event(uuid.uuid4()) is None


def test_personal_data_is_for_auditors_while_its_key_lives():
    (event,) = told(actor=principal(None, "operator"), pii={"name": "Ada"})
    row = selectors.event(event.event_id)
    key = sealed_of(row).key
    operator = principal(None, "operator")
    assert [v.personal for v in selectors.event_views([row], reader=AUDITOR)] == [{"name": "Ada"}]
    assert [v.personal for v in selectors.event_views([row], reader=operator)] == ["sealed"]
    keystore.keystore().destroy(f"subject-{key.hex()}")
    assert [v.personal for v in selectors.event_views([row], reader=AUDITOR)] == ["shredded"]
    assert [v.personal for v in selectors.event_views([row], reader=operator)] == ["sealed"]


def test_a_tenant_sees_its_own_events_whatever_is_asked():
    mine, other = a_tenant(), a_tenant()
    (own,), (foreign,), (platform,) = told(tenant=mine.id), told(tenant=other.id), told()
    with tenant_context(principal(mine, "tenant-admin")):
        seen = found(principal(mine, "tenant-admin"), object="thing")
        assert seen == [own.event_id]
        assert found(principal(mine), tenant=other.slug) == found(principal(mine), tenant=str(other.id)) == []
        assert found(principal(mine), tenant="platform") == []
        assert selectors.event(foreign.event_id) is None
        assert selectors.event(platform.event_id) is None
        assert selectors.event(own.event_id).id == own.id
