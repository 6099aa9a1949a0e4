"""People with roles of the fleet need a second factor, where the site says so; refusals first."""

import pytest

from catalog.consumers import session_principal
from kvconsole.infra import access
from tests.tenants.browsing import PASSWORD, Browser, code_of, with_passkey
from tests.tenants.making import a_tenant, a_user

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture(autouse=True)
def required(settings):
    settings.REQUIRE_SECOND_FACTOR = True


@pytest.fixture
def browser():
    return Browser()


def test_without_one_only_the_own_account_is_open(browser):
    browser.log_in(a_user(roles=["operator", "viewer"]))
    for path in ("tenants", "me", "people"):
        assert browser.api(path).json()["code"] == "second-factor-needed", path
    for path in ("/nodes", "/settings", "/tokens/new"):
        assert browser.get(path).url == "/account", path
    assert b"Your roles need a second factor" in browser.get("/account").content
    for path in ("/account/password", "/account/totp", "/account/passkeys", "/account/confirm"):
        assert browser.get(path).status_code == 200, path
    who = session_principal(browser.session.session_key)
    assert not who.may("operator", "viewer"), "nor do sockets know such a person"


def test_once_there_is_one_everything_is_open(browser):
    user = a_user(roles=["viewer"])
    browser.log_in(user)
    secret = browser.get("/account/totp").context["form"].secret
    browser.post("/account/totp", {"code": code_of(secret, -1)})
    assert browser.api("tenants").status_code == 200
    assert browser.get("/nodes").status_code == 200
    browser.post("/account/totp/remove")
    assert browser.api("tenants").json()["code"] == "second-factor-needed"


def test_a_passkey_is_one(browser):
    with_passkey(browser, a_user(roles=["viewer"]))
    assert browser.api("tenants").status_code == 200


@pytest.mark.parametrize("roles", [[], ["tenant-member"]])
def test_people_without_roles_of_the_fleet_need_none(browser, roles):
    user = a_user(roles=roles, tenant=a_tenant() if roles else None)
    browser.log_in(user, PASSWORD)
    assert browser.api().status_code == 200


def test_people_of_tenants_need_one_where_the_site_asks_them_too(browser, settings):
    settings.REQUIRE_TENANTS_SECOND_FACTOR = True
    tenant = a_tenant()
    browser.log_in(a_user(roles=["tenant-member"], tenant=tenant))
    assert browser.api("me").json()["code"] == "second-factor-needed"
    assert browser.get(f"/t/{tenant.slug}").url == "/account"
    secret = browser.get("/account/totp").context["form"].secret
    browser.post("/account/totp", {"code": code_of(secret, -1)})
    assert browser.get(f"/t/{tenant.slug}").status_code == 200


def test_where_the_site_does_not_ask_for_one_nobody_needs_one(browser, settings):
    settings.REQUIRE_SECOND_FACTOR = False
    browser.log_in(a_user(roles=["operator"]))
    assert browser.api("tenants").status_code == 200


def test_only_routes_of_the_own_account_are_open_to_who_owes_something():
    during = {name for name, rules in access.registry().items() if any(rule.during for rule in rules.values())}
    assert {n for n in during if not n.startswith("mfa_")} == {
        "page-account", "page-confirm", "page-password", "page-logout", "page-unlink",
    }  # fmt: skip
    first = {n for n in during if any("own-password-needed" in r.during for r in access.registry()[n].values())}
    assert first == {"page-confirm", "page-password", "page-logout"}
