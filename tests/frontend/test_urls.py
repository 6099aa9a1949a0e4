"""Who may see which page."""

import pytest

from kvconsole.infra.access import registry

FLEET_PAGES = ("/", "/map", "/nodes", "/nodes/fra-p2", "/tenants", "/tenants/acme-code", "/epochs", "/settings")
pytestmark = pytest.mark.django_db


def test_every_page_is_in_the_registry():
    from frontend import urls

    assert {p.name for p in urls.urlpatterns} <= registry().keys()
    of_allauth = ("account_", "mfa_", "openid_connect_", "socialaccount_")
    assert all(p.name.startswith(("page-", *of_allauth)) for p in urls.urlpatterns)


@pytest.mark.parametrize("path", FLEET_PAGES)
def test_strangers_are_sent_to_the_log_in(client, path):
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 302
    assert answer.url.startswith("/login?next=")


@pytest.mark.parametrize("role", ["viewer", "operator", "destructive-operator", "approver", "auditor"])
def test_roles_of_the_fleet_may_look(planted, person, role):
    who = person(role)
    assert [who.get(path).status_code for path in FLEET_PAGES] == [200] * len(FLEET_PAGES)


def test_pages_take_no_other_method(person):
    assert person("viewer").post("/nodes").status_code == 405
