"""Tenants, models, epochs, namespaces, generations, tokens and key leases as services make them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from kvconsole.infra.access import Principal
from kvconsole.infra.keystore import KeyDestroyed, keystore, namespace_name, tenant_name
from kvconsole.infra.rest import Problem
from kvcore.keys import GENERATION_CLOSED, engine_salt, salt_tag, subkey
from tenants import selectors, services
from tenants.models import FenceAck, KeyLease, Namespace
from tenants.services.key_lease import LEASE_SECONDS, ticket_day, ticket_key
from tests.tenants.making import LLAMA, NODE, a_model, a_namespace, a_node, a_tenant, a_user, principal

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)


def events(kind=None):
    rows = Event.objects.only("id", "event_type", "body").order_by("id")
    found = [json.loads(bytes(e.body)) for e in rows]
    return [e for e in found if kind in (None, e["action"])]


def refused(code, call, **fields):
    before = len(events())
    with pytest.raises(Problem) as caught:
        call(**fields)
    assert caught.value.code == code
    assert len(events()) == before
    return caught.value


# --- tenants and people -----------------------------------------------------------


def test_a_tenant_has_a_key_and_an_event():
    tenant = a_tenant(slug="acme", classes=["a"], retention={"a": 60}, residency="eu")
    assert keystore().secret(tenant_name(tenant.id))
    (event,) = events("tenant.created")
    assert event["data"]["slug"] == "acme"
    assert event["object"] == {"kind": "tenant", "id": str(tenant.id)}


@pytest.mark.parametrize("slug", ["", "A", "a_b", "-a", "a-", "ä", "a" * 64, "a b", "а"])
def test_slugs_are_what_they_look_like(slug):
    assert refused("validation-failed", services.tenant_create, slug=slug, name="x").errors[0]["pointer"] == "/slug"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"isolation": "x"}, "/isolation"),
        ({"erasure_scope": "x"}, "/erasure_scope"),
        ({"classes": ["a b"]}, "/classes"),
        ({"retention": {"a": 1}}, "/retention"),
        ({"classes": ["a"], "retention": {"a": 0}}, "/retention"),
        ({"classes": ["a"], "retention": {"a": 2**31}}, "/retention"),
    ],
)
def test_wrong_fields_are_pointed_at(fields, pointer):
    problem = refused("validation-failed", services.tenant_create, slug="x", name="x", **fields)
    assert problem.errors[0]["pointer"] == pointer


def test_a_slug_and_a_log_in_name_are_given_once():
    a_tenant(slug="acme"), a_user(username="alice")
    refused("slug-taken", services.tenant_create, slug="acme", name="x")
    refused("username-taken", services.user_create, username="alice", password="x", roles=[])


def test_a_persons_name_is_in_no_readable_column():
    user = a_user(username="alice", email="alice@example.org", roles=["viewer", "viewer"])
    assert user.roles == ["viewer"]
    (event,) = events("user.created")
    assert "alice" not in json.dumps(event)
    refused("validation-failed", services.user_create, username="bob", password="x", roles=["root"])
    refused("validation-failed", services.user_create, username="b b", password="x", roles=[])


def test_rights_are_changed_with_an_event():
    user = a_user(roles=["viewer"])
    services.user_change(user_id=user.id, roles=["operator"])
    services.user_change(user_id=user.id, is_active=False)
    user.refresh_from_db()
    assert (user.roles, user.is_active) == (["operator"], False)
    assert [e["data"]["changed"] for e in events("user.changed")] == [["roles"], ["is_active"]]
    refused("validation-failed", services.user_change, user_id=user.id, roles=["root"])
    refused("not-found", services.user_change, user_id=a_tenant().id, roles=[])


def test_a_new_password_replaces_the_old_one():
    user = a_user(password="old")
    services.user_password_set(user_id=user.id, password="new")
    user.refresh_from_db()
    assert user.check_password("new")
    assert not user.check_password("old")
    refused("not-found", services.user_password_set, user_id=a_tenant().id, password="x")


# --- models, epochs, adapters -------------------------------------------------------


def test_a_model_knows_the_bytes_of_a_token():
    model = a_model(epochs=0)
    assert model.bytes_per_token == 1024
    assert model.per_group[0]["group"] == 0
    refused("model-taken", services.model_register, name=model.name, config=LLAMA)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"config": {}}, "config-unusable"),
        ({"config": LLAMA, "kv_dtype": "int3"}, "config-unusable"),
        ({"config": LLAMA, "tensor_parallel": 0}, "config-unusable"),
        ({"config": LLAMA, "block_tokens": 0}, "validation-failed"),
        ({"config": {"x": "y" * 300_000}}, "validation-failed"),
        ({"config": LLAMA, "name": "a\nb"}, "validation-failed"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(fields, code):
    refused(code, services.model_register, **{"name": "m", **fields})


def test_epochs_only_grow_and_the_same_weights_get_a_new_one():
    model = a_model(epochs=0)
    got = [services.epoch_create(model=model, weights_digest=w).epoch for w in ("a", "b", "a")]
    assert got == [1, 2, 3]
    refused("validation-failed", services.epoch_create, model=model, weights_digest="")


def test_an_adapter_is_its_content():
    model = a_model()
    one = services.adapter_register(model=model, name="lora", digest="d1")
    assert services.adapter_register(model=model, name="other", digest="d1").id == one.id
    assert services.adapter_register(model=model, name="lora", digest="d2").epoch == 2


# --- namespaces -----------------------------------------------------------------------


def test_the_first_request_makes_the_namespace_and_its_key_the_second_finds_it():
    tenant, model = a_tenant(), a_model()
    one = services.namespace_resolve(tenant=tenant.slug, model=model.name, label="x")
    assert services.namespace_resolve(tenant=tenant, model=model, label="x").id == one.id
    assert len(events("namespace.created")) == 1
    assert (one.generation, one.min_gen, one.state) == (1, 1, "active")
    assert keystore().secret(namespace_name(bytes(one.digest), 1))


def test_whatever_must_be_equal_to_share_a_block_makes_another_namespace():
    tenant, other = (a_tenant(erasure_scope="session", classes=["a", "b"]) for _ in "ab")
    model, bigger = a_model(), a_model(block_tokens=32)
    lora = services.adapter_register(model=model, name="l", digest="d")
    base = {"tenant": tenant, "model": model}
    digests = [bytes(services.namespace_resolve(**{**base, **change}).digest) for change in (
        {}, {"tenant": other}, {"model": bigger}, {"adapter": lora}, {"adapter": "d", "label": "l"},
        {"data_class": "a"},
        {"data_class": "b"}, {"label": "x"}, {"subject": "s"}, {"session": "t"}, {"key_scheme": "engine:v"},
    )]  # fmt: skip
    services.epoch_create(model=model, weights_digest="new")
    digests.append(bytes(services.namespace_resolve(**base).digest))
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("scope", "kinds"), [("tenant", 1), ("class", 2), ("label", 3), ("subject", 4), ("session", 5)]
)
def test_only_what_is_separable_is_in_the_digest(scope, kinds):
    tenant, model = a_tenant(erasure_scope=scope, classes=["a"]), a_model()
    changes = ({}, {"data_class": "a"}, {"label": "x"}, {"subject": "s"}, {"session": "t"})
    found = {services.namespace_resolve(tenant=tenant, model=model, **change).id for change in changes}
    assert len(found) == kinds


def test_a_subject_is_kept_as_a_keyed_digest():
    tenants = [a_tenant(erasure_scope="subject") for _ in "ab"]
    one, two = (a_namespace(t, subject="alice@example.org").subject for t in tenants)
    assert len(one) == len(two) == 64
    assert one != two
    assert not Namespace.objects.filter(spec__icontains="alice").exists()


def test_what_does_not_exist_resolves_to_nothing():
    tenant, model, bare = a_tenant(), a_model(), a_model(epochs=0)
    resolve = services.namespace_resolve
    refused("not-found", resolve, tenant="nobody", model=model)
    refused("unknown-model", resolve, tenant=tenant, model="nothing")
    refused("no-epoch", resolve, tenant=tenant, model=bare)
    refused("validation-failed", resolve, tenant=tenant, model=model, data_class="nothing")
    refused("not-found", resolve, tenant=tenant, model=model, adapter="nothing")
    refused("not-found", resolve, tenant=tenant, model=model, share_group="g")


def test_a_bump_raises_generation_and_fence_together_and_tells_it():
    namespace = a_namespace()
    before, _ = selectors.fences_after(0)
    bumped = services.generation_bump(namespace=namespace, reason="test", actor=None)
    assert (bumped.generation, bumped.min_gen) == (2, 2)
    latest, fences = selectors.fences_after(before)
    assert latest > before
    assert fences[0].min_gen == 2
    (event,) = events("namespace.generation_bumped")
    assert event["data"]["fence_seq"] == latest
    store = keystore()
    assert store.secret(namespace_name(bytes(namespace.digest), 1)) != store.secret(
        namespace_name(bytes(namespace.digest), 2)
    )
    assert services.generation_bump(namespace=namespace.id, reason="test", actor=None).generation == 3


def test_a_closed_or_unknown_namespace_is_not_bumped():
    namespace = a_namespace()
    Namespace.objects.filter(id=namespace.id).update(state="closed", min_gen=GENERATION_CLOSED)
    refused("namespace-closed", services.generation_bump, namespace=namespace, reason="x", actor=None)
    refused("not-found", services.generation_bump, namespace=a_tenant().id, reason="x", actor=None)


# --- tokens ---------------------------------------------------------------------------


def test_a_token_that_works_once_works_once():
    _, plaintext = services.token_issue("enrol", holder="n", now=NOW, expires_at=NOW + timedelta(minutes=15))
    redeem = services.token_redeem
    assert redeem(kind="node", plaintext=plaintext, now=NOW) is None
    assert redeem(kind="enrol", plaintext=plaintext, now=NOW + timedelta(minutes=15)) is None
    assert redeem(kind="enrol", plaintext=plaintext[:-1] + "!", now=NOW) is None
    assert redeem(kind="enrol", plaintext=plaintext, now=NOW).holder == "n"
    assert redeem(kind="enrol", plaintext=plaintext, now=NOW) is None


def test_tokens_last_a_year_at_most_and_have_known_roles():
    refused("validation-failed", services.token_issue, kind="user", roles=["root"])
    for days in (366, 0):
        refused("validation-failed", services.token_issue, kind="user", now=NOW, expires_at=NOW + timedelta(days=days))


def test_the_secret_is_nowhere():
    token, plaintext = services.token_issue("service", roles=["viewer"])
    secret = plaintext.split("_")[3]
    assert secret not in json.dumps(events())
    assert secret.encode() not in bytes(token.secret_hash)
    assert services.token_revoke(token=token, reason="test")
    assert not services.token_revoke(token=token, reason="test")


# --- key leases -------------------------------------------------------------------------


@pytest.fixture
def node():
    return a_node()


def holder(kind="node", **fields):
    return Principal(kind=kind, id="tok", holder=NODE, roles=frozenset({kind}), **fields)


def renew(who, *, held=None, seq=0, everything=True, now=NOW):
    return services.key_leases_renew(principal=who, held=held or {}, fence_seq=seq, everything=everything, now=now)


def test_a_node_gets_keys_of_blocks_and_the_tag_of_the_salt_but_not_the_salt(node):
    namespace = a_namespace()
    answer = renew(holder())
    (lease,) = answer.leases
    secret = keystore().secret(namespace_name(bytes(namespace.digest), 1))
    assert set(lease["subkeys"]) == {"blk", "enc"}
    assert lease["subkeys"]["blk"] == subkey(secret, "blk").hex()
    assert lease["salt_tag"] == salt_tag(engine_salt(subkey(secret, "salt"))).hex()
    assert lease["until"] == "2026-09-01T12:05:00Z"
    assert answer.ticket_key == ticket_key(NODE, NOW).hex()


def test_a_gateway_gets_the_salt_and_no_key_of_contents():
    a_namespace()
    answer = renew(holder("gateway"))
    assert set(answer.leases[0]["subkeys"]) == {"blk", "salt"}
    assert "salt_tag" not in answer.leases[0]
    assert answer.ticket_key == ""


def test_who_is_no_holder_gets_nothing():
    with pytest.raises(Problem) as caught:
        renew(principal(None, "operator"))
    assert caught.value.code == "forbidden"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"enrolled": False, "state": "joining"}, "token-invalid"),
        ({"node_id": "00000000-0000-7000-8000-0000000000a2"}, "token-invalid"),
        ({"state": "fenced", "wanted": "fenced"}, "node-fenced"),
        ({"state": "lost", "wanted": "fenced"}, "node-fenced"),
        ({"state": "fenced"}, "node-fenced"),
    ],
)
def test_a_node_that_is_not_one_any_more_gets_nothing_and_acknowledges_nothing(fields, code):
    a_namespace()
    a_node(**fields)
    refused(code, renew, who=holder())
    assert not KeyLease.objects.exists()
    assert not FenceAck.objects.exists()


@pytest.mark.parametrize("state", ["joining", "ready", "degraded", "silent", "lost", "cordoned", "draining"])
def test_a_node_that_may_come_back_gets_its_keys(state):
    a_namespace()
    a_node(state=state)
    assert len(renew(holder()).leases) == 1


def test_renewing_is_acknowledging_and_is_recorded_once_per_call(node):
    namespace = a_namespace()
    renew(holder())
    services.generation_bump(namespace=namespace, reason="test", actor=None)
    latest, _ = selectors.fences_after(0)
    later = renew(holder(), now=NOW + timedelta(minutes=2))
    assert later.fences_after == [{"namespace": bytes(namespace.digest).hex(), "min_gen": 2}]
    assert later.leases[0]["generation"] == 2
    renew(holder(), seq=latest, now=NOW + timedelta(minutes=4))
    assert FenceAck.objects.get(holder=NODE).seq == latest
    renew(holder(), seq=0, now=NOW + timedelta(minutes=5))
    assert FenceAck.objects.get(holder=NODE).seq == latest
    rows = KeyLease.objects.order_by("generation").values_list("generation", "until")
    assert [g for g, _ in rows] == [1, 2]
    assert rows[0][1] == NOW + timedelta(seconds=LEASE_SECONDS)
    assert [e["data"]["new"] for e in events("key.leased")] == [1, 1, 0, 0]


def test_a_holder_cannot_acknowledge_what_is_not_there_yet(node):
    renew(holder(), seq=10**15)
    assert FenceAck.objects.get(holder=NODE).seq == selectors.fences_after(0)[0]


def test_without_all_only_what_is_held_is_renewed(node):
    one, _ = a_namespace(label="a"), a_namespace(label="b")
    held = {bytes(one.digest).hex(): 1}
    assert len(renew(holder()).leases) == 2
    assert [x["namespace"] for x in renew(holder(), held=held, everything=False).leases] == list(held)


def test_a_destroyed_key_is_leased_to_nobody(node):
    namespace = a_namespace()
    keystore().destroy(namespace_name(bytes(namespace.digest), 1))
    assert renew(holder()).leases == []
    with pytest.raises(KeyDestroyed):
        keystore().secret(namespace_name(bytes(namespace.digest), 1))


@pytest.mark.parametrize(("region", "leases"), [("us", 0), ("eu-fra", 1)])
def test_a_nodes_region_decides_what_it_gets(region, leases):
    a_node(region=region)
    a_namespace(a_tenant(residency="eu-fra"))
    for said in ("us", "eu-fra"):  # by its token, which yields to what the fleet knows
        assert len(renew(holder(scopes=frozenset({f"region:{said}"}))).leases) == leases


def test_ticket_keys_are_of_a_node_and_a_day_and_follow_the_nodes_last_renewal(node):
    midnight = datetime(2026, 9, 2, 0, 0, 10, tzinfo=UTC)
    assert ticket_key("a", NOW) != ticket_key("b", NOW) != ticket_key("b", midnight)
    assert ticket_day(NODE, midnight) == midnight
    renew(holder(), now=NOW)
    assert ticket_day(NODE, midnight) == NOW
