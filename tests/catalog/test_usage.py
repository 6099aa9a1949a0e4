"""A statement of nothing is not a statement of zero; sums of days are in `ingest.test_usage_days`."""

from datetime import timedelta

import pytest

from catalog.usage import usage_view
from tests.catalog.test_rates import NOW
from tests.tenants.making import a_tenant
from tests.tenants.services.test_share_group import NOW as TODAY
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db


def test_where_nobody_counted_nothing_is_known():
    view = usage_view(tenant=a_tenant().id, since=NOW - timedelta(hours=1), until=NOW, now=NOW)
    assert (view.complete, view.incomplete, view.hits, view.as_of) == (False, ["never-counted"], None, None)
    assert {(h.used_bytes, h.blocks) for h in view.tiers.values()} == {(None, None)}
    assert view.until - view.since == timedelta(days=1)


def test_who_shares_is_told_that_hits_are_missing():
    owner, member, third = a_tenant(), a_tenant(), a_tenant()
    a_group(owner, member)

    def missing(tenant, days):
        since = TODAY + timedelta(days=days)
        return usage_view(tenant=tenant.id, since=since, until=since + timedelta(hours=1), now=TODAY).incomplete

    assert [("shared-namespaces" in missing(t, 0)) for t in (owner, member, third)] == [True, True, False]
    assert "shared-namespaces" not in missing(member, -2)
