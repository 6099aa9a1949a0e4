"""Every role on every page of the log: who may not is refused, and no page has a link that leads to a refusal."""

import re

import pytest
from django.urls import reverse

from audit import selectors
from audit.approvals import approvals
from frontend.audit import urls
from kvconsole.infra.access import rule_for, system, tenant_context
from tests.conftest import TEST_DATABASE
from tests.frontend import plant_audit
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import a_tenant, principal, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
FLEET = ("viewer", "operator", "destructive-operator", "approver", "auditor")
TENANT = ("tenant-admin", "tenant-member")
SHOWN = (200, 302)
CLOSED = (403, 404, 405)
NOT_NOW = (409, 410, 503)
"""Files that are not there yet, or not any more."""
ASKED = {"page-audit-consistency": "?old=1"}
ABSENT = {"page-audit-log-record": (404,)}
"""The first log has no record by which it goes on after another."""


@pytest.fixture
def planted(postgres, settings, tmp_path):
    settings.EXPORT_DIR = str(tmp_path / "exports")
    plant_audit.log(postgres.superuser_dsn(TEST_DATABASE))


def paths(event_id, person_id):
    """Name of each page → its address, with things of the fleet, and whether it is of such a thing."""
    with tenant_context(system("test")):
        ids = {
            "event_id": event_id,
            "job_id": selectors.jobs().filter(state="running").get().id,
            "webhook_id": selectors.webhooks().get().id,
            "approval_id": approvals().get(kind="audit_retention").id,
            "finding_id": selectors.findings().get().id,
            "number": 1,
            "person_id": person_id,
        }
        end = {"approval_id": approvals().get(kind="audit_epoch").id}
    wanted = {pattern.name: pattern.pattern.converters for pattern in urls.urlpatterns}
    found = {}
    for name, names in wanted.items():
        its = ids | (end if name.startswith("page-audit-log-") else {})
        found[name] = (reverse(name, kwargs={one: its[one] for one in names}), bool(names))
    return found


def links(page):
    return {
        link.split("#")[0].replace("&amp;", "&") for link in re.findall(r'href="(/[^"]*)"', page.content.decode())
    } - {""}


@pytest.mark.parametrize("role", [*FLEET, *TENANT])
def test_no_page_refuses_whom_the_registry_lets_in_and_no_link_leads_to_a_refusal(planted, person, role):
    tenant = a_tenant(slug=some("t")) if role in TENANT else None
    who = proved(person(role, tenant=tenant))
    newest = selectors.selected(selectors.EventFilter(action="user.created")).order_by("-id").first()
    asker, followed = principal(tenant, role), set()
    for name, (path, of_one) in paths(newest.event_id, newest.object_id).items():
        rule = rule_for(name, "GET")
        page = who.get(path + ASKED.get(name, ""))
        if rule is None:
            assert page.status_code == 405, name
        elif not rule.allows(asker):
            assert page.status_code == 403, name
        else:
            foreign = (404,) if tenant and of_one else ABSENT.get(name, ())
            assert page.status_code in (*SHOWN, *NOT_NOW, *foreign), name
        if page.status_code == 200 and "text/html" in page["Content-Type"]:
            for link in links(page) - followed:
                followed.add(link)
                assert link.startswith("/static/") or who.get(link).status_code not in CLOSED, f"{path} → {link}"
    assert ("/audit" in followed) == (role in ("operator", "auditor", *TENANT))


@pytest.mark.parametrize("role", FLEET)
def test_everybody_of_the_fleet_finds_the_log_in_the_rail(person, role):
    page = person(role).get("/docs/ui")
    assert any(e["entry"].route == "page-audit" for e in page.context["console"]["entries"])
