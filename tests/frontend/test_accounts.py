"""One's own account, from outside: log-in in its steps, invitation, fresh proofs, factors. Refusals first."""

import json
import re
import time

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client

from tenants import services
from tenants.accounts import guard
from tests.tenants.browsing import HTML, NEW, PASSWORD, Browser, code_of, options_of, with_passkey, with_totp
from tests.tenants.making import a_tenant, a_user, some
from tests.tenants.passkey import Passkey

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def browser():
    return Browser()


# --- guesses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_guessing_is_slowed_down_whether_the_name_exists_or_not(browser, known):
    name = a_user().username if known else some("nobody")
    given = {"username": name, "password": "wrong"}
    for _ in range(guard.FREE["account"] + 1):
        assert browser.post("/login", given).status_code == 200
    answer = browser.post("/login", given)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert b"Too many attempts" in answer.content
    assert browser.post("/login", {**given, "password": PASSWORD}).status_code == 429, "the right one is not looked at"
    problem = browser.post("/login", given, headers={"accept": "application/json"})
    assert problem.json()["code"] == "too-many-attempts"


def test_a_name_differently_written_is_the_same_account(browser):
    for name in ("Nobody1", "nobody1", "ｎobody1", "NOBODY1", "nobodY1", "nObody1"):
        browser.post("/login", {"username": name, "password": "wrong"})
    assert browser.post("/login", {"username": "nobody1", "password": "wrong"}).status_code == 429


def test_many_names_from_one_address_are_slowed_down_and_another_address_is_not(browser, monkeypatch):
    monkeypatch.setitem(guard.FREE, "address", 3)
    for _ in range(4):
        browser.post("/login", {"username": some(), "password": "wrong"})
    assert browser.post("/login", {"username": some(), "password": "wrong"}).status_code == 429
    given = {"username": some(), "password": "wrong"}
    assert browser.post("/login", given, REMOTE_ADDR="192.0.2.7").status_code == 200


def test_what_a_stranger_says_of_its_address_is_not_believed(browser, monkeypatch, settings):
    monkeypatch.setitem(guard.FREE, "address", 2)
    for i in range(4):
        given = {"username": some(), "password": "x"}
        answer = browser.post("/login", given, headers={"X-Forwarded-For": f"10.0.0.{i}"})
    assert answer.status_code == 429
    settings.TRUSTED_PROXIES = ["127.0.0.0/8"]
    given = {"username": some(), "password": "x"}
    assert browser.post("/login", given, headers={"X-Forwarded-For": "9.9.9.9, 10.0.0.77"}).status_code == 200


def test_a_right_password_takes_the_failures_back(browser):
    user = a_user()
    for _ in range(3):
        for _ in range(guard.FREE["account"]):
            browser.log_in(user, "wrong")
        assert browser.log_in(user).status_code == 302
        browser.post("/logout")


def test_codes_cannot_be_guessed_either(browser):
    user = a_user()
    with_totp(browser, user)
    fresh = Browser()
    assert fresh.log_in(user).url == "/login/factor"
    for _ in range(guard.FREE["factor"] + 1):
        assert fresh.post("/login/factor", {"code": "000000"}).status_code == 200
    assert fresh.post("/login/factor", {"code": "000000"}).status_code == 429


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_ends_when_it_is_idle_and_when_it_is_old(browser, settings):
    user = a_user()
    for keys, seconds, status in (
        (("kvc.seen",), settings.SESSION_IDLE_SECONDS - 60, 200),
        (("kvc.seen",), settings.SESSION_IDLE_SECONDS + 1, 302),
        (("kvc.begun",), settings.SESSION_COOKIE_AGE + 1, 302),
    ):
        browser.log_in(user)
        browser.older(seconds, *keys)
        assert browser.get("/account").status_code == status, keys
        assert (browser.api().status_code == 401) == (status == 302)


def test_requests_keep_a_session_alive(browser, settings):
    browser.log_in(a_user())
    browser.older(settings.SESSION_IDLE_SECONDS - 10, "kvc.seen")
    assert browser.get("/account").status_code == 200
    assert time.time() - browser.session["kvc.seen"] < 5


