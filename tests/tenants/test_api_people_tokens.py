"""Tokens over REST: who makes them for whom, and what they can at the time of use."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from audit.models import Event
from tenants import services
from tenants.models import Token
from tests.tenants.making import a_tenant, a_user, principal, some, unrecorded
from tests.tenants.persons import APPROVER, OPERATOR, Person, code, use

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_expires():
    person = Person("viewer")
    made = person.token(roles=["viewer"])
    assert made.status_code == 201, made.content
    body, now = made.json(), datetime.now(UTC)
    assert body["token"].startswith(f"kvc_user_{body['id']}_")
    assert made.headers["Cache-Control"] == "no-store"
    assert abs(datetime.fromisoformat(body["expires_at"]) - now - timedelta(days=90)) < timedelta(minutes=1)
    assert body["token"] not in person("GET", "/tenants/platform/tokens").content.decode()
    late = (now + timedelta(days=366)).isoformat()
    for fields in (
        {"expires_at": late}, {"expires_at": "2020-01-01T00:00:00Z"}, {"roles": []}, {"roles": ["operator"]},
        {"scopes": ["nonsense"]}, {"scopes": ["*:destroy"]}, {"cidr": "10.0.0.1/8"}, {"cidr": "x"}, {"kind": "node"},
        {"kind": "service"}, {"kind": "gateway"},
    ):  # fmt: skip
        assert code(person.token(**{"roles": ["viewer"], **fields}))[0] == 400, fields


def test_a_persons_tokens_are_made_by_that_person_alone():
    operator, user = Person(*OPERATOR), a_user(roles=["viewer"])
    assert code(operator.token(owner=str(user.id), roles=["viewer"])) == (403, "forbidden")
    assert code(operator.token(owner=str(principal().id), roles=["viewer"])) == (404, "not-found")


def test_a_service_account_owns_tokens_and_never_logs_in():
    operator, approver = Person(*OPERATOR), Person(*APPROVER)
    made = operator("POST", "/people", {"username": some("svc"), "kind": "service", "roles": ["viewer", "gateway"]})
    owner = made.json()["id"]
    assert (made.json()["invitation"], made.json()["password"]) == (None, None)
    assert code(operator("POST", "/people", {"username": some(), "kind": "service", "how": "password"}))[0] == 400
    assert not Client().login(username=made.json()["username"], password="")
    assert code(operator("POST", f"/people/{owner}:invite")) == (409, "conflict")
    token = operator.token(owner=owner, kind="service", roles=["viewer"]).json()
    assert use(token["token"]).json()["roles"] == ["viewer"]
    gateway = operator.token(owner=owner, kind="gateway", roles=["gateway"]).json()
    assert use(gateway["token"]).json()["kind"] == "gateway"
    assert approver.change(owner, roles=["viewer", "gateway", "destructive-operator"]).status_code == 200
    strong = {"owner": owner, "kind": "service", "roles": ["destructive-operator"]}
    assert code(operator.token(**strong)) == (403, "role-not-grantable")
    assert approver.token(**strong).status_code == 201
    assert code(approver.change(owner, suspended=True)) == (403, "role-not-grantable"), "it has others' roles too"
    assert Person("operator", "approver").change(owner, suspended=True).status_code == 200
    assert use(token["token"]).status_code == 401


def test_a_token_can_never_do_more_than_its_owner_may_now():
    tenant = a_tenant()
    bob = Person("tenant-admin", "tenant-member", tenant=tenant)
    token = bob.token(tenant.slug, roles=["tenant-admin", "tenant-member"]).json()["token"]
    assert use(token).json()["roles"] == ["tenant-admin", "tenant-member"]
    assert use(token, "/people").status_code == 200
    services.user_change(user_id=bob.user.id, roles=["tenant-member"])
    assert use(token).json()["roles"] == ["tenant-member"]
    assert code(use(token, "/people")) == (403, "forbidden")
    services.user_change(user_id=bob.user.id, roles=["tenant-admin", "operator"])
    assert use(token).json()["roles"] == ["tenant-admin"], "roles of the fleet are void within a tenant"
    services.user_change(user_id=bob.user.id, is_active=False)
    assert code(use(token)) == (401, "token-invalid")


def test_a_token_that_is_no_longer_good_is_refused_for_whatever_reason():
    now = datetime.now(UTC)
    day = timedelta(days=1)
    for change in (
        {"revoked_at": now}, {"expires_at": now - day}, {"used_at": now}, {"kind": "invite"}, {"kind": "enrol"},
        {"created_at": now - 61 * day, "last_used_at": None}, {"last_used_at": now - 61 * day},
        {"secret_hash": bytes(32)},
    ):  # fmt: skip
        token, plaintext = services.token_issue("service", roles=["viewer"])
        assert use(plaintext).status_code == 200
        with unrecorded():
            Token.objects.filter(id=token.id).update(**change)
        assert code(use(plaintext)) == (401, "token-invalid"), change
        assert code(use(plaintext.replace("kvc_service", "kvc_node"))) == (401, "token-invalid")
    token, plaintext = services.token_issue("node", roles=["node"], holder=str(principal().id))
    with unrecorded():
        Token.objects.filter(id=token.id).update(last_used_at=now - 61 * day)
    assert use(plaintext).status_code == 200, "a node may be away for long"


def test_use_is_written_at_most_once_a_minute():
    token, plaintext = services.token_issue("service", roles=["viewer"])

    def last():
        return Token.objects.get(id=token.id).last_used_at

    use(plaintext)
    first = last()
    use(plaintext)
    assert last() == first is not None
    with unrecorded():
        Token.objects.filter(id=token.id).update(last_used_at=first - timedelta(seconds=61))
    use(plaintext)
    assert last() >= first


def test_who_may_see_and_revoke_which_tokens():
    tenant = a_tenant()
    admin, bob, eve = (Person(role, tenant=tenant) for role in ("tenant-admin", "tenant-member", "tenant-member"))
    stranger, operator, auditor = Person("tenant-admin", tenant=a_tenant()), Person(*OPERATOR), Person("auditor")
    made = bob.token(tenant.slug, roles=["tenant-member"]).json()
    path = f"/tenants/{tenant.slug}/tokens"
    for who, count in ((admin, 1), (bob, 1), (eve, 0), (operator, 1), (auditor, 1)):
        assert len(who("GET", path).json()["items"]) == count
    assert stranger("GET", path).status_code == 404
    assert Person("viewer")("GET", path).status_code == 404
    for who in (eve, stranger, auditor):
        assert who("DELETE", f"{path}/{made['id']}").status_code == 404
    assert admin("DELETE", f"/tenants/platform/tokens/{made['id']}").status_code == 404
    assert admin("DELETE", f"{path}/{made['id']}").status_code == 204
    assert use(made["token"]).status_code == 401
    assert admin("GET", path).json()["items"][0]["state"] == "revoked"


def test_a_token_can_be_bound_to_a_network(settings):
    person = Person("viewer")
    token = person.token(roles=["viewer"], cidr="10.0.0.0/8").json()["token"]
    assert use(token).status_code == 401
    assert use(token, REMOTE_ADDR="10.1.2.3").status_code == 200
    settings.TRUSTED_PROXIES = ["127.0.0.0/8"]
    assert use(token, HTTP_X_FORWARDED_FOR="10.1.2.3, 192.0.2.1").status_code == 401
    assert use(token, HTTP_X_FORWARDED_FOR="192.0.2.1, 10.1.2.3").status_code == 200


# --- tokens that make tokens, and tokens in the place of others -------------------------------------------------------


def a_maker(**fields):
    """A person's token that makes tokens: what is known of it, and its plaintext."""
    person = Person("viewer", "auditor")
    made = person.token(roles=["viewer"], scopes=["tokens:manage", "nodes:read"], **fields)
    assert made.status_code == 201, made.content
    return made.json(), made.json()["token"]


