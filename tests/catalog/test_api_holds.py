"""REST of legal holds: a token asks for none, and who may look sees them."""

import uuid

import pytest

from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_only_persons_ask_for_holds(caller):  # noqa: F811
    body = {"selector": {"tenant": a_tenant().slug}, "authority": "Court 7", "reason": "case",
            "review_at": "2030-01-01T00:00:00Z"}  # fmt: skip
    token = caller("destructive-operator", scopes=("holds:destroy", "holds:read"))
    answer = token("POST", "/holds", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "person-needed")
    assert token.get("/holds").json()["items"] == []
    assert token.get(f"/holds/{uuid.uuid4()}").status_code == 404