def test_a_token_has_no_account(browser):
    _, plaintext = services.token_issue("service", roles=["viewer"])
    answer = Client().get("/account", headers={"Authorization": f"Bearer {plaintext}", **HTML})
    assert answer.status_code == 403
    scoped = {"Authorization": f"Bearer {plaintext}"}
    assert Client().get("/account/password", headers=scoped).json()["code"] == "scope-missing"


# --- fresh proofs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/account/password", "/account/totp", "/account/passkeys", "/account/recovery-codes"])
def test_what_gives_rights_asks_for_a_fresh_proof_and_comes_back(browser, path, settings):
    user = a_user()
    browser.log_in(user)
    browser.older(settings.STEP_UP_SECONDS + 1)
    answer = browser.get(path)
    assert answer.url == f"/account/confirm?next={path.replace('/', '%2F')}"
    assert browser.post(path, {}, headers={"Referer": f"https://testserver{path}"}).url.startswith("/account/confirm")
    assert "HX-Redirect" in browser.get(path, headers={"HX-Request": "true"}).headers
    assert b"was not right" in browser.post("/account/confirm", {"password": "wrong", "next": path}).content
    assert browser.get(path).status_code == 302
    assert browser.post("/account/confirm", {"password": PASSWORD, "next": path}).url == path
    assert browser.get(path).status_code in (200, 404)
    assert browser.post("/account/confirm", {"password": PASSWORD, "next": "https://evil.example"}).url == "/account"


def test_a_proof_by_code_or_passkey_is_one_too(browser, settings):
    user = a_user()
    secret = with_totp(browser, user)
    key = Passkey()
    browser.add_passkey(key)
    browser.older(settings.STEP_UP_SECONDS + 1)
    assert browser.post("/account/confirm", {"code": "123456"}).status_code == 200
    assert browser.get("/account/password").status_code == 302
    assert browser.post("/account/confirm", {"code": code_of(secret)}).url == "/account"
    assert browser.get("/account/password").status_code == 200
    browser.older(settings.STEP_UP_SECONDS + 1)
    asked = options_of(browser.get("/account/confirm"))
    assert browser.post("/account/confirm", {"credential": json.dumps(Passkey().get(asked))}).status_code == 200
    asked = options_of(browser.get("/account/confirm"))
    assert browser.post("/account/confirm", {"credential": json.dumps(key.get(asked))}).url == "/account"
    assert browser.get("/account/password").status_code == 200


# --- factors ----------------------------------------------------------------------------------------------------------


def test_an_authenticator_is_asked_for_and_each_code_works_once(browser):
    user = a_user()
    secret = with_totp(browser, user)
    fresh, second = Browser(), Browser()
    assert fresh.log_in(user).url == "/login/factor"
    assert fresh.get("/account").status_code == 302, "half logged in is not logged in"
    assert fresh.api().status_code == 401
    assert b"refused" in fresh.post("/login/factor", {"code": "000000"}).content
    code = code_of(secret)
    assert fresh.post("/login/factor", {"code": code}).status_code == 302
    assert fresh.api().json()["session"]["methods"] == ["password", "totp"]
    second.log_in(user)
    assert second.post("/login/factor", {"code": code}).status_code == 200, "it was used"
    assert "secret" in Authenticator.objects.get(type="totp").data
    assert secret not in str(Authenticator.objects.get(type="totp").data)


def test_a_wrong_first_code_takes_no_authenticator_into_use(browser):
    user = a_user()
    browser.log_in(user)
    browser.get("/account/totp")
    assert b"wrong" in browser.post("/account/totp", {"code": "000000"}).content
    assert not Authenticator.objects.exists()


def test_a_recovery_code_replaces_the_factor_once(browser):
    user = a_user()
    with_totp(browser, user)
    codes = browser.get("/account/recovery-codes").context["codes"]
    assert len(codes) == 10
    for answer, given in ((302, codes[0]), (200, codes[0]), (302, codes[1])):
        fresh = Browser()
        fresh.log_in(user)
        assert fresh.post("/login/factor", {"code": given}).status_code == answer
    assert browser.post("/account/recovery-codes").status_code == 302
    assert set(browser.get("/account/recovery-codes").context["codes"]).isdisjoint(codes)


