"""Quotas as services see them: what is refused, what is worth what, one event a change."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.db import connection

from audit.models import Event
from catalog.quotas import capacities, guarantees, quota_set, quota_view
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import named
from kvcore.quotas import BYTES_MAX
from tenants.placing import tenants_with_arena
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, tzinfo=UTC)
A, B = UUID(int=1), UUID(int=2)


def put(tenant, tiers, rps=None, dph=None, **more):
    rates = {"requests_per_second": rps, "deletions_per_hour": dph}
    return quota_set(tenant=tenant.id, tiers=tiers, **rates, actor=None, now=NOW, **more)


@pytest.mark.parametrize(
    ("tiers", "rates", "code"),
    [
        ({"tape": {"limit_bytes": 1}}, (), "unknown-field"),
        ({"hbm": {"limit_bytes": -1}}, (), "out-of-range"),
        ({"hbm": {"limit_bytes": BYTES_MAX + 1}}, (), "out-of-range"),
        ({"hbm": {"limit_bytes": 1, "guaranteed_bytes": 2}}, (), "validation-failed"),
        ({}, (-1,), "out-of-range"),
        ({}, (None, 10**7), "out-of-range"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(tiers, rates, code):
    tenant = a_tenant()
    with pytest.raises(Problem) as refused:
        put(tenant, tiers, *rates)
    assert refused.value.code == code
    assert quota_view(tenant=tenant.id, now=NOW).tiers["hbm"].limit_bytes is None


def test_a_change_is_one_event_and_null_is_unlimited_again():
    tenant = a_tenant()
    before = Event.objects.filter(event_type=0x0240).count()
    assert put(tenant, {"hbm": {"limit_bytes": 7}}, 5, 0).tiers["hbm"].limit_bytes == 7
    view = put(tenant, {})
    assert (view.tiers["hbm"].limit_bytes, view.requests_per_second, view.deletions_per_hour) == (None, None, None)
    assert Event.objects.filter(event_type=0x0240).count() == before + 2


def test_an_arena_is_guaranteed_a_part_by_itself():
    tenant = a_tenant(isolation="arena")
    arenas = tenants_with_arena()
    assert tenant.id in arenas
    assert guarantees("hbm", {}, arenas, 800)[tenant.id] == 100
    assert guarantees("hbm", {tenant.id: (30, 0)}, arenas, 800)[tenant.id] == 30
    assert guarantees("hbm", {tenant.id: (None, 300), A: (None, 5), B: (9, 0)}, {}, 800) == {tenant.id: 300, A: 5}
    assert capacities() == {}


@pytest.mark.parametrize(("name", "more"), [("tenant_holdings", ()), ("tenant_held", (9,))])
def test_what_a_tenant_holds_is_found_by_an_index(name, more):
    """However much others hold: the empty tables of a test would be read whole, so that is forbidden here."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_mergejoin = off")
        cursor.execute(f"EXPLAIN {named('catalog', 'quotas.sql')[name]}", (A, [], *more))
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan on catalog_holding_tenant" in plan, plan
    assert "Seq Scan on catalog_holding" not in plan
