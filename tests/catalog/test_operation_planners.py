"""Each kind of operation has its own reading of what is there."""

from datetime import UTC, datetime

import pytest

from catalog.operation_planners import input_of
from kvconsole.infra.access import system
from kvcore.plans import Options, Selector
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("kind", "reached"), [("deletion", 1), ("residency", 0), ("quota_trim", 0)])
def test_what_a_plan_is_made_of_is_a_matter_of_its_kind(kind, reached):
    tenant = a_tenant(erasure_scope="label")
    a_namespace(tenant, label="a")
    for actor in (person(), system("rule")):
        found = input_of(kind=kind, selector=Selector(tenant=tenant.slug), options=Options(tier="hbm"), actor=actor,
                         now=datetime.now(UTC))  # fmt: skip
        assert (found.kind, len(found.targets)) == (kind, reached)
        assert found.requester.rule == (actor.kind == "system")
