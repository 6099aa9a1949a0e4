"""What of a tenant can be changed: refusals first, then what the change does to what is cached already."""

import json
import uuid

import pytest

from audit.models import Event
from catalog.classes import class_rules_set
from catalog.placing import node_policies
from kvconsole.infra.rest import Problem
from kvcore.residency import Rule
from tenants import selectors, services
from tenants.models import Namespace
from tenants.placing import tenant_place
from tests.tenants.making import a_model, a_namespace, a_tenant, principal
from tests.tenants.services.test_share_group import a_group, asked

pytestmark = pytest.mark.django_db
MEMORY = {"ssd": "data-class", "remote": "data-class"}


def change(tenant, **changes):
    return services.tenant_change(slug=tenant.slug, changes=changes, actor=principal(None, "operator"))


def refused(code, tenant, **changes):
    before = Event.objects.count()
    with pytest.raises(Problem) as caught:
        change(tenant, **changes)
    assert caught.value.code == code
    assert Event.objects.count() == before
    return caught.value


def told(*namespaces):
    """What a node is told of these namespaces: the rule that its agent keeps to."""
    digests = [bytes(n.digest) for n in namespaces]
    policies = node_policies(node=str(uuid.uuid4()), region="eu", digests=digests)
    return [policies[d].barred for d in digests]


@pytest.mark.parametrize("residency", ["a b", "ä", "-x", "eu\n", "../eu", "eu/fra"])
def test_a_residency_is_the_name_of_a_region(residency):
    problem = refused("validation-failed", a_tenant(), residency=residency)
    assert problem.errors[0]["pointer"] == "/residency"
    with pytest.raises(Problem):
        a_tenant(residency=residency)
    assert a_tenant(residency="eu-fra.1").residency == "eu-fra.1"


@pytest.mark.parametrize("changes", [{"isolation": "arena"}, {"residency": "eu"}])
def test_who_shares_stays_as_it_is_until_the_group_is_over(changes):
    owner, member, third = a_tenant(), a_tenant(), a_tenant()
    groups = [a_group(owner, member), asked(third, member)]
    problem = refused("share-group-incompatible", member, **changes)
    assert (problem.status_code, problem.errors[0]["pointer"]) == (409, f"/{next(iter(changes))}")
    for group in groups:
        assert f"{group.owner_slug}/{group.name}" in problem.text
    assert ":revoke" in problem.text
    assert change(member, name="Other", classes=["a"]).name == "Other"
    for group in groups:
        services.share_group_revoke(group_id=group.id, reason="x", actor=principal(None, "operator"))
    change(member, **changes)


def test_a_change_is_told_with_values_before_and_after_but_no_name():
    tenant = a_tenant(name="Old Name", classes=["a"], retention={"a": 60})
    change(tenant, name="New Name", erasure_scope="subject", retention={"a": 90}, residency="")
    data = [json.loads(bytes(e.body)) for e in Event.objects.only("id", "body").order_by("id")][-1]
    assert data["action"] == "tenant.changed"
    assert data["data"] == {
        "changed": ["name", "erasure_scope", "retention"],
        "before": {"erasure_scope": "label", "retention": {"a": 60}},
        "after": {"erasure_scope": "subject", "retention": {"a": 90}},
    }


def test_what_could_not_be_told_apart_is_fenced_and_stays_judged_as_all_of_it():
    tenant, model = a_tenant(erasure_scope="tenant", classes=["restricted", "public"]), a_model()
    mixed = a_namespace(tenant, model, data_class="restricted")
    assert a_namespace(tenant, model, data_class="public").id == mixed.id
    assert told(mixed) == [MEMORY]
    position, _ = selectors.fences_after(2**62)
    change(tenant, erasure_scope="class")
    _, fences = selectors.fences_after(position)
    assert [(f.ns, f.min_gen) for f in fences] == [(bytes(mixed.digest), 2)]
    names = [a_namespace(tenant, model, data_class=c) for c in ("", "public", "restricted")]
    assert len({n.id for n in names} | {mixed.id}) == 4  # nothing new goes where it cannot be told apart
    assert told(mixed, *names) == [MEMORY, {}, {}, MEMORY]
    place = tenant_place(tenant.slug)
    class_rules_set(tenant=place, rules={"public": Rule(regions=frozenset({"us"}))}, actor=None)
    assert set(told(mixed)[0].values()) == {"residency"}  # the old bytes may be public ones too
    assert told(names[0]) == [{}]
    change(tenant, erasure_scope="tenant")
    back = a_namespace(tenant, model, data_class="restricted")
    assert (back.id, back.generation) == (mixed.id, 2)
    assert Namespace.objects.filter(min_gen=2).count() == 1  # a coarser scope fences nothing


def test_a_finer_scope_fences_whatever_is_coarser_and_what_was_shared():
    tenant, other, model = a_tenant(erasure_scope="class", classes=["a"]), a_tenant(), a_model()
    by_class = a_namespace(tenant, model, data_class="a")
    change(tenant, erasure_scope="tenant", classes=[])
    whole, foreign = a_namespace(tenant, model), a_namespace(other, model)
    shared = a_namespace(tenant, model, share_group=a_group(tenant, other).name)
    change(tenant, erasure_scope="label")
    fine = a_namespace(tenant, model, label="x")
    generations = dict(Namespace.objects.values_list("id", "min_gen"))
    assert [generations[n.id] for n in (by_class, whole, shared, foreign, fine)] == [2, 2, 2, 1, 1]


def test_a_class_that_is_given_up_still_rules_what_could_not_be_told_apart():
    tenant, model = a_tenant(erasure_scope="tenant", classes=["restricted", "public"]), a_model()
    mixed = a_namespace(tenant, model, data_class="restricted")
    change(tenant, classes=["public"])
    assert told(mixed) == [MEMORY]
    change(tenant, classes=["public", "restricted"])
    change(tenant, classes=[], erasure_scope="class")
    assert told(mixed) == [MEMORY]
    assert told(a_namespace(tenant, model)) == [{}]
