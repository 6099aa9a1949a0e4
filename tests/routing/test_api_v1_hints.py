"""REST of hints about sessions: who serves a session says that it has ended, and what was cached of it goes."""

import json

import pytest

from audit import refusals
from audit.models import Event
from catalog.models import Operation
from tests.catalog.test_api_operations import codes
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
END = {"event": "end"}
TOOL = {"event": "tool_start", "eta_ms": 3000}
REFUSED, UNCHANGED, ENDED = 0x02F0, 0x02F3, 0x050F


@pytest.fixture
def tenant(settings, transactional_db):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    made = a_tenant(erasure_scope="session")
    a_namespace(made, session="s1")
    return made


@pytest.mark.parametrize("own", [True, False])
def test_a_session_ends_once_however_often_it_is_said(caller, tenant, own):  # noqa: F811
    of = {"tenant": tenant} if own else {}
    gateway = caller("gateway", scopes=("sessions:write",), kind="gateway", holder="g1", **of)
    body = END if own else {**END, "tenant": tenant.slug}
    first = gateway("POST", "/sessions/s1/hints", body)
    assert first.status_code == 202, first.content
    assert gateway("POST", "/sessions/s1/hints", body).json() == first.json()
    operation = Operation.objects.get()
    assert (str(operation.id), operation.trigger) == (first.json()["operation"], "session_end")
    assert operation.fenced_at is not None
    assert gateway("POST", "/sessions/never/hints", body).json() == {"operation": None}


def test_refusals(caller, tenant):  # noqa: F811
    other = a_tenant(erasure_scope="label")
    staff = caller("operator", scopes=("sessions:write",))
    assert codes(staff("POST", "/sessions/s1/hints", END)) == (400, "validation-failed")
    assert codes(staff("POST", "/sessions/s1/hints", {**END, "tenant": other.slug})) == (422, "not-separable")
    assert codes(staff("POST", "/sessions/s1/hints", {**END, "tenant": "nobody-here"})) == (404, "not-found")
    theirs = caller("tenant-admin", tenant=other, scopes=("sessions:write",))
    assert codes(theirs("POST", "/sessions/s1/hints", {**END, "tenant": tenant.slug})) == (404, "not-found")
    assert codes(caller("viewer")("POST", "/sessions/s1/hints", END)) == (403, "forbidden")
    assert not Operation.objects.exists()


@pytest.fixture
def nothing_seen():
    refusals._calls._seen.clear()
    yield
    refusals._calls._seen.clear()


def told(*types):
    """Of each event of these types: its code, or why it changed nothing; of an end, that it is one."""
    rows = Event.objects.defer("pii_ct", "pii_key").filter(event_type__in=types).order_by("id")
    data = [json.loads(bytes(row.body))["data"] for row in rows]
    return [said.get("code") or said.get("why") or "ended" for said in data]


def test_an_end_leaves_one_event_done_or_refused_and_a_tool_none(caller, tenant, nothing_seen):  # noqa: F811
    gateway = caller("gateway", scopes=("sessions:write",), kind="gateway", holder="g1")
    path, own, nobodys = "/sessions/s1/hints", {"tenant": tenant.slug}, {"tenant": "nobody-here"}
    assert gateway("POST", path, {**END, **own}).status_code == 202
    assert told(REFUSED, UNCHANGED, ENDED) == ["ended"]
    assert codes(gateway("POST", path, {**END, **nobodys})) == (404, "not-found")
    assert told(REFUSED, UNCHANGED) == ["not-found"]
    assert gateway("POST", f"{path}?validate_only=true", {**END, **own}).status_code == 202
    assert told(UNCHANGED) == ["rehearsal"]
    before = told(REFUSED, UNCHANGED, ENDED)
    assert codes(gateway("POST", path, {**TOOL, **nobodys})) == (404, "not-found")
    assert codes(gateway("POST", path, TOOL)) == (400, "validation-failed")
    assert gateway("POST", f"{path}?validate_only=true", {**TOOL, **own}).status_code == 202
    for replayed in (None, "true"):
        answer = gateway("POST", path, {**TOOL, **own}, **{"Idempotency-Key": "k1"})
        assert (answer.status_code, answer.headers.get("Idempotency-Replayed")) == (202, replayed)
    refusals.tell(everything=True)
    assert told(REFUSED, UNCHANGED, ENDED) == before, "counted"


def test_what_is_refused_before_it_is_known_which_hint_it_is_is_an_event(caller, tenant, nothing_seen):  # noqa: F811
    assert codes(caller("viewer")("POST", "/sessions/s1/hints", TOOL)) == (403, "forbidden")
    gateway = caller("gateway", tenant=tenant, scopes=("sessions:write",), kind="gateway", holder="g1")
    assert codes(gateway("POST", "/sessions/s1/hints", {"event": "nap"})) == (400, "validation-failed")
    assert told(REFUSED) == ["forbidden", "validation-failed"]
