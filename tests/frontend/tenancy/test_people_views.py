"""People, tokens and share groups: invited, changed, removed; shown once; asked for by one and approved by another."""

import html
import re

import pytest

from tests.frontend.tenancy.conftest import proved
from tests.frontend.tenancy.test_views import hidden, text_of

pytestmark = pytest.mark.django_db


def test_a_person_is_invited_changed_and_removed(tenanted, person):
    client = proved(person("operator"))
    answer = client.post("/people/new", {"username": "nils", "roles": ["viewer"], "email": "nils@example.invalid"})
    assert re.search(r"http://testserver/invitation#kvc_invite_\w+", answer.content.decode())
    assert "no-store" in answer.headers["Cache-Control"]
    page = client.get("/settings")
    path = re.search(r'href="(/people/[0-9a-f-]{36})">nils<', page.content.decode())[1]
    assert "Invited" in text_of(client.get(path))
    fields = {"roles": ["auditor"], "email": "nils@example.invalid", "seen": client.get(path).context["seen"]}
    assert client.post(path, fields).status_code == 302
    assert client.post(path, fields).status_code == 412, "it is another one than was seen"
    assert "auditor" in text_of(client.get("/settings"))
    assert client.post(f"{path}/state", {"active": "no"}).status_code == 302
    assert "Suspended" in text_of(client.get(path))
    assert "removed for good" in text_of(client.get(f"{path}/remove"))
    assert client.post(f"{path}/remove").url == "/settings"
    assert ">nils<" not in client.get("/settings").content.decode()


def test_rights_need_a_fresh_proof(tenanted, person):
    client = person("operator")
    assert client.get("/people/new").url.startswith("/account/confirm")
    assert client.get("/tokens/new").url.startswith("/account/confirm")


def test_nobody_gives_what_they_may_not(tenanted, person):
    client = proved(person("operator"))
    offered = client.get("/people/new").content.decode()
    assert 'value="viewer"' in offered
    assert 'value="approver"' not in offered
    refused = client.post("/people/new", {"username": "nils", "roles": ["approver"]})
    assert (refused.status_code, refused.context["code"]) == (403, "role-not-grantable")
    twice = client.post("/people/new", {"username": "mira-okafor", "roles": ["viewer"]})
    assert twice.status_code == 409
    me = re.search(r'href="(/people/[0-9a-f-]{36})">mira-okafor<', client.get("/settings").content.decode())[1]
    assert "This is you." in text_of(client.get(me))
    assert client.post(f"{me}/state", {"active": "no"}).context["code"] == "own-roles"


def test_a_token_is_shown_once_and_revoked(tenanted, person):
    client = proved(person("viewer"))
    owner = client.get("/tokens/new").context["owners"][0][0]
    wrong = client.post("/tokens/new", {"owner": owner, "roles": ["operator"], "days": "900", "name": "x"})
    assert wrong.status_code == 400
    assert "days" in wrong.context["form"].errors
    made = client.post(
        "/tokens/new", {"owner": owner, "roles": ["viewer"], "days": "30", "name": "ci", "scopes": ["nodes:read"]}
    )
    secret = re.search(r"kvc_user_\w+", made.content.decode())[0]
    listed = client.get("/settings").content.decode()
    assert secret not in listed
    id_ = re.search(r"/tokens/(\w+)/revoke", listed)[1]
    assert client.post(f"/tokens/{id_}/revoke").url == "/settings"
    other = person("viewer", name="ann")
    assert other.get(f"/tokens/{id_}/revoke").context["code"] == "not-found"


def test_a_token_is_rotated_and_the_new_secret_shown_once(tenanted, person):
    client, other = proved(person("viewer")), proved(person("operator", name="ann"))
    owner = client.get("/tokens/new").context["owners"][0][0]
    fields = {"owner": owner, "roles": ["viewer"], "days": "30", "name": "ci"}
    first = re.search(r"kvc_user_\w+", client.post("/tokens/new", fields).content.decode())[0]
    path = re.search(r"/tokens/\w+/rotate", client.get("/settings").content.decode())[0]
    assert "gets a new secret" in text_of(client.get(path))
    assert path not in other.get("/settings").content.decode(), "a person's tokens are the person's"
    assert other.post(path).context["code"] == "forbidden"
    made = client.post(path)
    second = re.search(r"kvc_user_\w+", made.content.decode())[0]
    assert second != first
    assert "no-store" in made.headers["Cache-Control"]
    assert second not in client.get("/settings").content.decode()
    assert len(re.findall(r"/tokens/\w+/rotate", client.get("/settings").content.decode())) == 2, "for a day both"


def test_a_share_group_is_asked_for_by_one_and_decided_by_another(tenanted, person):
    client = proved(person("operator", "approver"))
    fields = {
        "owner": "acme-code",
        "name": "handbooks",
        "audience": "borealis-bank",
        "days": "30",
        "reason": "same books",
    }
    checked = client.get("/share-groups/new", {**fields, "check": "1"})
    assert "This can be asked for." in text_of(checked)
    assert "handbooks" not in text_of(client.get("/settings"))
    made = client.post("/share-groups/new", hidden(checked))
    page = client.get(made.url)
    assert "You asked for it, so somebody else decides." in text_of(page)
    own = client.post(f"{made.url}/approve")
    assert (own.status_code, own.context["code"]) == (403, "approval-own")
    second = person("approver", name="ann")
    for act in ("approve", "deny", "revoke"):
        asked = second.post(f"{made.url}/{act}", {"reason": "x"}, headers={"referer": f"http://testserver{made.url}"})
        assert asked.url.startswith("/account/confirm?next="), act
    proved(second)
    assert "Approve handbooks" in text_of(second.get(made.url))
    assert second.post(f"{made.url}/approve").status_code == 302
    assert "2 tenants share blocks" in text_of(second.get(made.url))
    assert second.post(f"{made.url}/revoke", {"reason": ""}).status_code == 400
    assert second.post(f"{made.url}/revoke", {"reason": "over"}).status_code == 302
    assert "Nothing is shared through it." in text_of(second.get(made.url))
    assert html.unescape(made.url) in client.get("/tenants/acme-code").content.decode()
