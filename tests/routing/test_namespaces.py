import pytest

from kvconsole.infra.access import Principal
from routing.codes import Refusal
from routing.namespaces import KEPT_SECONDS, Namespaces, keys_of
from tenants import services
from tenants.models import Model
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def world():
    tenant = a_tenant(erasure_scope="label")
    model = Model.objects.get(id=a_namespace(tenant=tenant).model_id).name
    clock = Clock()
    return Namespaces(clock), clock, tenant, model


FLEET = Principal(kind="gateway", id="t", roles=frozenset({"gateway"}), holder="g1")


def own(tenant):
    return Principal(kind="token", id="t", roles=frozenset({"tenant-member"}), tenant_id=tenant.id,
                     tenant_slug=tenant.slug)  # fmt: skip


def key(tenant, model, **fields):
    whole = {"tenant": tenant.slug, "model": model, "adapter": "", "data_class": "", "share_group": "", "label": "",
             "subject": "", "session": "", **fields}  # fmt: skip
    return tuple(whole.values())


def test_what_a_session_does_not_separate_is_found_without_asking(world):
    known, _, tenant, model = world
    place = known.learn(FLEET, key(tenant, model))
    assert known.find(None, key(tenant, model)) is place
    assert known.find(None, key(tenant, model, session="s1", subject="u")) is place
    assert known.find(None, key(tenant, model, label="other")) is None, "a label is a namespace of its own here"
    assert known.find(tenant.id, key(tenant, model)) is None, "nothing goes from one plane to another"
    keys_of(place)
    assert len(place.salt) == 43
    assert place.block_bytes == place.block_tokens * Model.objects.get(name=model).bytes_per_token


def test_foreign_and_unknown_are_refused_alike(world):
    known, _, tenant, model = world
    stranger = own(a_tenant())
    told = []
    for slug in (tenant.slug, "nobody"):
        with pytest.raises(Refusal) as e:
            known.learn(stranger, (slug, *key(tenant, model)[1:]))
        told.append((e.value.code, e.value.detail))
    assert told[0] == told[1]
    assert told[0][0] == "not-found"
    with pytest.raises(Refusal) as e:
        known.learn(FLEET, ("nobody", *key(tenant, model)[1:]))
    assert (e.value.code, e.value.detail) == told[0]


def test_what_is_used_is_read_again_and_what_changed_is_learned_anew(world):
    known, clock, tenant, model = world
    place = known.learn(own(tenant), key(tenant, model))
    clock.now += 1
    known.again()
    assert place.read == clock.now
    from tenants.selectors import namespaces_by_digest

    row = namespaces_by_digest([place.digest])[place.digest]
    services.generation_bump(namespace=row.id, reason="test", actor=None)
    clock.now += 1
    known.again()
    assert known.find(tenant.id, key(tenant, model)) is None
    assert known.learn(own(tenant), key(tenant, model)).generation == 2


def test_what_was_known_is_used_for_so_long_and_no_longer(world):
    known, clock, tenant, model = world
    known.learn(own(tenant), key(tenant, model))
    clock.now += KEPT_SECONDS - 1
    assert known.find(tenant.id, key(tenant, model))
    assert known.stand_in(tenant.id, key(tenant, model, label="new")).digest == b""
    clock.now += 2
    assert known.find(tenant.id, key(tenant, model)) is None
    assert known.stand_in(tenant.id, key(tenant, model, label="new")) is None


def test_a_stand_in_goes_nowhere_that_any_of_the_tenants_requests_may_not(world):
    known, _, tenant, model = world
    place = known.learn(own(tenant), key(tenant, model))
    place.refused = {"n": "residency"}
    assert known.stand_in(tenant.id, key(tenant, model, label="x")).refused == {"n": "residency"}
    assert known.stand_in(tenant.id, key(tenant, "other-model")) is None


def test_a_destroyed_key_gives_no_salt(world):
    from kvconsole.infra.keystore import keystore, namespace_name

    known, _, tenant, model = world
    place = known.learn(own(tenant), key(tenant, model))
    keystore().destroy(namespace_name(place.digest, place.generation))
    with pytest.raises(Refusal) as e:
        keys_of(place)
    assert e.value.code == "namespace-closed"
