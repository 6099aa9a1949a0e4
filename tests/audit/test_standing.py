"""What cannot be undone waits for a log that is sequenced, signed and cosigned in time; ordinary work does not."""

import time
import uuid

import pytest

from audit import standing
from audit.retention import retentions_due
from kvconsole.infra import sql
from kvconsole.settings import base
from tests.tenants.making import a_tenant
from tests.tenants.persons import OPERATOR, Person

LATE = 60.0
SIGNED = "UPDATE audit_signing SET size = 2, note = 'n', signed_at = clock_timestamp(), signer = 'ok' RETURNING size"


@pytest.fixture(autouse=True)
def a_minute(settings):
    """As outside of tests, which have the log sealed when they say so."""
    settings.LOG_LATE_SECONDS = LATE


def after(seconds):
    return standing.hindrance(at=time.time() + seconds)


def test_an_event_may_wait_for_a_minute():
    assert base.LOG_LATE_SECONDS == LATE


def test_an_empty_log_hinders_nothing(log):
    assert after(3600) == ""


def test_it_is_the_part_that_is_down_for_a_minute(log, settings):
    log.events(2)
    assert (after(0), after(50), after(70)) == ("", "", "sequencer")
    log.seal()
    assert (after(50), after(70)) == ("", "signer")
    log.rows(SIGNED)
    assert (after(70), after(110), after(130)) == ("", "", "signer")  # silence is one only without its heartbeat
    settings.WITNESS_URL = "http://127.0.0.1:1"
    assert (after(50), after(70)) == ("", "witness")
    log.rows("UPDATE audit_signing SET witness_size = 2, cosigned_at = clock_timestamp() RETURNING size")
    assert (after(70), after(110)) == ("", "")
    log.rows("UPDATE audit_signing SET signed_at = clock_timestamp() + interval '1 hour' RETURNING size")
    assert after(130) == "witness"
    log.rows("UPDATE audit_signing SET signer = 'refused' RETURNING size")
    assert after(0) == "refused"


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_through_rest_what_destroys_or_widens_is_503_and_all_else_goes_on(sealed):
    operator, auditor, second = Person(*OPERATOR), Person("auditor"), Person("approver")
    eraser = Person("destructive-operator")
    own, other = a_tenant(classes=["public", "restricted"]), a_tenant()
    wish = {"name": "g", "owner_tenant": own.slug, "audience": [other.slug], "reason": "r", "expires_at": later(30)}
    group = operator.post("/share-groups", wish)
    assert group.status_code in (201, 202), group.json()
    retention = operator.post("/audit/retentions", {"class": 1, "month": "2021-03"}).json()
    somebody = operator.post("/people", {"username": f"p{uuid.uuid4().hex[:8]}", "roles": ["viewer"], "how": "none"})
    assert somebody.status_code == 201, somebody.json()
    sealed()
    with sql.connect("seq") as c:
        c.execute("UPDATE audit_signing SET signer = 'refused', signer_why = 'log-shrunk'")
    place, any_ = f"/tenants/{own.slug}", {"If-Match": "*"}
    closed = {
        "export": auditor.post("/audit/exports", {}, **{"Idempotency-Key": "k"}),
        "key destruction": operator.post(f"/people/{somebody.json()['id']}:shred", {}),
        "retention": operator.post("/audit/retentions", {"class": 2, "month": "2021-03"}),
        "approval": second.post(f"/approvals/{retention['id']}:approve", {"reason": ""}),
        "widening": second.post(f"/share-groups/{group.json()['id']}:approve", {}),
        "isolation": operator("PATCH", f"/tenants/{a_tenant(isolation='arena').slug}", {"isolation": "shared"}, **any_),
        "eviction": operator("PUT", f"{place}/quotas", {"tiers": {}, "evict": True}, **any_),
        "nodes": operator("PUT", f"{place}/nodes", {"nodes": [], "evict": True}, **any_),
        "classes": operator("PUT", f"{place}/classes", {"rules": {"restricted": {"tiers": None}}}, **any_),
        "tenant": eraser("DELETE", f"/tenants/{a_tenant().slug}"),
    }
    assert {name: answer.json().get("code") for name, answer in closed.items()} == dict.fromkeys(
        closed, "audit-unavailable"
    )
    assert {answer.status_code for answer in closed.values()} == {503}
    assert all(answer["Retry-After"] == "10" for answer in closed.values())
    assert retentions_due() == 0
    open_ = [
        operator.post("/tenants", {"slug": f"t{uuid.uuid4().hex[:8]}", "name": "n"}),
        operator("PUT", f"{place}/quotas", {"tiers": {}}, **any_),
        operator("PUT", f"{place}/classes", {"rules": {"restricted": {"tiers": ["dram"]}}}, **any_),
        operator.post(f"/share-groups/{group.json()['id']}:revoke", {"reason": "r"}),
        second.post(f"/approvals/{retention['id']}:deny", {"reason": ""}),
        auditor.post("/audit:verify", {}, **{"Idempotency-Key": "k2"}),
    ]
    assert [(a.status_code, a.json().get("code")) for a in open_ if a.status_code >= 400] == []


def later(days):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + days * 86_400))
