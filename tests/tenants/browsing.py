"""A browser for tests of accounts, and the ways through their pages."""

import html
import json
import re
import time

from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.test import Client

from tests.tenants.passkey import Passkey

PASSWORD = "correct horse"
NEW = "a long enough password 1"
HTML = {"accept": "text/html"}


class Browser(Client):
    """A browser that speaks https and asks for pages."""

    def __init__(self, **options):
        super().__init__(headers=HTML, **options)
        self.defaults["wsgi.url_scheme"] = "https"
        self.defaults["SERVER_PORT"] = "443"

    def log_in(self, user, password=PASSWORD, **more):
        return self.post("/login", {"username": user.username, "password": password, **more})

    def api(self, path="me"):
        return self.get(f"/api/v1/{path}", headers={"accept": "application/json"})

    def add_passkey(self, key):
        credential = key.create(options_of(self.get("/account/passkeys")))
        return self.post("/account/passkeys", {"name": "blue", "credential": json.dumps(credential)})

    def older(self, seconds, *keys):
        """The session's records are so much older."""
        session = self.session
        for record in session.get("account_authentication_methods", []):
            record["at"] -= seconds
        for key in keys:
            session[key] -= seconds
        session.save()


def options_of(answer):
    return json.loads(html.unescape(re.search(r'data-options="([^"]+)"', answer.content.decode())[1]))


def code_of(secret, steps=0):
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps))


def with_totp(browser, user):
    """The person has an authenticator; answers its secret."""
    browser.log_in(user)
    secret = browser.get("/account/totp").context["form"].secret
    assert browser.post("/account/totp", {"code": code_of(secret, -1)}).url == "/account/recovery-codes"
    return secret


def with_passkey(browser, user):
    """The person has a passkey."""
    browser.log_in(user)
    key = Passkey()
    assert browser.add_passkey(key).status_code == 302
    return key
