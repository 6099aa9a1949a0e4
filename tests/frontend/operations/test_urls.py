"""Every role of the fleet on every page of operations: who may not is refused, and no link leads to a refusal."""

import re

import pytest
from django.urls import Resolver404, resolve, reverse

from frontend.operations import urls
from kvconsole.infra.access import Evidence, rule_for
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db
ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")
THINGS = {"plan_id": "plan-R3", "operation_id": "erasing", "step_id": "receipt", "approval_id": "approval",
          "certificate_id": "certificate-completed", "hold_id": "hold-active", "pin_id": "pin",
          "window_id": "window-own", "name": "node"}  # fmt: skip
"""Parameter → what is planted of it."""


def addresses(made):
    """Name of each page → its address."""
    found = {}
    for pattern in urls.urlpatterns:
        names = list(pattern.pattern.converters)
        if set(names) <= set(THINGS):
            own = dict.fromkeys(names, made["plan-epoch"]) if pattern.name == "page-plan-retire" else {}
            found[pattern.name] = reverse(pattern.name, kwargs={n: made[THINGS[n]] for n in names} | own)
    assert set(found) == {pattern.name for pattern in urls.urlpatterns}
    return found


def refused(page, asker):
    """Links of the page that this role may not follow."""
    found = set()
    for link in re.findall(r'href="(/[^"#?]*)', page.content.decode()):
        try:
            rule = rule_for(resolve(link).url_name, "GET")
        except Resolver404:
            continue
        if rule is not None and not rule.allows(asker):
            found.add(link)
    return found


def walked(who, asker, pages, *, absent):
    """The pages that this role is shown; every other one is refused, and no link leads to one that is."""
    shown = set()
    for name, path in pages.items():
        rule, page = rule_for(name, "GET"), who.get(path)
        if rule is None:
            assert page.status_code == 405, name
        elif not rule.allows(asker):
            assert page.status_code in absent, name
        else:
            assert page.status_code == 200, (name, page.status_code)
            shown.add(name)
        if page.status_code == 200 and "text/html" in page["Content-Type"]:
            assert not refused(page, asker), name
    return shown


@pytest.mark.parametrize("role", ROLES)
def test_whom_the_registry_lets_in_sees_the_page_and_only_links_for_them(made, person, role):
    shown = walked(proved(person(role)), principal(None, role), addresses(made), absent=(403,))
    assert "page-operations" in shown
    assert ("page-operation-stop" in shown) == (role == "destructive-operator")
    assert ("page-approval-approve" in shown) == (role == "approver")


def test_what_changes_something_leaves_an_event_and_asks_for_a_proof_where_it_cannot_be_undone():
    for pattern in urls.urlpatterns:
        rule = rule_for(pattern.name, "POST")
        if rule is None or pattern.name in ("page-deletion-new", "page-epoch-retire"):  # they only plan
            continue
        assert rule.evidence is Evidence.AUDITED, pattern.name
    for name in ("page-plan-confirm", "page-plan-retire", "page-operation-stop", "page-hold-release",
                 "page-approval-approve", "page-window-remove"):  # fmt: skip
        assert rule_for(name, "POST").step_up, name
