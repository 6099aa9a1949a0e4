"""Passwords and invitations, from outside."""

import pytest
from django.test import Client

from tenants import services
from tenants.models import User
from tests.tenants.browsing import NEW, Browser
from tests.tenants.making import a_user, principal, some

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


def test_an_initial_password_opens_nothing_but_its_change(browser):
    user, secret = services.person_create(
        username=some("p"), roles=["viewer"], how="password", actor=principal(None, "operator")
    )
    assert browser.log_in(user, secret).url == "/account/password"
    assert browser.get("/nodes").status_code == 403
    assert browser.api("tenants").status_code == 403
    assert b"Somebody else made your password" in browser.get("/account/password").content
    browser.post("/account/password", {"password1": NEW, "password2": NEW})
    assert browser.api("tenants").status_code == 200
    assert not User.objects.get(id=user.id).password_initial


@committed
def test_an_invitation_works_once(browser):
    actor = principal(None, "operator")
    user, plaintext = services.person_create(username=some("p"), roles=["viewer"], actor=actor)
    assert browser.get("/invitation").status_code == 410
    assert browser.get(f"/invitation/{plaintext[:-1]}{'x' if plaintext[-1] != 'x' else 'y'}").url == "/invitation"
    assert browser.get("/invitation").status_code == 410
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {plaintext}"}).status_code == 401
    assert browser.get(f"/invitation/{plaintext}").url == "/invitation"
    page = browser.get("/invitation")
    assert user.username in page.content.decode()
    assert plaintext not in page.content.decode()
    assert browser.post("/invitation", {"password1": "short", "password2": "short"}).status_code == 200
    assert browser.post("/invitation", {"password1": NEW, "password2": NEW}).url == "/"
    assert browser.api().json()["name"] == user.username
    late = Browser()
    late.get(f"/invitation/{plaintext}")
    assert late.post("/invitation", {"password1": NEW, "password2": NEW}).status_code == 410
    assert Browser().log_in(user, NEW).status_code == 302


def test_a_renewed_invitation_voids_the_one_before_and_who_is_suspended_cannot_come(browser):
    actor = principal(None, "operator")
    user, first = services.person_create(username=some("p"), roles=["viewer"], actor=actor)
    second = services.invitation_renew(user_id=user.id, actor=actor)
    browser.get(f"/invitation/{first}")
    assert browser.get("/invitation").status_code == 410
    services.person_change(user_id=user.id, is_active=False, actor=actor)
    browser.get(f"/invitation/{second}")
    assert browser.get("/invitation").status_code == 410
