"""Many namespaces are fenced at once and for good; keys of what is fenced end, those of what goes on stay."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra.access import system
from kvconsole.infra.keystore import KeyDestroyed, keystore, namespace_name, rehearsal
from kvconsole.infra.rest import Problem
from kvcore.keys import GENERATION_CLOSED
from tenants.erasing import epoch_leased_until, namespaces_selected
from tenants.models import Epoch, FenceEntry, KeyLease
from tenants.services import (
    epoch_close,
    epoch_reopen,
    generations_shred,
    generations_shredded,
    namespace_resolve,
    namespaces_fence,
)
from tenants.services.replaying import fences_mark
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW, WHO = datetime.now(UTC), system("test")


def test_all_have_their_next_generation_and_a_place_in_the_log_of_fences():
    tenant, model = a_tenant(erasure_scope="label"), a_model()
    made = [a_namespace(tenant, model, label=str(n)) for n in range(5)]
    fenced = namespaces_fence(namespaces=[n.id for n in made], reason="deletion", actor=WHO, now=NOW)
    assert {f.min_gen for f in fenced} == {2}
    assert len({f.fence_seq for f in fenced}) == 5
    for one in fenced:
        entry = FenceEntry.objects.get(seq=one.fence_seq)
        assert (bytes(entry.digest), entry.min_gen) == (one.digest, 2)
        assert keystore().exists(namespace_name(one.digest, 2))
    assert Event.objects.filter(event_type=TYPES["namespaces.fenced"].number).count() == 1
    assert namespaces_fence(namespaces=[], reason="deletion", actor=WHO, now=NOW) == []


def test_a_fence_costs_the_same_statements_whatever_their_number_and_none_of_them_is_of_blocks():
    tenant, model = a_tenant(erasure_scope="label"), a_model()
    paid = []
    for count in (1, 30):
        made = [a_namespace(tenant, model, label=f"{count}-{n}").id for n in range(count)]
        with CaptureQueriesContext(connection) as asked:
            assert len(namespaces_fence(namespaces=made, reason="deletion", actor=WHO, now=NOW)) == count
        paid.append([one["sql"] for one in asked.captured_queries])
    assert len(paid[0]) == len(paid[1]) <= 6
    assert not any("catalog_" in sql for sql in paid[0] + paid[1])


def test_the_newest_fence_is_noted_by_its_name_without_another_look(
    django_capture_on_commit_callbacks, django_assert_num_queries
):
    with django_capture_on_commit_callbacks() as after:
        fenced = namespaces_fence(namespaces=[a_namespace().id], reason="deletion", actor=WHO, now=NOW)
    with django_assert_num_queries(0):
        for callback in after:
            callback()
    noted = keystore().fence_mark()
    fences_mark(fenced[-1].fence_seq)
    assert noted == keystore().fence_mark()
    assert noted[0] == fenced[-1].fence_seq


def test_without_the_keys_of_the_next_generations_nothing_is_fenced():
    model, tenant = a_model(), a_tenant(erasure_scope="label")
    made = [a_namespace(tenant, model, label=str(n)) for n in range(3)]
    keystore().ensure(namespace_name(bytes(made[1].digest), 2))
    keystore().destroy(namespace_name(bytes(made[1].digest), 2))
    with pytest.raises(KeyDestroyed), transaction.atomic():
        namespaces_fence(namespaces=[n.id for n in made], reason="deletion", actor=WHO, now=NOW)
    assert not FenceEntry.objects.filter(namespace_id__in=[n.id for n in made]).exists()


def test_a_rehearsal_makes_no_key():
    namespace = a_namespace()
    with rehearsal():
        namespaces_fence(namespaces=[namespace.id], reason="deletion", actor=WHO, now=NOW)
    assert not keystore().exists(namespace_name(bytes(namespace.digest), 2))


def test_keys_below_the_fence_end_for_good():
    namespace = a_namespace()
    (fenced,) = namespaces_fence(namespaces=[namespace.id], reason="deletion", actor=WHO, now=NOW)
    below = [(fenced.digest, fenced.min_gen)]
    assert not generations_shredded(below)
    assert generations_shred(generations=below, tenant_id=namespace.tenant_id, operation="o", actor=WHO) == 1
    assert generations_shredded(below)
    assert keystore().exists(namespace_name(fenced.digest, 2))
    assert generations_shred(generations=below, tenant_id=namespace.tenant_id, operation="o", actor=WHO) == 0


def test_no_key_ends_while_the_log_is_not_signed_in_time(settings):
    namespace = a_namespace()
    (fenced,) = namespaces_fence(namespaces=[namespace.id], reason="deletion", actor=WHO, now=NOW)
    below = [(fenced.digest, fenced.min_gen)]
    settings.LOG_LATE_SECONDS = -1.0  # what was just recorded waits for longer
    with pytest.raises(Problem) as refused:
        generations_shred(generations=below, tenant_id=namespace.tenant_id, operation="o", actor=WHO)
    assert refused.value.code == "audit-unavailable"
    assert not generations_shredded(below)


def miswritten(epoch):
    """Ways to write an epoch's number that are none, though something of each would be it."""
    name, _, number = epoch.rpartition("/")
    wrong = (
        f"{number:0>9}0",
        f"0{number}",
        f"{number:0>9}",
        f" {number}",
        f"+{number}",
        f"{number}_0",
        "\u0661",
        "",
        "\u00b9",
    )
    return [f"{name}/{one}" for one in wrong]


def test_an_epoch_is_written_in_one_way():
    model = a_model(epochs=1)
    right = f"{model.name}/1"
    namespace = a_namespace(a_tenant(), model)
    KeyLease.objects.create(tenant_id=namespace.tenant_id, namespace=namespace, holder_kind="gateway", holder="g",
                            generation=1, granted_at=NOW, until=NOW + timedelta(seconds=9))  # fmt: skip
    assert [one.id for one in namespaces_selected(epoch=right)] == [namespace.id]
    assert epoch_leased_until(right, NOW) is not None
    epoch_close(epoch=right, policy="drain", actor=WHO)
    for wrong in miswritten(right):
        with pytest.raises(Problem) as refused:
            namespaces_selected(epoch=wrong)
        assert refused.value.code == "not-found"
        assert epoch_leased_until(wrong, NOW) is None
        epoch_reopen(epoch=wrong, operation="o", actor=WHO)
        assert Epoch.objects.get(model=model, epoch=1).state == "retired"
    epoch_reopen(epoch=right, operation="o", actor=WHO)
    assert Epoch.objects.get(model=model, epoch=1).state == "open"


def test_an_epoch_that_is_over_is_resolved_for_nobody():
    tenant, model = a_tenant(), a_model(epochs=2)
    namespace = a_namespace(tenant, model)
    assert namespace.model_epoch == 2
    epoch_close(epoch=f"{model.name}/2", policy="immediate", actor=WHO)
    (fenced,) = namespaces_fence(namespaces=[namespace.id], reason="epoch", actor=WHO, now=NOW, close=True)
    assert fenced.min_gen == GENERATION_CLOSED
    namespace.refresh_from_db()
    assert namespace.state == "closed"
    assert namespace_resolve(tenant=tenant, model=model).model_epoch == 1
    for name in (f"{model.name}/2", f"{model.name}/9", f"{model.name}/x", "nobody/1", *miswritten(f"{model.name}/1")):
        with pytest.raises(Problem):
            epoch_close(epoch=name, policy="immediate", actor=WHO)
