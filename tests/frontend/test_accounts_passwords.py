"""Passwords and invitations, from outside."""

import re
import uuid

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import URLResolver, get_resolver

from kvconsole.infra import access
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants import api_people, selectors, services
from tenants.models import User
from tests.tenants.browsing import NEW, Browser
from tests.tenants.making import a_user, principal, some, unrecorded

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def browser():
    return Browser()


# --- passwords and invitations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [("short", "short"), ("123456789012345",) * 2, ("password1234",) * 2, (NEW, NEW + "x"), ("", "")],
)
def test_a_password_that_is_no_good_is_refused(browser, first, second):
    user = a_user()
    browser.log_in(user)
    assert b"cannot be used" in browser.post("/account/password", {"password1": first, "password2": second}).content
    assert Browser().log_in(user).status_code == 302


def test_a_new_password_ends_the_other_sessions(browser):
    user, other = a_user(), Browser()
    browser.log_in(user)
    other.log_in(user)
    assert browser.post("/account/password", {"password1": NEW, "password2": NEW}).url == "/account"
    assert browser.get("/account").status_code == 200
    assert other.get("/account").status_code == 302
    assert Browser().log_in(user).status_code == 200
    assert Browser().log_in(user, NEW).status_code == 302


def initial(*roles, **fields):
    """Somebody with a password that another person made: who, and that password."""
    actor = principal(None, "operator")
    return services.person_create(
        username=some("p"), roles=list(roles or ("viewer",)), how="password", actor=actor, **fields
    )


def test_an_initial_password_opens_nothing_but_its_change(browser):
    user, secret = initial()
    assert browser.log_in(user, secret).url == "/account/password"
    assert browser.api("tenants").json()["code"] == "own-password-needed"
    assert b"Somebody else made your password" in browser.get("/account/password").content
    browser.post("/account/password", {"password1": NEW, "password2": NEW})
    assert browser.api("tenants").status_code == 200
    assert not User.objects.get(id=user.id).password_initial


def filled(pattern):
    """An address of the pattern, with something that fits in each place."""
    values = {"uuid": str(uuid.uuid4()), "int": "1", "slug": "x", "path": "x", "str": "platform"}
    return re.sub(r"<(?:(\w+):)?\w+>", lambda found: values[found[1] or "str"], pattern)


def addresses(patterns=None, before="/"):
    """(name, address) of every route that has a plain pattern."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        where = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from addresses(entry.url_patterns, where)
        elif "(" not in where:
            yield entry.name, filled(where)


@committed
def test_with_an_initial_password_every_route_is_closed_but_its_change(browser):
    """Whatever a route asks of others: the registry says so in one place."""
    user, secret = initial("viewer", "operator")
    browser.log_in(user, secret)
    still, refused = {"page-password", "page-confirm", "page-logout"}, 0
    for name, address in addresses():
        for method, rule in access.registry()[name].items():
            if access.PUBLIC in rule.roles or name in still:
                continue
            api = address.startswith("/api/")
            headers = {"accept": "application/json"} if api else {"accept": "text/html"}
            answer = browser.generic(method, address, headers=headers)
            refused += 1
            if api:
                assert (answer.status_code, answer.json()["code"]) == (403, "own-password-needed"), (method, address)
            else:
                assert answer.url == "/account/password", (method, address)
    assert refused > 80
    assert browser.get("/account/confirm").status_code == 200
    assert browser.post("/logout").status_code == 302


def test_who_has_no_own_password_gets_no_token():
    user, _ = initial()
    who = Principal(kind="user", id=str(user.id), user_id=str(user.id), roles=frozenset({"viewer"}))
    with pytest.raises(Problem) as caught:
        services.token_create(tenant=selectors.tenant_by_slug("platform"), owner=user, roles=["viewer"], actor=who)
    assert caught.value.code == "own-password-needed"


def test_with_the_first_own_password_all_that_was_added_before_goes(browser):
    user, secret = initial()
    other = Browser()
    browser.log_in(user, secret)
    other.log_in(user, secret)
    with unrecorded():
        Authenticator.objects.create(user_id=user.id, type="totp", data={"secret": "x"})
        account = SocialAccount.objects.create(user_id=user.id, provider="oidc", uid="somebody")
        SocialToken.objects.create(account=account, token="x")
    token, _ = services.token_issue("user", user=user, roles=["viewer"])
    services.user_password_set(user_id=user.id, password=NEW)
    assert not Authenticator.objects.filter(user_id=user.id).exists()
    assert not SocialAccount.objects.filter(user_id=user.id).exists()
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert other.get("/account").url.startswith("/login")
    with unrecorded():
        Authenticator.objects.create(user_id=user.id, type="totp", data={"secret": "x"})
    services.user_password_set(user_id=user.id, password=f"{NEW}, again")
    assert Authenticator.objects.filter(user_id=user.id).exists(), "a later change leaves factors alone"


def opened(browser, plaintext):
    """What the script of the page does with the part of the link behind its #."""
    return browser.post("/invitation", {"token": plaintext})


@committed
def test_an_invitation_works_once(browser):
    actor = principal(None, "operator")
    user, plaintext = services.person_create(username=some("p"), roles=["viewer"], actor=actor)
    assert b"data-invitation" in browser.get("/invitation").content
    assert opened(browser, f"{plaintext[:-1]}{'x' if plaintext[-1] != 'x' else 'y'}").status_code == 410
    assert opened(browser, "").status_code == 410
    assert browser.post("/invitation", {"password1": NEW, "password2": NEW}).status_code == 410
    assert not Session.objects.exists(), "what is no invitation leaves no row"
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {plaintext}"}).status_code == 401
    assert opened(browser, f" https://console.example/invitation#{plaintext} ").url == "/invitation"
    assert plaintext not in str([row.get_decoded() for row in Session.objects.all()])
    page = browser.get("/invitation")
    assert user.username in page.content.decode()
    assert plaintext not in page.content.decode()
    assert browser.post("/invitation", {"password1": "short", "password2": "short"}).status_code == 200
    assert browser.post("/invitation", {"password1": NEW, "password2": NEW}).url == "/"
    assert browser.api().json()["name"] == user.username
    late = Browser()
    assert opened(late, plaintext).status_code == 410
    assert late.post("/invitation", {"password1": NEW, "password2": NEW}).status_code == 410
    assert Browser().log_in(user, NEW).status_code == 302


def test_a_renewed_invitation_voids_the_one_before_and_who_is_suspended_cannot_come(browser):
    actor = principal(None, "operator")
    user, first = services.person_create(username=some("p"), roles=["viewer"], actor=actor)
    second = services.invitation_renew(user_id=user.id, actor=actor)
    assert opened(browser, first).status_code == 410
    assert opened(browser, second).url == "/invitation"
    services.person_change(user_id=user.id, is_active=False, actor=actor)
    assert browser.get("/invitation").status_code == 410
    assert b"data-invitation" in browser.get("/invitation").content, "the session has forgotten it"
    assert opened(browser, second).status_code == 410


def test_no_address_has_the_secret_of_an_invitation(browser):
    _, plaintext = services.person_create(username=some("p"), roles=["viewer"], actor=principal(None, "operator"))
    assert browser.get(f"/invitation/{plaintext}").status_code == 404
    link = api_people._link(plaintext)
    assert link.partition("#")[2] == plaintext
    assert plaintext not in link.partition("#")[0]
