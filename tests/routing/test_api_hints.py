"""REST of hints, advisories, trust and lost hits: counted, of one's own tenant, and clear about what is wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from catalog.models import Pin
from kvconsole.infra.access import Evidence, rule_for, unregistered
from routing.models import Announcement, TrustDay
from tests.catalog.test_api_operations import codes
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SCOPES = ("sessions:write", "sessions:read", "advisories:write", "tenants:read", "lost-hits:read")
START = {"event": "tool_start", "eta_ms": 3000}
KEY = "ab" * 32


@pytest.fixture
def tenant(settings, transactional_db):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    made = a_tenant(erasure_scope="session")
    TrustDay.objects.create(tenant_id=made.id, day=datetime.now(UTC).date(), came=96, missed=0)
    return made


def far(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_advisories_and_reads_are_counted_and_not_audited():
    calls = [("session-hints", "GET"), ("advisories", "POST"), ("tenant-trust", "GET"), ("lost-hits", "GET")]
    assert unregistered() == []  # routes enter the registry as this loads them
    assert {rule_for(name, method).evidence for name, method in calls} == {Evidence.COUNTED}


def test_a_tool_that_runs_is_announced_and_read_back(caller, tenant):  # noqa: F811
    a_namespace(tenant, session="s1")
    gateway = caller("gateway", tenant=tenant, scopes=SCOPES, kind="gateway", holder="g1")
    made = gateway("POST", "/sessions/s1/hints", START)
    assert made.status_code == 202, made.content
    said = made.json()
    assert (said["effect"], said["reason"], said["slot_kept"], said["operation"]) == ("kept", "", False, None)
    read = gateway("GET", "/sessions/s1/hints").json()
    assert [one["id"] for one in read["items"]] == [said["id"]]
    assert (read["items"][0]["state"], read["trust"]["came"], read["trust"]["open"]) == ("open", 96, 1)
    assert gateway("GET", f"/tenants/{tenant.slug}/trust").json()["share"] == pytest.approx(0.97)
    assert gateway("GET", "/sessions/s2/hints").json()["items"] == []


def test_a_rehearsal_keeps_nothing(caller, tenant):  # noqa: F811
    a_namespace(tenant, session="s1")
    gateway = caller("gateway", tenant=tenant, scopes=SCOPES, kind="gateway", holder="g1")
    before = Event.objects.count()
    assert gateway("POST", "/sessions/s1/hints?validate_only=true", START).status_code == 202
    assert not Pin.objects.exists()
    assert not Announcement.objects.exists()
    assert Event.objects.count() == before


@pytest.mark.parametrize(
    ("body", "refused"),
    [({"event": "tool_start"}, (400, "validation-failed")), ({"event": "nap"}, (400, "validation-failed")),
     ({**START, "eta_ms": -1}, (400, "out-of-range")), ({**START, "eta_ms": 1e12}, (400, "out-of-range")),
     ({**START, "confidence": 2}, (400, "out-of-range")), ({**START, "block_keys": [KEY]}, (400, "validation-failed")),
     ({**START, "namespace": KEY}, (400, "validation-failed")), ({**START, "slot": True}, (400, "unknown-field")),
     ({**START, "namespace": KEY, "block_keys": [KEY]}, (404, "not-found")),
     ({**START, "namespace": KEY, "block_keys": ["x"]}, (400, "validation-failed")),
     ({**START, "tenant": "nobody-here"}, (404, "not-found"))],
)  # fmt: skip
def test_hints_that_are_none(caller, tenant, body, refused):  # noqa: F811
    gateway = caller("gateway", tenant=tenant, scopes=SCOPES, kind="gateway", holder="g1")
    assert codes(gateway("POST", "/sessions/s1/hints", body)) == refused
    assert not Announcement.objects.exists()


def advisory(**more):
    return {"namespace": KEY, "block_keys": [KEY], "node": "n1", "need_at": far(60), "expires_at": far(90)} | more


def test_a_prefix_is_announced_for_ones_own_namespace_alone(caller, tenant):  # noqa: F811
    namespace, foreign = a_namespace(tenant, session="s1"), a_namespace(a_tenant())
    gateway = caller("gateway", tenant=tenant, scopes=SCOPES, kind="gateway", holder="g1")
    made = gateway("POST", "/advisories", advisory(namespace=bytes(namespace.digest).hex()))
    assert (made.status_code, made.json()["effect"]) == (202, "wished"), made.content
    for digest in (bytes(foreign.digest).hex(), "cd" * 32):
        assert codes(gateway("POST", "/advisories", advisory(namespace=digest))) == (404, "not-found")
    assert Announcement.objects.count() == 1


@pytest.mark.parametrize("more", [{"priority": 10}, {"block_keys": []}, {"block_keys": ["zz"]}, {"tier": "tape"},
                                  {"need_at": "soon"}, {"need_at": "2020-01-01T00:00:00Z"}])  # fmt: skip
def test_advisories_that_are_none(caller, tenant, more):  # noqa: F811
    namespace = a_namespace(tenant, session="s1")
    gateway = caller("gateway", tenant=tenant, scopes=SCOPES, kind="gateway", holder="g1")
    answer = gateway("POST", "/advisories", advisory(namespace=bytes(namespace.digest).hex(), **more))
    assert answer.status_code == 400, answer.content


def test_lost_hits_are_read_over_a_time(caller, tenant):  # noqa: F811
    staff, mine = caller("viewer", scopes=SCOPES), caller("tenant-member", tenant=tenant, scopes=SCOPES)
    for who, path in ((staff, "/lost-hits"), (staff, f"/lost-hits?tenant={tenant.slug}"), (mine, "/lost-hits")):
        found = who("GET", path).json()
        assert (found["total"]["decisions"], found["steps"], found["step_seconds"]) == (0, [], 60)
        assert len(found["total"]["lost"]) == 10
    for query, refused in (
        ("from=yesterday", (400, "validation-failed")),
        ("from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z", (400, "validation-failed")),
        ("from=2026-03-01T00:00:00Z&to=2026-01-01T00:00:00Z", (400, "validation-failed")),
        ("tenant=nobody-here", (404, "not-found")), (f"namespace={KEY}", (404, "not-found")),
        ("depth=3", (400, "unknown-parameter")),
    ):  # fmt: skip
        assert codes(staff("GET", f"/lost-hits?{query}")) == refused
    assert codes(mine("GET", f"/lost-hits?tenant={a_tenant().slug}")) == (404, "not-found")


def test_who_may_not(caller, tenant):  # noqa: F811
    viewer = caller("viewer", scopes=SCOPES)
    assert codes(viewer("POST", "/sessions/s1/hints", START)) == (403, "forbidden")
    assert codes(viewer("POST", "/advisories", advisory())) == (403, "forbidden")
    assert codes(viewer("GET", "/sessions/s1/hints")) == (400, "validation-failed"), "nobody said whose it is"