def ask(maker, **fields):
    body = {"name": "more", "roles": ["viewer"], "scopes": ["nodes:read"], **fields}
    return use(maker, "/tenants/platform/tokens", "POST", body, REMOTE_ADDR="10.1.2.3")


def test_a_token_makes_none_that_reaches_further_than_itself():
    soon = datetime.now(UTC) + timedelta(days=7)
    known, maker = a_maker(cidr="10.1.0.0/16", expires_at=soon.isoformat())
    made = ask(maker)
    assert made.status_code == 201, made.content
    assert (made.json()["cidr"], made.json()["expires_at"]) == ("10.1.0.0/16", known["expires_at"])
    narrow = ask(maker, cidr="10.1.2.0/24", expires_at=(soon - timedelta(days=1)).isoformat())
    assert narrow.json()["cidr"] == "10.1.2.0/24"
    for fields, pointer in (
        ({"cidr": "10.0.0.0/8"}, "/cidr"), ({"cidr": "192.0.2.0/24"}, "/cidr"), ({"cidr": "::/0"}, "/cidr"),
        ({"expires_at": (soon + timedelta(seconds=1)).isoformat()}, "/expires_at"),
        ({"scopes": ["nodes:manage"]}, "/scopes"), ({"scopes": []}, "/scopes"),
    ):  # fmt: skip
        refused = ask(maker, **fields)
        error = refused.json()["errors"][0]
        assert (refused.status_code, error["pointer"], error["code"]) == (400, pointer, "beyond-caller"), fields
    assert code(ask(maker, roles=["auditor"])) == (403, "role-not-grantable")


