"""Rows that no service makes, and changes at the same moment: nobody is taken for somebody else, nothing is missed."""

import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connections, transaction

from audit.models import Approval
from kvconsole.infra import sql
from kvconsole.infra.access import tenant_context
from kvconsole.infra.rest import Problem
from tenants import selectors, services
from tenants.constants import PLATFORM_TENANT
from tenants.models import Epoch, Namespace, ShareGroup, ShareMember, Token
from tests.conftest import TEST_DATABASE
from tests.tenants.making import NODE, a_model, a_namespace, a_tenant, a_user, principal, unrecorded
from tests.tenants.services.test_share_group import a_group, asked

both = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def now():
    return datetime.now(UTC)


# --- tokens -----------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["node", "enrol"])
def test_a_tenant_has_no_node(kind):
    _, planted = services.token_issue(kind, tenant_id=a_tenant().id, holder=NODE)
    assert selectors.token_principal(planted) is None
    assert services.token_redeem(kind=kind, plaintext=planted, now=now()) is None
    _, real = services.token_issue(kind, holder=NODE)
    assert services.token_redeem(kind=kind, plaintext=real, now=now()).tenant_id == PLATFORM_TENANT


@pytest.mark.django_db
def test_an_invitation_is_for_people_of_its_tenant():
    one, two = a_tenant(), a_tenant()
    staff, bob = a_user(roles=["operator"]), a_user(tenant=two, roles=["tenant-member"])
    for person, whose in ((staff, one.id), (bob, one.id), (bob, PLATFORM_TENANT)):
        _, planted = services.token_issue("invite", tenant_id=whose, holder=str(person.id))
        assert services.invited(invitation=planted, now=now()) is None
        with pytest.raises(Problem) as caught, transaction.atomic():
            services.invitation_accept(invitation=planted, password="a long new password", now=now())
        assert caught.value.code == "invitation-invalid"
    _, real = services.token_issue("invite", tenant_id=two.id, holder=str(bob.id))
    assert services.invited(invitation=real, now=now()) == bob


@pytest.mark.django_db
def test_a_token_under_the_id_of_another_tenants_token_takes_nothing_with_it():
    one, two = a_tenant(), a_tenant()
    good, plaintext = services.token_issue("service", tenant_id=one.id, roles=["tenant-member"])
    twin, _ = services.token_issue("service", tenant_id=two.id, roles=["tenant-member"])
    with unrecorded():
        Token.objects.filter(id=twin.id).update(id=good.id)
    twin.id = good.id
    assert services.token_revoke(token=twin, reason="test")
    assert selectors.token_principal(plaintext).tenant_id == one.id


# --- approvals --------------------------------------------------------------------------


def planted_decision(group, **fields):
    """A decision that was written into the table, past the rule that the table has for it."""
    with psycopg.connect(**superuser, autocommit=True) as c:
        c.execute("ALTER TABLE audit_approval DROP CONSTRAINT IF EXISTS audit_approval_two_persons")
        c.execute("SET session_replication_role = replica")
        names = ", ".join(f"{name} = %s" for name in fields)
        c.execute(f"UPDATE audit_approval SET {names} WHERE object_id = %s", [*fields.values(), str(group.id)])


superuser: dict[str, str] = {}


@pytest.fixture
def planting(postgres):
    superuser["conninfo"] = postgres.superuser_dsn(TEST_DATABASE)


@both
def test_a_decision_of_nobody_or_of_who_asked_or_of_another_tenant_opens_nothing(planting):
    one, two = a_tenant(), a_tenant()
    for fields in ({"decided_by": ""}, {"decided_by": None}, {"tenant_id": two.id, "decided_by": "user:x"}):
        group = asked(one, two)
        said = {**fields, "decided_by": group.requested_by} if fields["decided_by"] is None else fields
        planted_decision(group, state="approved", decided_at=now(), **said)
        services.share_groups_sweep(now=now())
        assert ShareGroup.objects.get(id=group.id).state == "awaiting_approval", said
    assert Approval.objects.filter(state="approved").count() == 3


# --- share groups -----------------------------------------------------------------------


