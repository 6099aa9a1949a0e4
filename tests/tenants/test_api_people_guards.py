"""People over REST: who reaches whom with which roles, and what two people do at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connections

from kvconsole.infra import sql
from tenants import services
from tenants.models import User
from tests.tenants.making import a_tenant, a_user, principal, some
from tests.tenants.persons import APPROVER, OPERATOR, Person, code

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


# --- only who could give a person's roles takes them all --------------------------------------------------------------


@pytest.mark.parametrize("roles", [["approver"], ["destructive-operator", "viewer"]])
def test_who_cannot_give_a_role_neither_removes_nor_suspends_nor_lets_in_who_has_it(roles):
    operator, approver, target = Person(*OPERATOR), Person(*APPROVER), a_user(roles=roles)
    refusal = (403, "role-not-grantable")
    assert code(operator("DELETE", f"/people/{target.id}")) == refusal
    assert code(operator.change(target.id, suspended=True)) == refusal
    assert User.objects.get(id=target.id).is_active
    services.person_change(user_id=target.id, is_active=False, actor=principal(None, "operator", "approver"))
    assert code(operator.change(target.id, suspended=False)) == refusal
    assert not User.objects.get(id=target.id).is_active
    both = Person("operator", "approver")
    assert both.change(target.id, suspended=False).status_code == 200
    assert both("DELETE", f"/people/{target.id}").status_code == 204
    assert code(approver("DELETE", f"/people/{a_user(roles=['operator']).id}")) == refusal


def test_a_tenants_administrator_still_manages_its_own_people():
    tenant = a_tenant()
    admin, bob = Person("tenant-admin", tenant=tenant), a_user(roles=["tenant-member"], tenant=tenant)
    assert admin.change(bob.id, suspended=True).status_code == 200
    assert admin.change(bob.id, suspended=False).status_code == 200
    assert admin("DELETE", f"/people/{bob.id}").status_code == 204


# --- nobody is a second person by a service account -------------------------------------------------------------------


def test_no_service_account_is_an_approver():
    both = Person("operator", "approver")
    made = both.post("/people", {"username": some("svc"), "kind": "service", "roles": ["approver"]})
    assert (*code(made), made.json()["errors"][0]["code"]) == (400, "validation-failed", "not-of-service")
    puppet = both.post("/people", {"username": some("svc"), "kind": "service", "roles": ["operator"]}).json()["id"]
    assert code(both.change(puppet, roles=["operator", "approver"])) == (400, "validation-failed")
    assert User.objects.get(id=puppet).roles == ["operator"]


# --- two at the same moment -------------------------------------------------------------------------------------------


def held(user):
    """Somebody's row, locked by a connection of its own: whoever wants to change it waits."""
    connection = psycopg.connect(sql.dsn("operator"))
    connection.execute("SELECT FROM tenants_user WHERE id = %s FOR UPDATE", (user.id,))
    return connection


def waiting(count):
    """So many connections of ours wait for a lock."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with connections["default"].cursor() as cursor:
        cursor.execute(asked)
        return cursor.fetchone()[0] >= count


def at_once(user, *calls):
    """The answers of calls that have all read what they need before the first of them can write."""

    def run(call):
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        blocker = held(user)
        answers = [pool.submit(run, call) for call in calls]
        tick = threading.Event()
        for _ in range(100):
            if waiting(len(calls)):
                break
            tick.wait(0.1)
        blocker.rollback()
        blocker.close()
        return [a.result(timeout=30) for a in answers]


def test_of_two_changes_of_one_state_only_one_is_done():
    one, two, target = Person(*OPERATOR), Person(*OPERATOR), a_user(roles=["viewer"])
    tag = one.get(f"/people/{target.id}").headers["ETag"]

    def change(who, roles):
        return lambda: who("PATCH", f"/people/{target.id}", {"roles": roles}, **{"If-Match": tag})

    answers = at_once(target, change(one, ["viewer", "auditor"]), change(two, ["viewer", "operator"]))
    assert sorted(a.status_code for a in answers) == [200, 412]
    done = next(a for a in answers if a.status_code == 200)
    assert User.objects.get(id=target.id).roles == done.json()["roles"]


def test_of_two_forms_of_one_state_only_one_is_done():
    one, two, target = Person(*OPERATOR), Person(*OPERATOR), a_user(roles=["viewer"])
    seen = one.client.get(f"/people/{target.id}").context["seen"]

    def save(who, role):
        fields = {"roles": ["viewer", role], "email": "", "seen": seen}
        return lambda: who.client.post(f"/people/{target.id}", fields)

    answers = at_once(target, save(one, "auditor"), save(two, "operator"))
    assert sorted(a.status_code for a in answers) == [302, 412]


def test_a_form_without_what_was_seen_changes_nothing():
    operator, target = Person(*OPERATOR), a_user(roles=["viewer"])
    assert operator.client.post(f"/people/{target.id}", {"roles": ["auditor"], "email": ""}).status_code == 412
    assert User.objects.get(id=target.id).roles == ["viewer"]