def test_a_passkey_logs_in_by_itself(browser):
    user = a_user()
    key = with_passkey(browser, user)
    fresh = Browser()
    asked = fresh.get("/login/passkey", headers={"accept": "application/json"}).json()["request_options"]
    assert fresh.post("/login/passkey", {"credential": json.dumps(key.get(asked))}).url == "/"
    me = fresh.api().json()
    assert (me["name"], me["session"]["methods"]) == (user.username, ["webauthn"])
    assert me["session"]["step_up_until"], "it is a fresh proof"


def test_a_passkey_that_is_not_good_logs_nobody_in(browser):
    user = a_user()
    key = with_passkey(browser, user)
    suspended = a_user()
    other = with_passkey(Browser(), suspended)

    def attempt(answer):
        fresh = Browser()
        asked = fresh.get("/login/passkey", headers={"accept": "application/json"}).json()["request_options"]
        fresh.post("/login/passkey", {"credential": json.dumps(answer(asked))})
        return fresh.api().status_code

    stranger = Passkey()
    stranger.handle = key.handle
    assert attempt(stranger.get) == 401
    assert attempt(lambda o: key.get(o, origin="https://evil.example")) == 401
    assert attempt(lambda o: key.get(o, verified=False)) == 401
    assert attempt(lambda o: {"id": "x"}) == 401
    used = key.get(Browser().get("/login/passkey", headers={"accept": "application/json"}).json()["request_options"])
    assert attempt(lambda o: used) == 401, "another challenge"
    assert attempt(other.get) == 200
    services.user_change(user_id=suspended.id, is_active=False)
    assert attempt(other.get) == 401
    assert attempt(key.get) == 200


def test_a_passkey_is_the_second_factor_of_a_password(browser):
    user = a_user()
    key = with_passkey(browser, user)
    fresh = Browser()
    assert fresh.log_in(user).url == "/login/factor"
    asked = options_of(fresh.get("/login/factor"))
    assert fresh.post("/login/factor", {"credential": json.dumps(key.get(asked))}).url == "/"


@committed
def test_removed_factors_are_not_asked_for(browser):
    user = a_user()
    with_totp(browser, user)
    browser.add_passkey(Passkey())
    pk = Authenticator.objects.get(type="webauthn").pk
    other = Browser()
    other.log_in(a_user())
    assert other.post(f"/account/passkeys/{pk}/remove").status_code == 404, "somebody else's"
    assert browser.post(f"/account/passkeys/{pk}/remove").url == "/account"
    assert browser.post("/account/totp/remove").url == "/account"
    assert browser.post("/account/totp/remove").status_code == 404
    assert not Authenticator.objects.exists(), "the recovery codes went too"
    assert Browser().log_in(user).url == "/"


@committed
def test_people_of_a_tenant_have_factors_too(browser):
    user = a_user(tenant=a_tenant(), roles=["tenant-member"])
    secret = with_totp(browser, user)
    fresh = Browser()
    fresh.log_in(user)
    assert fresh.post("/login/factor", {"code": code_of(secret)}).status_code == 302
    assert fresh.api().json()["roles"] == ["tenant-member"]
    assert fresh.post("/account/password", {"password1": NEW, "password2": NEW}).url == "/account"


# --- what is not there ------------------------------------------------------------------------------------------------


def test_allauths_other_pages_are_not_routed(browser):
    for path in ("/signup", "/accounts/signup/", "/password/reset", "/email", "/3rdparty/", "/login/with/x"):
        assert browser.get(path).status_code == 404, path


def test_no_page_of_these_has_an_inline_script(browser):
    user = a_user()
    with_totp(browser, user)
    for path in ("/account", "/account/confirm", "/account/password", "/account/passkeys", "/account/recovery-codes"):
        answer = browser.get(path)
        text = answer.content.decode()
        assert answer.status_code == 200, path
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", text), path
        assert "unsafe-inline" not in answer.headers["Content-Security-Policy"]
        assert "no-store" in answer.headers["Cache-Control"]


def test_pages_are_in_chinese_too(browser):
    browser.cookies["django_language"] = "zh-hans"
    assert "登录" in browser.get("/login").content.decode()
    browser.log_in(a_user())
    assert "账户" in browser.get("/account").content.decode()