def test_a_token_that_does_not_say_so_makes_no_tokens():
    plain = Person("viewer").token(roles=["viewer"]).json()["token"]
    assert code(ask(plain)) == (403, "scope-missing")


def test_a_token_of_long_life_makes_tokens_of_the_usual_one():
    late = datetime.now(UTC) + timedelta(days=364)
    _, maker = a_maker(expires_at=late.isoformat())
    until = datetime.fromisoformat(ask(maker).json()["expires_at"])
    assert abs(until - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)


def rotate(who, slug, token_id):
    return who.post(f"/tenants/{slug}/tokens/{token_id}:rotate", None)


def test_a_rotated_token_has_the_same_rights_and_the_old_one_a_day_more():
    person = Person("viewer")
    old = person.token(roles=["viewer"], scopes=["nodes:read"], cidr="127.0.0.0/8", name="ci").json()
    made = rotate(person, "platform", old["id"])
    assert made.status_code == 201, made.content
    new = made.json()
    same = ("kind", "name", "owner", "roles", "scopes", "cidr")
    assert [new[n] for n in same] == [old[n] for n in same]
    assert new["id"] != old["id"]
    assert made.headers["Cache-Control"] == "no-store"
    assert use(new["token"], "/nodes").status_code == use(old["token"], "/nodes").status_code == 200
    listed = {t["id"]: t for t in person.get("/tenants/platform/tokens").json()["items"]}
    left = datetime.fromisoformat(listed[old["id"]]["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    assert listed[new["id"]]["expires_at"] >= old["expires_at"]
    kinds = [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]
    assert kinds[-2:] == ["token.issued", "token.rotated"]


def test_who_could_not_make_the_new_one_does_not_rotate_the_old_one():
    tenant = a_tenant()
    admin, bob = Person("tenant-admin", tenant=tenant), Person("tenant-member", tenant=tenant)
    own = bob.token(tenant.slug, roles=["tenant-member"]).json()
    assert code(rotate(admin, tenant.slug, own["id"])) == (403, "forbidden"), "a person's tokens are the person's"
    for who in (Person("tenant-admin", tenant=a_tenant()), Person("viewer"), Person("tenant-member", tenant=tenant)):
        assert code(rotate(who, tenant.slug, own["id"])) == (404, "not-found")
    bob.prove(ago=301)
    assert code(rotate(bob, tenant.slug, own["id"])) == (403, "step-up-required")
    bob.prove()
    assert bob("DELETE", f"/tenants/{tenant.slug}/tokens/{own['id']}").status_code == 204
    assert code(rotate(bob, tenant.slug, own["id"])) == (409, "conflict")


def test_roles_that_the_owner_has_lost_do_not_come_along():
    person = Person("viewer", "auditor")
    old = person.token(roles=["viewer", "auditor"]).json()
    services.user_change(user_id=person.user.id, roles=["viewer"])
    assert rotate(person, "platform", old["id"]).json()["roles"] == ["viewer"]
    services.user_change(user_id=person.user.id, roles=[])
    assert code(rotate(person, "platform", old["id"])) == (409, "conflict")
