"""Share groups: refusals first, then who shares with whom, until when, and that the database alone says so too."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from audit import approvals
from audit.models import Approval, Event
from kvconsole.infra.access import Principal, tenant_context
from kvconsole.infra.keystore import keystore, namespace_name
from kvconsole.infra.rest import Problem
from kvcore.keys import chain_keys, subkey
from tenants import selectors, services
from tenants.models import KeyLease, Namespace, ShareGroup, ShareMember, Tenant
from tests.tenants.making import a_model, a_namespace, a_tenant, principal, some, unrecorded

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(microsecond=0)
TOKENS = b"".join(i.to_bytes(4, "little") for i in range(512))


def actions():
    return [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]


def asked(of, *others, lasts=timedelta(days=30), **fields):
    given = {
        "owner": of.slug, "name": some("g"), "audience": [t.slug for t in others], "reason": "one contract",
        "expires_at": NOW + lasts, "actor": principal(None, "operator"), "now": NOW, **fields,
    }  # fmt: skip
    return services.share_group_request(**given)


def a_group(owner, *others, **fields):
    group = asked(owner, *others, **fields)
    return services.share_group_approve(group_id=group.id, actor=principal(None, "approver", at=NOW), now=NOW)


def refused(code, call, **fields):
    before = len(actions())
    with pytest.raises(Problem) as caught:
        call(**fields)
    assert caught.value.code == code
    assert len(actions()) == before
    return caught.value


def keys(namespace):
    secret = keystore().secret(namespace_name(bytes(namespace.digest), namespace.generation))
    return set(chain_keys(TOKENS, block_tokens=16, blk=subkey(secret, "blk")))


# --- refusals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"owner": "nobody"}, "not-found"),
        ({"owner": "platform"}, "not-found"),
        ({"audience": ["nobody"]}, "audience-unknown"),
        ({"audience": ["platform"]}, "audience-unknown"),
        ({"audience": []}, "validation-failed"),
        ({"audience": [f"t{i}" for i in range(101)]}, "validation-failed"),
        ({"name": "A"}, "validation-failed"),
        ({"name": ""}, "validation-failed"),
        ({"reason": " "}, "validation-failed"),
        ({"lasts": timedelta()}, "expiry-range"),
        ({"lasts": timedelta(seconds=-1)}, "expiry-range"),
        ({"lasts": timedelta(days=180, seconds=1)}, "expiry-range"),
    ],
)
def test_what_cannot_be_asked_for(fields, code):
    one, two = a_tenant(), a_tenant()
    refused(code, lambda: asked(one, two, **fields))
    assert not ShareGroup.objects.exists()


def test_an_unknown_audience_is_pointed_at():
    one, two = a_tenant(), a_tenant()
    problem = refused("audience-unknown", lambda: asked(one, two, audience=[two.slug, "nobody"]))
    assert problem.errors == [{"pointer": "/audience/1", "code": "audience-unknown", "detail": "nobody"}]


@pytest.mark.parametrize("fields", [{"isolation": "arena"}, {"isolation": "node"}, {"residency": "eu"}])
def test_tenants_that_must_be_apart_do_not_share(fields):
    owner, apart = a_tenant(), a_tenant(**fields)
    refused("share-group-incompatible", lambda: asked(owner, apart))


def test_a_name_is_given_once_while_its_group_lasts():
    one, two = a_tenant(), a_tenant()
    group = asked(one, two, name="g")
    refused("share-group-taken", lambda: asked(one, two, name="g"))
    asked(two, one, name="g")
    services.share_group_revoke(group_id=group.id, reason="wrong", actor=principal(None, "operator"))
    assert asked(one, two, name="g").id != group.id


def test_nobody_approves_what_they_asked_for_nor_twice_nor_what_is_not_there_nor_too_late():
    one, two = a_tenant(), a_tenant()
    me, other = principal(None, "operator", "approver", at=NOW), principal(None, "approver", at=NOW)
    approve = services.share_group_approve
    group = asked(one, two, actor=me)
    refused("approval-own", approve, group_id=group.id, actor=me, now=NOW)
    refused("not-found", approve, group_id=one.id, actor=other, now=NOW)
    late = NOW + timedelta(days=8)
    refused("approval-expired", approve, group_id=group.id, actor=principal(None, "approver", at=late), now=late)
    assert approve(group_id=group.id, actor=other, now=NOW).state == "approved"
    refused("approval-decided", approve, group_id=group.id, actor=other, now=NOW)
    refused("approval-decided", services.share_group_deny, group_id=group.id, actor=other, now=NOW)


def test_a_person_is_the_same_with_a_token():
    one, two = a_tenant(), a_tenant()
    person = principal(None, "operator", "approver")
    by_hand = replace(person, user_id=person.id)
    by_token = Principal(kind="token", id="abc", user_id=person.id, roles=person.roles)
    group = asked(one, two, actor=by_token)
    refused("approval-own", services.share_group_approve, group_id=group.id, actor=by_hand)
    refused("person-needed", services.share_group_approve, group_id=group.id, actor=by_token)


def test_a_service_account_asks_for_nothing_that_a_second_person_decides():
    one, two = a_tenant(), a_tenant()
    made, _ = services.person_create(
        username=some("svc"), roles=["operator"], kind="service", how="none", actor=principal(None, "operator")
    )
    puppet = Principal(kind="token", id="abc", user_id=str(made.id), roles=frozenset({"operator"}))
    refused("person-needed", lambda: asked(one, two, actor=puppet))


def test_what_is_over_is_not_revoked_again():
    group = a_group(a_tenant(), a_tenant())
    who = principal(None, "operator")
    refused("validation-failed", services.share_group_revoke, group_id=group.id, reason=" ", actor=who)
    refused("not-found", services.share_group_revoke, group_id=group.tenant_id, reason="x", actor=who)
    services.share_group_revoke(group_id=group.id, reason="x", actor=who)
    refused("share-group-inactive", services.share_group_revoke, group_id=group.id, reason="x", actor=who)
    refused("approval-decided", services.share_group_approve, group_id=group.id, actor=who)


def test_a_request_cannot_use_a_group_that_is_not_its_own_or_not_in_force():
    one, two, third, model = a_tenant(), a_tenant(), a_tenant(), a_model()
    group = asked(one, two)
    resolve = services.namespace_resolve
    refused("share-group-inactive", resolve, tenant=one, model=model, share_group=group.name)
    services.share_group_approve(group_id=group.id, actor=principal(None, "approver", at=NOW), now=NOW)
    refused("not-found", resolve, tenant=third, model=model, share_group=str(group.id))
    refused("not-found", resolve, tenant=one, model=model, share_group="nothing")
    late = NOW + timedelta(days=30)
    refused("share-group-inactive", resolve, tenant=one, model=model, share_group=group.name, now=late)
    own = a_model(tenant_id=one.id)
    refused("validation-failed", resolve, tenant=one, model=own, share_group=group.name)
    lora = services.adapter_register(model=model, name="l", digest="d", tenant_id=one.id)
    refused("validation-failed", resolve, tenant=one, model=model, adapter=lora, share_group=group.name)


def test_what_must_be_erasable_apart_is_not_shared():
    one, two, model = a_tenant(erasure_scope="subject", classes=["a"]), a_tenant(erasure_scope="tenant"), a_model()
    group = a_group(one, two)
    for fields in ({"subject": "alice"}, {"label": "x"}, {"data_class": "a"}):
        refused(
            "share-group-not-separable", services.namespace_resolve, tenant=one, model=model, share_group=group.name,
            **fields,
        )  # fmt: skip
    fine = services.namespace_resolve(tenant=one, model=model, share_group=group.name, session="s")
    assert services.namespace_resolve(tenant=two, model=model, share_group=group.name, subject="bob").id == fine.id


@pytest.mark.parametrize("scope", ["tenant", "class", "session"])
def test_what_has_a_data_class_is_not_shared_whatever_the_erasure_scope(scope):
    one, two, model = a_tenant(erasure_scope=scope, classes=["restricted"]), a_tenant(), a_model()
    group = a_group(one, two)
    call = {"tenant": one, "model": model, "share_group": group.name}
    refused("share-group-not-separable", services.namespace_resolve, **call, data_class="restricted")
    if scope == "tenant":  # no request of it can be told from one of that class
        refused("share-group-not-separable", services.namespace_resolve, **call)
    else:
        assert services.namespace_resolve(**call).data_class == ""
    assert not Namespace.objects.filter(share_group=group.id, data_class="restricted").exists()


@pytest.mark.parametrize("change", [{"isolation": "arena"}, {"residency": "eu"}, {"state": "closed"}])
def test_who_changed_since_the_group_was_asked_for_is_not_approved(change):
    one, two = a_tenant(), a_tenant()
    here, elsewhere = asked(one, two), asked(one, two)
    with unrecorded():  # past the service, which refuses that
        Tenant.objects.filter(id=two.id).update(**change)
    approver = principal(None, "approver", at=NOW)
    refused("share-group-incompatible", services.share_group_approve, group_id=here.id, actor=approver, now=NOW)
    approval = approvals.approval_of("share_group", str(elsewhere.id), tenant_id=one.id)
    approvals.approval_decide(approval_id=approval.id, approve=True, actor=approver, now=NOW)
    assert services.share_groups_sweep(now=NOW) == 1
    states = [ShareGroup.objects.get(id=g.id).state for g in (here, elsewhere)]
    assert states == ["awaiting_approval", "revoked"]
    assert not ShareMember.objects.filter(state="approved").exists()
    services.share_group_deny(group_id=here.id, actor=approver, now=NOW)


# --- sharing ------------------------------------------------------------------------------


def test_tenants_share_no_key_members_do_and_after_revoke_they_do_not():
    one, two, model = a_tenant(), a_tenant(), a_model()
    private = [a_namespace(t, model) for t in (one, two)]
    assert keys(private[0]).isdisjoint(keys(private[1]))
    group = a_group(one, two)
    shared = [a_namespace(t, model, share_group=name) for t, name in ((one, group.name), (two, str(group.id)))]
    assert keys(shared[0]) == keys(shared[1])
    assert a_namespace(two, model, share_group=f"{one.slug}/{group.name}").id == shared[0].id
    assert [a_namespace(t, model).id for t in (one, two)] == [n.id for n in private]
    position, _ = selectors.fences_after(2**62)
    services.share_group_revoke(group_id=group.id, reason="contract over", actor=principal(None, "operator"))
    _, fences = selectors.fences_after(position)
    assert [(f.ns, f.min_gen) for f in fences] == [(bytes(shared[0].digest), 2)]
    for tenant in (one, two):
        refused("share-group-inactive", services.namespace_resolve, tenant=tenant, model=model, share_group=group.name)
    after = Namespace.objects.get(id=shared[0].id)
    assert keys(after).isdisjoint(keys(shared[0]))


def test_a_shared_namespace_is_the_platforms_and_a_new_group_has_another():
    one, two, model = a_tenant(), a_tenant(), a_model()
    first = a_namespace(one, model, share_group=a_group(one, two).name)
    second = a_namespace(one, model, share_group=a_group(one, two).name)
    assert first.id != second.id
    assert str(first.tenant_id) == "00000000-0000-7000-8000-000000000001"


def test_what_expires_ends_by_itself():
    one, two, model = a_tenant(), a_tenant(), a_model()
    group = a_group(one, two, expires_at=NOW + timedelta(hours=1))
    namespace = a_namespace(one, model, share_group=group.name)
    assert services.share_groups_sweep(now=NOW + timedelta(minutes=59)) == 0
    assert services.share_groups_sweep(now=NOW + timedelta(hours=1)) == 1
    assert services.share_groups_sweep(now=NOW + timedelta(hours=2)) == 0
    group.refresh_from_db()
    namespace.refresh_from_db()
    assert (group.state, namespace.min_gen) == ("expired", 2)
    assert actions()[-1] == "sharing.expired"


def test_what_nobody_decides_expires_and_what_is_decided_elsewhere_is_found():
    one, two = a_tenant(), a_tenant()
    forgotten, agreed, denied = (asked(one, two) for _ in "abc")
    for group, approve in ((agreed, True), (denied, False)):
        approval = approvals.approval_of("share_group", str(group.id), tenant_id=group.tenant_id)
        who = principal(None, "approver", at=NOW)
        approvals.approval_decide(approval_id=approval.id, approve=approve, actor=who, now=NOW)
        assert ShareGroup.objects.get(id=group.id).state == "awaiting_approval"
    assert services.share_groups_sweep(now=NOW + timedelta(days=8)) == 3
    states = [ShareGroup.objects.get(id=g.id).state for g in (forgotten, agreed, denied)]
    assert states == ["expired", "approved", "denied"]
    assert Approval.objects.get(object_id=str(forgotten.id)).state == "withdrawn"
    assert set(ShareMember.objects.filter(group=agreed).values_list("state", flat=True)) == {"approved"}


def test_every_step_leaves_one_event():
    one, two = a_tenant(), a_tenant()
    before = len(actions())
    group = a_group(one, two)
    services.share_group_revoke(group_id=group.id, reason="x", actor=principal(None, "operator"))
    assert actions()[before:] == ["sharing.requested", "sharing.approved", "sharing.revoked"]


# --- the database alone ---------------------------------------------------------------------


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_row_level_security_follows_the_grant():
    one, two, third, model = a_tenant(), a_tenant(), a_tenant(), a_model()
    group = asked(one, two)

    def seen(tenant):
        with tenant_context(principal(tenant)):
            shared = Namespace.objects.filter(share_group=group.id).count()
            return ShareGroup.objects.count(), ShareMember.objects.count(), shared

    assert [seen(t) for t in (one, two, third)] == [(1, 2, 0), (1, 1, 0), (0, 0, 0)]
    services.share_group_approve(group_id=group.id, actor=principal(None, "approver", at=NOW), now=NOW)
    with tenant_context(principal(two)):
        namespace = services.namespace_resolve(tenant=two.slug, model=model.name, share_group=group.name)
    assert [seen(t)[2] for t in (one, two, third)] == [1, 1, 0]
    with tenant_context(principal(third)), pytest.raises(Problem) as caught:
        services.namespace_resolve(tenant=third.slug, model=model.name, share_group=str(group.id))
    assert caught.value.code == "not-found"
    gateways = [
        Principal(kind="gateway", id=f"g{i}", holder="g-1", roles=frozenset({"gateway"}), tenant_id=t.id)
        for i, t in enumerate((one, two, third))
    ]

    def leased(gateway, seq=0):
        with tenant_context(gateway):
            return services.key_leases_renew(principal=gateway, held={}, fence_seq=seq, everything=True, now=NOW)

    answers = [leased(g) for g in gateways]
    assert [len(a.leases) for a in answers] == [1, 1, 0]
    assert answers[0].leases[0]["subkeys"] == answers[1].leases[0]["subkeys"]
    assert {x.tenant_id for x in KeyLease.objects.all()} == {one.id, two.id}
    with tenant_context(principal(one, "tenant-admin")):
        services.share_group_revoke(group_id=group.id, reason="we leave", actor=principal(one, "tenant-admin"))
    answers = [leased(g, a.fence_seq) for g, a in zip(gateways, answers, strict=True)]
    assert [len(a.leases) for a in answers] == [0, 0, 0]
    assert [[f["min_gen"] for f in a.fences_after] for a in answers] == [[2], [2], []]
    assert [seen(t)[2] for t in (one, two, third)] == [0, 0, 0]
    namespace = Namespace.objects.get(id=namespace.id)
    assert (namespace.generation, namespace.min_gen) == (2, 2)


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_member_can_end_nothing_but_its_own_groups():
    one, two = a_tenant(), a_tenant()
    group = a_group(one, two)
    with tenant_context(principal(two)), pytest.raises(Problem):
        services.share_group_revoke(group_id=group.id, reason="x", actor=principal(two))
    assert ShareGroup.objects.get(id=group.id).state == "approved"
