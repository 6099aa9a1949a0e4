"""Statements that are made once: values are bound each time, filters that are left out make another statement."""

from datetime import UTC

import pytest
from django.db import DataError

from kvconsole.infra import statements
from kvconsole.infra.access import tenant_context
from kvconsole.infra.statements import Rows, fetch
from tenants.models import Tenant, User
from tests.tenants.making import a_tenant, a_user, principal


def found(*, state: str = "", tenant_id=None):
    rows = Tenant.objects.filter(slug__startswith="t")
    rows = rows.filter(id=tenant_id) if tenant_id else rows
    return rows.filter(state=state) if state else rows


ROWS = Rows(found, columns=("id", "slug", "classes", "retention", "created_at"), key=("slug",))


def slugs(filters, *, limit=10, backwards=False, behind=()):
    return [row.slug for row in ROWS.page(filters, limit=limit, backwards=backwards, behind=behind)]


@pytest.mark.django_db
def test_a_statement_is_made_once_and_its_values_are_bound_each_time():
    one, other = a_tenant(slug="t1"), a_tenant(slug="t2")
    before = statements._statement.cache_info().misses
    assert slugs({"tenant_id": one.id}) == ["t1"]
    assert slugs({"tenant_id": other.id}) == ["t2"]
    assert statements._statement.cache_info().misses == before + 1
    assert slugs({"tenant_id": None}) == ["t1", "t2"]
    assert slugs({"state": "active"}) == ["t1", "t2"]
    assert slugs({"state": "gone'"}) == []


@pytest.mark.django_db
def test_a_page_is_behind_its_place_in_either_direction():
    for i in range(5):
        a_tenant(slug=f"t{i}")
    assert slugs({}, limit=2) == ["t0", "t1"]
    assert slugs({}, limit=2, behind=["t1"]) == ["t2", "t3"]
    assert slugs({}, limit=2, backwards=True) == ["t4", "t3"]
    assert slugs({}, limit=2, backwards=True, behind=["t3"]) == ["t2", "t1"]


@pytest.mark.django_db
def test_values_of_rows_are_those_of_the_models_fields():
    made = a_tenant(slug="t1", classes=["internal"], retention={"internal": 5})
    (row,) = ROWS.page({}, limit=2, backwards=False, behind=())
    kept = Tenant.objects.get(id=made.id)
    assert tuple(row) == (kept.id, "t1", ["internal"], {"internal": 5}, kept.created_at)
    assert row.created_at.utcoffset() == UTC.utcoffset(None)


@pytest.mark.django_db(databases=["default", "tenant"])
def test_the_plane_decides_what_rows_there_are():
    own = a_tenant(slug="t1")
    a_tenant(slug="t2")
    assert slugs({}) == ["t1", "t2"]
    with tenant_context(principal(own)):
        assert set(slugs({})) <= {"t1"}  # what another connection has not committed is not there


@pytest.mark.django_db
def test_what_is_no_text_is_refused_by_name():
    with pytest.raises(DataError):
        fetch("SELECT %s::text", ["\0"])


@pytest.mark.django_db
def test_a_join_that_finds_nothing_leaves_its_columns_empty():
    user = a_user()
    rows = Rows(User.objects.filter, columns=("username", "tenant__slug"), key=("username",))
    found = rows.page({"id": user.id}, limit=2, backwards=False, behind=())
    assert [(r.username, r.tenant__slug) for r in found] == [(user.username, None)]


@pytest.mark.django_db
def test_filters_that_leave_nothing_leave_nothing():
    a_tenant(slug="t1")
    none = Rows(lambda: Tenant.objects.filter(slug__in=[]), columns=("slug",), key=("slug",), newest=True, kept=False)
    assert none.page({}, limit=5, backwards=False, behind=()) == []
    newest = Rows(found, columns=("slug",), key=("slug",), newest=True, kept=False)
    a_tenant(slug="t2")
    assert [r.slug for r in newest.page({}, limit=1, backwards=False, behind=())] == ["t2"]
    assert [r.slug for r in newest.page({}, limit=1, backwards=True, behind=())] == ["t1"]
