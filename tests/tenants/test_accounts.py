"""Guesses under load, codes, identities of an OpenID provider, and the views that pages read."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.db import connections
from django.test import Client

from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM
from tenants import services
from tenants.accounts import forms, guard, selectors
from tenants.accounts.adapter import Factors
from tests.tenants.making import a_tenant, a_user, principal, some, unrecorded

both = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


# --- guesses ----------------------------------------------------------------------------------------------------------


@both
def test_many_at_once_are_no_way_around():
    name, looked_at = some(), []

    def attempt(_):
        with contextlib.suppress(Problem):
            guard.begin(account=name, address="192.0.2.1")
            looked_at.append(1)
        connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, range(40)))
    assert len(looked_at) == guard.FREE["account"] + 1


@pytest.mark.django_db
def test_each_failure_doubles_the_wait_and_a_quiet_time_forgets():
    name, waits = some(), []
    for _ in range(guard.FREE["account"]):
        guard.begin(account=name, address="192.0.2.1")
    for _ in range(4):
        guard.begin(account=name, address="192.0.2.1")
        with pytest.raises(Problem) as refused:
            guard.begin(account=name, address="192.0.2.1")
        waits.append(refused.value.retry_after_seconds)
        with connections["default"].cursor() as cursor:
            cursor.execute("UPDATE tenants_guess SET until = now() - interval '1 s'")
    assert waits == [2, 4, 8, 16]
    with connections["default"].cursor() as cursor:
        cursor.execute("UPDATE tenants_guess SET last = now() - interval '16 min', until = '-infinity'")
    guard.begin(account=name, address="192.0.2.1")
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT failures FROM tenants_guess")
        assert {n for (n,) in cursor} == {1}
        cursor.execute("UPDATE tenants_guess SET last = now() - interval '2 days'")
        guard.begin(account=some(), address="198.51.100.1")
        cursor.execute("SELECT count(*) FROM tenants_guess")
        assert cursor.fetchone()[0] == 3, "old ones go"


def later(**time):
    """Everybody's counters are so much older."""
    with connections["default"].cursor() as cursor:
        ago = timedelta(**time)
        cursor.execute("UPDATE tenants_guess SET last = last - %s, until = until - %s", [ago, ago])


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["account", "factor"])
def test_a_stranger_makes_nobody_wait_but_the_own_address(kind):
    """Also with an attempt whenever one is let in, hour after hour."""
    name = some()
    for minutes in (0, 1, 5, 14, 14, 14, 14, 15, 14, 14, 16):
        later(minutes=minutes)
        for _ in range(guard.FREE[kind] + 2):
            with contextlib.suppress(Problem):
                guard.begin(account=name, address="203.0.113.9", kind=kind)
        with pytest.raises(Problem):
            guard.begin(account=name, address="203.0.113.9", kind=kind)
        guard.begin(account=name, address="192.0.2.1", kind=kind).passed()


@pytest.mark.django_db
def test_from_all_addresses_together_there_is_a_high_ceiling_with_a_short_wait():
    name, waits = some(), []
    assert guard.FREE["account anywhere"] >= 20 * guard.FREE["account"]
    for i in range(guard.FREE["account anywhere"] + 10):
        with contextlib.suppress(Problem):
            guard.begin(account=name, address=f"203.0.{i}.9")
    with pytest.raises(Problem) as refused:
        guard.begin(account=name, address="192.0.2.1")
    waits.append(refused.value.retry_after_seconds)
    for i in range(8):
        later(seconds=61)
        guard.begin(account=name, address=f"198.51.{i}.9")
        with pytest.raises(Problem) as refused:
            guard.begin(account=name, address="192.0.2.1")
        waits.append(refused.value.retry_after_seconds)
    assert waits[0] <= 2
    assert max(waits) == guard.MOST_ANYWHERE["account"].total_seconds()
    later(seconds=61)
    guard.begin(account=name, address="192.0.2.1").passed()
    guard.begin(account=some(), address="192.0.2.1")


@pytest.mark.django_db
def test_an_unknown_name_costs_what_a_wrong_password_costs(settings):
    from django.contrib.auth import authenticate

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    user = a_user()

    def best(name):
        times = []
        for _ in range(5):
            before = time.perf_counter()
            assert authenticate(username=name, password="wrong") is None
            times.append(time.perf_counter() - before)
        return min(times)

    best(user.username)
    known, unknown = best(user.username), best("nobody-of-this-name")
    assert 0.5 < known / unknown < 2


# --- codes ------------------------------------------------------------------------------------------------------------


def test_a_code_is_of_its_step_and_one_beside_it():
    secret, now = "JBSWY3DPEHPK3PXP", 1_790_000_000.0
    step = int(now) // 30
    for off, expected in ((-2, None), (-1, step - 1), (0, step), (1, step + 1), (2, None)):
        assert forms.totp_step(secret, format_hotp_value(hotp_value(secret, step + off)), now) == expected