@both
def test_between_its_expiry_and_the_sweep_a_group_is_left_to_the_sweep():
    one, two = a_tenant(), a_tenant()
    group = a_group(one, two)
    namespace = a_namespace(one, a_model(), share_group=group.name)
    with unrecorded():
        ShareMember.objects.filter(group=group).update(expires_at=now() - timedelta(seconds=1))
        ShareGroup.objects.filter(id=group.id).update(expires_at=now() - timedelta(seconds=1))
    who = principal(one, "tenant-admin")
    with pytest.raises(Problem) as caught, tenant_context(who):
        services.share_group_revoke(group_id=group.id, reason="x", actor=who)
    assert caught.value.code == "share-group-inactive"
    assert Namespace.objects.get(id=namespace.id).min_gen == 1
    assert services.share_groups_sweep(now=now()) == 1
    assert Namespace.objects.get(id=namespace.id).min_gen == 2


@both
def test_a_namespace_that_is_made_while_its_group_ends_is_fenced_with_the_others():
    one, two, model = a_tenant(), a_tenant(), a_model()
    group = a_group(one, two)
    made, go, ended = threading.Event(), threading.Event(), threading.Event()

    def resolve():
        with tenant_context(principal(two)):
            services.namespace_resolve(tenant=two.slug, model=model.name, share_group=group.name)
            made.set()
            go.wait(20)
        connections.close_all()

    def revoke():
        services.share_group_revoke(group_id=group.id, reason="x", actor=principal(None, "operator"))
        ended.set()
        connections.close_all()

    threads = [threading.Thread(target=resolve), threading.Thread(target=revoke)]
    threads[0].start()
    assert made.wait(20)
    threads[1].start()
    assert not ended.wait(0.7)  # it waits for the one that is being made
    go.set()
    for thread in threads:
        thread.join(20)
    found = Namespace.objects.get(share_group=group.id)
    assert (found.generation, found.min_gen) == (2, 2)


@both
def test_a_namespace_is_not_made_of_a_group_that_ends_meanwhile():
    one, two, model = a_tenant(), a_tenant(), a_model()
    group = a_group(one, two)
    outcome, begun = [], threading.Event()

    def resolve():
        try:
            with tenant_context(principal(two)):
                begun.set()
                services.namespace_resolve(tenant=two.slug, model=model.name, share_group=group.name)
        except Problem as problem:
            outcome.append(problem.code)
        connections.close_all()

    thread = threading.Thread(target=resolve)
    with transaction.atomic():
        services.share_group_revoke(group_id=group.id, reason="x", actor=principal(None, "operator"))
        thread.start()
        assert begun.wait(20)
        time.sleep(0.7)
        assert outcome == []
    thread.join(20)
    assert outcome == ["share-group-inactive"]
    assert not Namespace.objects.filter(share_group=group.id).exists()


# --- epochs -----------------------------------------------------------------------------

EPOCH = (
    "INSERT INTO tenants_epoch (id, tenant_id, model_id, epoch, weights_digest, note, state, created_at)"
    " VALUES (%s, %s, %s, {}, 'w', '', 'open', now())"
)


@both
@pytest.mark.parametrize("statement", [
    EPOCH.format(4), EPOCH.format(0), "UPDATE tenants_epoch SET epoch = 9 WHERE epoch = 5",
    "UPDATE tenants_epoch SET epoch = 1 WHERE epoch = 5", "UPDATE tenants_epoch SET weights_digest = 'x'",
    "UPDATE tenants_epoch SET model_id = gen_random_uuid()", "DELETE FROM tenants_epoch",
])  # fmt: skip
@pytest.mark.parametrize("role", ["operator", "superuser"])
def test_numbers_of_epochs_only_grow_whoever_writes(postgres, statement, role):
    model = a_model(epochs=0)
    dsn = postgres.superuser_dsn(TEST_DATABASE) if role == "superuser" else sql.dsn(role)
    refused = (psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)
    with psycopg.connect(dsn) as c:
        c.execute(EPOCH.format(5), (sql.uuid7(), PLATFORM_TENANT, model.id))
        with pytest.raises(refused), c.transaction():
            c.execute(statement, (sql.uuid7(), PLATFORM_TENANT, model.id) if "%s" in statement else ())
        c.execute(EPOCH.format(6), (sql.uuid7(), PLATFORM_TENANT, model.id))
        c.execute("UPDATE tenants_epoch SET state = 'retired', note = 'x'")
        c.rollback()
    assert not Epoch.objects.filter(model=model).exists()
