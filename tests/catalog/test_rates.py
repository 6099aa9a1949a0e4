"""Requests per second and deletions per hour: exact over all processes, nothing where nothing was said."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog import rates
from catalog.quotas import quota_set
from kvconsole.infra.rest import Problem
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _forgetful():
    rates.forget()
    yield
    rates.forget()


def limited(rps=None, dph=None):
    tenant = a_tenant()
    quota_set(tenant=tenant.id, tiers={}, requests_per_second=rps, deletions_per_hour=dph, actor=None, now=NOW)
    return tenant.id


@pytest.mark.parametrize("limit", [0, 1, 3, 40, 100])
def test_a_second_has_so_many_requests_and_no_more(limit):
    tenant = limited(rps=limit)
    taken = 0
    for i in range(3 * limit + 5):
        if i % 50 == 49:
            rates.forget()  # as if another process asked: what a lot still had is lost, never doubled
        taken += rates.request_taken(tenant, now=1000.5)
    assert taken <= limit
    assert taken == limit or limit > 50
    assert rates.request_taken(tenant, now=1001.0) == bool(limit)


def test_without_a_quota_nothing_is_counted():
    tenant = a_tenant().id
    assert all(rates.request_taken(tenant, now=1.0) for _ in range(100))
    rates.deletion_take(tenant, now=NOW)


def test_deletions_of_an_hour():
    tenant = limited(dph=2)
    rates.deletion_take(tenant, now=NOW)
    rates.deletion_take(tenant, now=NOW)
    with pytest.raises(Problem) as refused:
        rates.deletion_take(tenant, now=NOW)
    assert (refused.value.code, refused.value.retry_after_seconds) == ("deletions-quota-exceeded", 1800)
    rates.deletion_take(tenant, now=NOW.replace(hour=13))
    with pytest.raises(Problem):
        rates.deletion_take(limited(dph=0), now=NOW)


def test_what_is_left_is_of_this_second_and_this_hour():
    tenant = limited(rps=40, dph=3)
    assert rates.rates_left(tenant, now=NOW)[1] == rates.Left(40, 3)
    rates.deletion_take(tenant, now=NOW)
    assert rates.request_taken(tenant, now=NOW.timestamp())
    whole, left = rates.rates_left(tenant, now=NOW)
    assert whole == rates.Limits(40, 3)
    assert (38 <= left.requests < 40, left.deletions) == (True, 2)
    assert rates.rates_left(tenant, now=NOW + timedelta(hours=1))[1] == rates.Left(40, 3)
    assert rates.rates_left(limited(rps=0), now=NOW)[1] == rates.Left(0, None)
    assert rates.rates_left(a_tenant().id, now=NOW) == (rates.Limits(None, None), rates.Left(None, None))
