"""People, service accounts and tokens over REST: who may do what to whom, and what a token can at the time of use."""

from datetime import UTC, datetime
from functools import partial

import pytest
from django.db import DatabaseError, connections, transaction

from kvconsole.infra import access, sql
from kvconsole.infra.rest import Problem
from tenants import services
from tenants.models import User
from tests.tenants.making import a_tenant, a_user, principal, some, unrecorded
from tests.tenants.persons import APPROVER, OPERATOR, Person, code, use

both = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
pytestmark = both


# --- who may make whom ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roles", [["viewer"], ["auditor"], ["destructive-operator"], []])
def test_who_manages_nobody_makes_nobody(roles):
    assert code(Person(*roles)("POST", "/people", {"username": some()})) == (403, "forbidden")


@pytest.mark.parametrize(
    ("maker", "roles", "answer"),
    [
        (OPERATOR, ["viewer", "operator", "auditor"], 201),
        (OPERATOR, ["destructive-operator"], 403),
        (OPERATOR, ["approver"], 403),
        (OPERATOR, ["node"], 403),
        (APPROVER, ["destructive-operator"], 201),
        (APPROVER, ["operator"], 403),
        (OPERATOR, ["tenant-admin"], 400),
        (OPERATOR, ["root"], 400),
    ],
)
def test_roles_are_given_by_who_can_give_them(maker, roles, answer):
    given = Person(*maker)("POST", "/people", {"username": some(), "roles": roles})
    assert given.status_code == answer, given.content


def test_a_tenants_administrator_makes_people_of_its_tenant_only_with_roles_of_tenants_only():
    mine, other = a_tenant(), a_tenant()
    admin = Person("tenant-admin", tenant=mine)
    made = admin("POST", "/people", {"username": "bob", "roles": ["tenant-member"]})
    assert (made.status_code, made.json()["username"], made.json()["tenant"]) == (201, f"{mine.slug}/bob", mine.slug)
    assert made.json()["state"] == "invited"
    for roles in (["viewer"], ["operator"], ["tenant-member", "approver"]):
        assert code(admin("POST", "/people", {"username": "eve", "roles": roles})) == (403, "role-not-grantable")
    foreign = admin("POST", "/people", {"username": "eve", "roles": [], "tenant": other.slug})
    assert code(foreign) == (404, "not-found")
    theirs, fleets = a_user(tenant=other, roles=["tenant-member"]), a_user()
    for user in (theirs, fleets):
        assert admin("GET", f"/people/{user.id}").status_code == 404
        assert admin("DELETE", f"/people/{user.id}").status_code == 404
        assert admin("PATCH", f"/people/{user.id}", {"roles": []}, **{"If-Match": "*"}).status_code == 404
        assert admin("POST", f"/people/{user.id}:invite").status_code == 404
    names = [p["username"] for p in admin("GET", "/people").json()["items"]]
    assert names == sorted([f"{mine.slug}/bob", admin.user.username])
    assert admin("GET", f"/people?tenant={other.slug}").status_code == 404


def test_a_name_that_another_tenant_has_tells_nothing():
    one, two = (Person("tenant-admin", tenant=a_tenant()) for _ in range(2))
    for admin in (one, two):
        assert admin("POST", "/people", {"username": "bob"}).status_code == 201
    assert code(two("POST", "/people", {"username": "bob"})) == (409, "username-taken")


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        ("alice", "alice", (409, "username-taken")),
        ("alice", "ＡＬＩＣＥ", (409, "username-lookalike")),
        ("alice", "Alice", (409, "username-lookalike")),
        ("alice", "a1ice", (409, "username-lookalike")),
        ("modern", "modem", (409, "username-lookalike")),
        ("сор", "cop", (409, "username-lookalike")),
        ("x-y", "x_y", (409, "username-lookalike")),
        ("zoe", "zоe", (400, "validation-failed")),
        ("bob", "bo b", (400, "validation-failed")),
        ("bob", "../bob", (400, "validation-failed")),
        ("bob", "bob\u200b", (400, "validation-failed")),
        ("bob", "", (400, "validation-failed")),
        ("bob", "x" * 64, (400, "out-of-range")),
    ],
)
def test_names_that_look_alike_collide_with_a_clear_message(first, second, refusal):
    operator = Person(*OPERATOR)
    assert operator("POST", "/people", {"username": first}).status_code == 201
    assert code(operator("POST", "/people", {"username": second})) == refusal


