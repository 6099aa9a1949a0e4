"""Pages of one's own account leave one event a call too: log-ins, proofs, passwords and factors, right and wrong."""

import json
import uuid

import pytest

from audit import refusals
from kvconsole.infra.sql import connect
from tenants import services
from tenants.services import identity
from tests.tenants.browsing import NEW, PASSWORD, Browser, code_of, options_of
from tests.tenants.making import a_tenant, a_user, principal
from tests.tenants.passkey import Passkey

pytestmark = [pytest.mark.accept, pytest.mark.django_db(transaction=True, databases=["default", "tenant"])]


@pytest.fixture(autouse=True)
def nothing_counted():
    identity._refused_logins._seen.clear()
    refusals._calls._seen.clear()


class Watched(Browser):
    """Tells of each form that is posted what the trail says of it."""

    def send(self, path, data=None):
        """(status, actions of the events of the call)."""
        given = f"r-{uuid.uuid4().hex}"
        answer = self.post(path, data or {}, headers={"X-Request-ID": given, "accept": "text/html"})
        with connect("audit") as c:
            rows = c.execute("SELECT body FROM audit_event WHERE request_id = %s", (given,)).fetchall()
        return answer.status_code, [json.loads(bytes(body))["action"] for (body,) in rows]


@pytest.mark.parametrize("of_tenant", [False, True], ids=["fleet", "tenant"])
def test_passwords_and_proofs(of_tenant):
    user = a_user(roles=["tenant-admin" if of_tenant else "viewer"], tenant=a_tenant() if of_tenant else None)
    browser = Watched()
    assert browser.send("/login", {"username": user.username, "password": "wrong"}) == (200, ["user.login_refused"])
    assert browser.send("/login", {"username": user.username, "password": PASSWORD}) == (302, ["user.logged_in"])
    assert browser.send("/account/confirm", {"password": "wrong"}) == (200, ["access.refused"])
    assert browser.send("/account/confirm", {"password": PASSWORD}) == (302, ["user.stepped_up"])
    assert browser.send("/account/password", {"password1": "a", "password2": "b"}) == (200, ["access.refused"])
    assert browser.send("/account/password", {"password1": NEW, "password2": NEW}) == (302, ["user.changed"])
    assert browser.send("/account/links/remove") == (302, ["call.unchanged"])
    assert browser.send("/logout") == (302, ["user.logged_out"])
    assert browser.send("/account/confirm", {"password": NEW}) == (302, ["access.refused"]), "nobody: to the log-in"


def test_factors():
    user, browser = a_user(), Watched()
    browser.send("/login", {"username": user.username, "password": PASSWORD})
    secret = browser.get("/account/totp").context["form"].secret
    assert browser.send("/account/totp", {"code": "000000"}) == (200, ["access.refused"])
    assert browser.send("/account/totp", {"code": code_of(secret, -1)}) == (302, ["user.changed"])
    assert browser.send("/account/recovery-codes") == (302, ["user.changed"])
    key = Passkey()
    assert browser.send("/account/passkeys", {"name": "x", "credential": "{}"}) == (200, ["access.refused"])
    made = key.create(options_of(browser.get("/account/passkeys")))
    assert browser.send("/account/passkeys", {"name": "blue", "credential": json.dumps(made)}) == (
        302,
        ["user.changed"],
    )
    other = Watched()
    assert other.send("/login", {"username": user.username, "password": PASSWORD}) == (302, ["call.unchanged"])
    assert other.send("/login/factor", {"code": "000000"}) == (200, ["user.login_refused"])
    assert other.send("/login/factor", {"code": code_of(secret)}) == (302, ["user.logged_in"])
    assert browser.send("/account/totp/remove") == (302, ["user.changed"])
    assert browser.send("/account/totp/remove") == (404, ["access.refused"])


def test_an_invitation_that_is_accepted_is_one_event():
    _, secret = services.person_create(username="mira", roles=[], actor=principal(None, "operator"))
    browser = Watched()
    assert browser.send("/invitation", {"token": "kvc_invite_x"}) == (410, ["access.refused"])
    assert browser.send("/invitation", {"token": secret}) == (302, ["call.unchanged"])
    assert browser.send("/invitation", {"password1": NEW, "password2": "b"}) == (200, ["access.refused"])
    status, actions = browser.send("/invitation", {"password1": NEW, "password2": NEW})
    assert (status, len(actions)) == (302, 1)
    assert actions[0] in ("user.logged_in", "user.changed")
