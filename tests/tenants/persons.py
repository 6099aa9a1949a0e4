"""Who speaks to the API in tests: people, and programs with tokens."""

import json
import time

from django.test import Client

from tests.tenants.making import a_user

OPERATOR, APPROVER = ["operator", "viewer"], ["approver", "viewer"]


class Caller:
    """Speaks JSON to the API as the owner of one token, or as nobody."""

    def __init__(self, token=None):
        self.client, self.bearer = Client(raise_request_exception=True), token

    def __call__(self, method, path, body=None, extra=None, **headers):
        """The answer; `extra` is of the connection, as the test client takes it."""
        if self.bearer:
            headers["Authorization"] = f"Bearer {self.bearer}"
        content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return self.client.generic(method, f"/api/v1{path}", headers=headers, **content, **(extra or {}))

    def get(self, path, **headers):
        return self("GET", path, **headers)

    def post(self, path, body, **headers):
        return self("POST", path, body, **headers)


class Person(Caller):
    """Somebody logged in, whose browser speaks to the API."""

    def __init__(self, *roles, tenant=None, proved=True):
        super().__init__()
        self.user = a_user(roles=list(roles), tenant=tenant)
        assert self.client.login(username=self.user.username, password="correct horse")
        if proved:
            self.prove()

    def prove(self, ago=0):
        session = self.client.session
        session["account_authentication_methods"] = [{"method": "password", "at": time.time() - ago}]
        session.save()

    def change(self, user_id, **fields):
        tag = self("GET", f"/people/{user_id}").headers.get("ETag", "*")
        return self("PATCH", f"/people/{user_id}", fields, **{"If-Match": tag})

    def token(self, slug="platform", **fields):
        return self("POST", f"/tenants/{slug}/tokens", {"name": "t", **fields})


def code(answer):
    return answer.status_code, answer.json().get("code", "")


def use(plaintext, path="/me", method="GET", body=None, **extra):
    return Caller(plaintext)(method, path, body, extra)