def test_names_of_other_scripts_are_names():
    assert Person(*OPERATOR)("POST", "/people", {"username": "李雷"}).status_code == 201


# --- changes ----------------------------------------------------------------------------------------------------------


def test_nobody_changes_themselves_nor_takes_what_they_cannot_give():
    operator, destroyer = Person(*OPERATOR), a_user(roles=["destructive-operator", "viewer"])
    Person(*OPERATOR), Person(*APPROVER)
    for fields in ({"roles": ["operator"]}, {"suspended": True}):
        assert code(operator.change(operator.user.id, **fields)) == (409, "own-roles")
    assert code(operator("DELETE", f"/people/{operator.user.id}")) == (409, "own-roles")
    assert code(operator.change(destroyer.id, roles=["viewer"])) == (403, "role-not-grantable")
    assert code(operator.change(destroyer.id, roles=["viewer", "destructive-operator", "approver"]))[0] == 403
    assert code(operator("POST", f"/people/{destroyer.id}:invite")) == (403, "role-not-grantable")
    viewer = a_user(roles=["viewer"])
    assert operator.change(viewer.id, suspended=True).json()["state"] == "suspended"
    assert operator.change(viewer.id, suspended=False).json()["state"] == "active"


def test_a_tenants_administrator_changes_whoever_the_fleet_named():
    """The demonstration's people, and those from the command line, have names without the tenant's slug."""
    tenant = a_tenant()
    admin, user = Person("tenant-admin", tenant=tenant), a_user(roles=["tenant-member"], tenant=tenant)
    assert admin.change(user.id, suspended=True).json()["state"] == "suspended"
    assert admin.change(user.id, roles=["tenant-admin"]).json()["roles"] == ["tenant-admin"]


def test_the_last_one_who_could_give_rights_stays():
    """Who takes the role has it, so this is of two who take it from each other, and of the command line."""
    one, only, actor = a_user(roles=["operator"]), a_user(roles=["approver"]), access.system("test")
    for act in (
        partial(services.person_change, is_active=False), partial(services.person_change, roles=["viewer"]),
        services.person_remove,
    ):  # fmt: skip
        with pytest.raises(Problem) as caught:
            act(user_id=only.id, actor=actor)
        assert caught.value.code == "last-administrator"
    second = a_user(roles=["operator"])
    services.person_change(user_id=one.id, is_active=False, actor=actor)
    assert User.objects.get(id=second.id).is_active


def test_a_change_needs_the_etag_of_what_is_changed():
    operator, user = Person(*OPERATOR), a_user()
    assert code(operator("PATCH", f"/people/{user.id}", {"roles": []})) == (428, "etag-required")
    assert code(operator("PATCH", f"/people/{user.id}", {"roles": []}, **{"If-Match": '"x"'})) == (412, "etag-mismatch")
    tag = operator("GET", f"/people/{user.id}").headers["ETag"]
    with unrecorded():
        User.objects.filter(id=user.id).update(last_login=datetime.now(UTC))
    assert operator("PATCH", f"/people/{user.id}", {"roles": []}, **{"If-Match": tag}).json()["roles"] == []
    assert code(operator.change(user.id, email="no address")) == (400, "validation-failed")
    assert code(operator.change(user.id, nonsense=1))[0] == 400


def test_a_rehearsal_changes_nobody():
    operator, user = Person(*OPERATOR), a_user()
    assert operator("POST", "/people?validate_only=true", {"username": "ghost"}).status_code == 201
    assert not User.objects.filter(username="ghost").exists()
    assert operator("DELETE", f"/people/{user.id}?validate_only=true").status_code == 204
    assert User.objects.get(id=user.id).is_active


def test_who_is_removed_has_nothing_left():
    tenant = a_tenant()
    admin, bob = Person("tenant-admin", tenant=tenant), Person("tenant-member", tenant=tenant)
    plaintext = bob.token(tenant.slug, roles=["tenant-member"]).json()["token"]
    assert use(plaintext).status_code == 200
    from allauth.mfa.models import Authenticator

    with unrecorded():
        Authenticator.objects.create(user_id=bob.user.id, type="totp", data={"secret": "00"})
    assert admin("DELETE", f"/people/{bob.user.id}").status_code == 204
    assert use(plaintext).status_code == 401
    assert bob("GET", "/me").status_code == 401
    row = User.objects.get(id=bob.user.id)
    assert (row.email, row.roles, row.is_active) == ("", [], False)
    assert "removed" in row.username
    assert not Authenticator.objects.exists()
    assert code(admin("DELETE", f"/people/{bob.user.id}")) == (409, "person-removed")
    assert bob.user.id not in [p["id"] for p in admin("GET", "/people").json()["items"]]