def test_secrets_are_sealed_under_the_sites_secret(settings):
    sealed = Factors().encrypt("JBSWY3DPEHPK3PXP")
    assert "JBSWY3DP" not in bytes.fromhex(sealed).decode("latin-1")
    assert Factors().decrypt(sealed) == "JBSWY3DPEHPK3PXP"
    settings.SECRET_KEY = "x" * 50
    assert Factors().decrypt(sealed) == ""


# --- an OpenID provider -----------------------------------------------------------------------------------------------


class Provider(BaseHTTPRequestHandler):
    """A far side that speaks OpenID Connect: discovery, tokens, userinfo."""

    claims: dict = {}

    def log_message(self, *args):
        pass

    def _say(self, body):
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self):
        base = f"http://127.0.0.1:{self.server.server_port}"
        if self.path == "/userinfo":
            return self._say(self.claims)
        return self._say({
            "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
            "userinfo_endpoint": f"{base}/userinfo", "jwks_uri": f"{base}/jwks",
        })  # fmt: skip

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say({"access_token": "a", "token_type": "Bearer", "expires_in": 60})


@pytest.fixture
def provider(settings):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    app = {
        "provider_id": "oidc", "name": "Corp", "client_id": "c", "secret": "s",
        "settings": {"server_url": f"http://127.0.0.1:{server.server_port}"},
    }  # fmt: skip
    base = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {**base, "APPS": [app]}}
    yield Provider
    server.shutdown()
    thread.join()
    server.server_close()


def through(client, **query):
    """The way to the provider and back."""
    there = client.get("/login/with/oidc", query)
    asked = parse_qs(urlsplit(there.url).query)
    assert asked["prompt"] == ["login"]
    assert "code_challenge" in asked
    return client.get("/login/with/oidc/back", {"code": "x", "state": asked["state"][0]})


@both
def test_an_identity_that_nobody_linked_opens_nothing(provider, settings):
    provider.claims = {"sub": "77", "preferred_username": some(), "email": "eve@example.org"}
    for believed in (False, True):
        settings.OIDC_LINK_BY_NAME = believed
        client = Client()
        answer = through(client)
        assert "opens no account" in answer.content.decode()
        assert client.get("/api/v1/me").status_code == 401
    user = a_user()
    settings.OIDC_LINK_BY_NAME = False
    provider.claims = {"sub": "78", "preferred_username": user.username}
    client = Client()
    through(client)
    assert client.get("/api/v1/me").status_code == 401
    forged = Client().get("/login/with/oidc/back", {"code": "x", "state": "forged"})
    assert forged.status_code == 401


@both
def test_a_linked_identity_logs_in_and_second_factors_still_count(provider, settings):
    user, client = a_user(tenant=a_tenant(), roles=["tenant-member"]), Client()
    provider.claims = {"sub": "79"}
    client.post("/login", {"username": user.username, "password": "correct horse"})
    assert through(client, process="connect").url == "/account"
    assert selectors.factors(user.id).linked == ["oidc"]
    fresh = Client()
    through(fresh)
    assert fresh.get("/api/v1/me").json()["name"] == user.username
    assert client.post("/account/links/remove").url == "/account"
    late = Client()
    through(late)
    assert late.get("/api/v1/me").status_code == 401


@both
def test_where_the_providers_names_are_believed_the_first_log_in_links(provider, settings):
    settings.OIDC_LINK_BY_NAME = True
    user, client = a_user(), Client()
    provider.claims = {"sub": "80", "preferred_username": user.username}
    through(client)
    assert client.get("/api/v1/me").json()["name"] == user.username
    settings.OIDC_LINK_BY_NAME = False
    again = Client()
    through(again)
    assert again.get("/api/v1/me").status_code == 200
    services.user_change(user_id=user.id, is_active=False)
    gone = Client()
    through(gone)
    assert gone.get("/api/v1/me").status_code == 401


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_people_are_shown_as_they_are():
    actor = principal(None, "operator")
    user, _ = services.person_create(username=some(), roles=["viewer"], actor=actor)
    assert selectors.person(user.id).state == "invited"
    services.person_change(user_id=user.id, is_active=False, actor=actor)
    assert selectors.person(user.id).state == "suspended"
    services.person_remove(user_id=user.id, actor=actor)
    assert selectors.person(user.id).state == "removed"
    assert not selectors.people(fleet=True).filter(id=user.id)
    assert selectors.person(actor.id) is None


@pytest.mark.django_db
def test_tokens_are_shown_with_what_they_may_now():
    user = a_user(roles=["viewer", "auditor"])
    token, _ = services.token_issue("user", tenant_id=PLATFORM, user=user, roles=["viewer", "auditor"])
    services.user_change(user_id=user.id, roles=["viewer"])
    view = selectors.token(token.id)
    assert (view.effective_roles, view.state, view.owner) == (["viewer"], "active", user.username)
    services.token_revoke(token=token, reason="test")
    assert selectors.token(token.id).state == "revoked"
    with unrecorded():
        services.user_change(user_id=user.id, is_active=False)
    assert selectors.token("x" * 16) is None