# --- fresh proofs and scopes ------------------------------------------------------------------------------------------


def test_rights_are_given_with_a_fresh_proof_only(settings):
    operator, user = Person(*OPERATOR, proved=False), a_user()
    calls = (
        ("POST", "/people", {"username": some()}),
        ("PATCH", f"/people/{user.id}", {"roles": []}),
        ("DELETE", f"/people/{user.id}", None),
        ("POST", f"/people/{user.id}:invite", None),
        ("POST", "/tenants/platform/tokens", {"name": "t", "roles": ["viewer"]}),
    )
    for ago in (None, settings.STEP_UP_SECONDS + 5):
        if ago:
            operator.prove(ago)
        for method, path, body in calls:
            assert code(operator(method, path, body, **{"If-Match": "*"})) == (403, "step-up-required"), path
    operator.prove(settings.STEP_UP_SECONDS - 60)
    assert operator("DELETE", f"/people/{user.id}").status_code == 204
    until = operator("GET", "/me").json()["session"]["step_up_until"]
    assert datetime.fromisoformat(until) > datetime.now(UTC)


def test_a_token_cannot_step_up_but_be_made_for_it():
    user = a_user(roles=["operator", "viewer"])
    given = {"tenant_id": sql.PLATFORM, "user": user, "roles": ["operator"]}
    _, plain = services.token_issue("user", **given)
    _, reading = services.token_issue("user", **given, scopes=["*:read", "*:write", "people:read"])
    _, managing = services.token_issue("user", **given, scopes=["people:manage"])
    body = {"username": some(), "roles": ["viewer"]}
    assert code(use(plain, "/people", "POST", body)) == (403, "scope-missing")
    assert code(use(reading, "/people", "POST", body)) == (403, "scope-missing")
    assert use(managing, "/people", "POST", body).status_code == 201
    assert code(use(managing, "/people")) == (403, "scope-missing"), "with scopes: these and no more"
    assert code(use(managing, f"/people/{user.id}", "DELETE")) == (403, "scope-missing"), "another scope"
    assert use(reading, "/people").status_code == 200
    assert use(plain, "/people").status_code == 200


# --- the database alone -----------------------------------------------------------------------------------------------


def test_the_database_itself_gives_a_tenant_no_role_of_the_fleet():
    tenant, other = a_tenant(), a_tenant()
    bob, eve = a_user(tenant=tenant, roles=["tenant-member"]), a_user(tenant=other, roles=["tenant-member"])
    who = principal(tenant, "tenant-admin")
    attacks = (
        ("UPDATE tenants_user SET roles = '{operator}' WHERE id = %s", [bob.id]),
        ("UPDATE tenants_user SET tenant_id = NULL WHERE id = %s", [bob.id]),
        ("SELECT password FROM tenants_user", []),
        ("SELECT * FROM mfa_authenticator", []),
        ("SELECT * FROM socialaccount_socialaccount", []),
        ("SELECT * FROM account_emailaddress", []),
        ("SELECT * FROM tenants_guess", []),
        ("SELECT tenants_guess_begin('{}', '{}', '1 s', '{1 s}')", []),
        ("SELECT tenants_user_forget()", []),
        ("SELECT * FROM tenants_lookup('username', %s)", [eve.username]),
        ("DELETE FROM tenants_user WHERE id = %s", [bob.id]),
    )
    for statement, values in attacks:
        with (
            pytest.raises(DatabaseError, match=r"denied|policy|own people"),
            access.tenant_context(who) as alias,
            connections[alias].cursor() as cursor,
        ):
            cursor.execute(statement, values)
    with access.tenant_context(who) as alias, connections[alias].cursor() as cursor:
        cursor.execute("UPDATE tenants_user SET email = 'x@y.z' WHERE id = %s", [eve.id])
        assert cursor.rowcount == 0
        transaction.set_rollback(True, using=alias)
