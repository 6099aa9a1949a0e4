"""Pages of lists: keyset, signed cursors, totals without counting."""

import time
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test import RequestFactory
from rest_framework.request import Request

from kvconsole.infra import lists, rest
from kvconsole.infra.access import tenant_context
from kvconsole.infra.statements import Rows, beyond
from tenants.models import Namespace, Tenant
from tests.tenants.making import a_model, a_namespace, a_tenant, principal

factory = RequestFactory()
TENANTS = Rows(Tenant.objects.filter, columns=("id", "slug", "name"), key=("slug",))


@pytest.fixture(autouse=True)
def _forgotten():
    lists.forget()
    yield
    lists.forget()


def asked(path):
    return Request(factory.get(path))


def walk(limit, cursor=""):
    return lists.paginate(TENANTS, asked(f"/?limit={limit}&cursor={cursor}"), name="t")


@pytest.mark.django_db
def test_a_walk_through_pages_sees_each_row_once_both_ways():
    for i in range(7):
        a_tenant(slug=f"s{i}")
    every = sorted(t.slug for t in Tenant.objects.all())
    seen, page = [], walk(3)
    assert page.prev is None
    while True:
        seen += [t.slug for t in page.items]
        if page.next is None:
            break
        last, page = page, walk(3, page.next)
        assert [t.slug for t in walk(3, page.prev).items] == [t.slug for t in last.items]
    assert seen == every


@pytest.mark.django_db
def test_rows_that_come_meanwhile_shift_nothing():
    for i in range(4):
        a_tenant(slug=f"s{i}")
    page = walk(3)
    a_tenant(slug="aaa")
    assert [t.slug for t in walk(3, page.next).items] == ["s2", "s3"]


@pytest.mark.django_db
@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "1e3", "٣", "99999999999999999999", ""])
def test_a_limit_is_1_to_500(limit):
    with pytest.raises(rest.Problem) as caught:
        walk(limit)
    assert caught.value.code == "out-of-range"
    assert caught.value.errors[0]["pointer"] == "/limit"


@pytest.mark.django_db(databases=["default", "tenant"])
def test_a_tampered_or_foreign_cursor_is_refused():
    for i in range(3):
        a_tenant(slug=f"s{i}")
    good = walk(1).next
    other = lists.paginate(TENANTS, asked("/?limit=1"), name="other").next
    filtered = lists.paginate(TENANTS, asked("/?limit=1&state=x"), name="t").next
    with tenant_context(principal(a_tenant())):
        theirs = lists._write_cursor(lists._Cursor(False, ["a"]), lists._salt(asked("/"), "t"))
    for cursor in (good[:-2] + "xx", "x", other, filtered, theirs, "a" * 5000, good[1:], good + "=", good.swapcase()):
        with pytest.raises(rest.Problem) as caught:
            walk(1, cursor)
        assert caught.value.code == "cursor-invalid"


@pytest.mark.django_db
def test_each_changed_character_of_a_cursor_is_noticed():
    for i in range(3):
        a_tenant(slug=f"s{i}")
    good = walk(1).next
    for i, c in enumerate(good):
        with pytest.raises(rest.Problem) as caught:
            walk(1, good[:i] + ("A" if c != "A" else "B") + good[i + 1 :])
        assert caught.value.code == "cursor-invalid"


@pytest.mark.django_db
def test_a_short_list_knows_its_total_and_a_long_one_has_it_from_the_statistics(monkeypatch):
    for i in range(4):
        a_tenant(slug=f"s{i}")
    assert walk(500).approximate_total == Tenant.objects.count() == walk(1).approximate_total
    monkeypatch.setattr(lists, "COUNTED", 2)
    lists.forget()
    with connection.cursor() as cursor:
        cursor.execute("SELECT greatest(reltuples, 3) FROM pg_class WHERE relname = 'tenants_tenant'")
        assert walk(1).approximate_total == cursor.fetchone()[0]
    assert lists.approximate_total(Tenant.objects.filter(slug__startswith="s")) is None


@pytest.mark.django_db(databases=["default", "tenant"])
def test_a_tenants_total_is_of_its_own_rows(monkeypatch):
    monkeypatch.setattr(lists, "COUNTED", 2)
    with tenant_context(principal(a_tenant())):
        assert lists.approximate_total(Namespace.objects.all()) == 0
    model = a_model()
    [a_namespace(model=model) for _ in range(3)]
    assert lists.approximate_total(Namespace.objects.filter(model=model)) is None


@pytest.mark.django_db
def test_how_long_a_list_is_is_not_asked_with_each_page(django_assert_num_queries, monkeypatch):
    for i in range(4):
        a_tenant(slug=f"s{i}")
    begin, at = time.monotonic(), [0.0]
    monkeypatch.setattr(lists, "time", SimpleNamespace(monotonic=lambda: begin + at[0]))
    with django_assert_num_queries(1):  # beside the page's own, which is not the ORM's
        short = walk(1).approximate_total
    with django_assert_num_queries(0):
        assert walk(1).approximate_total == short
    with django_assert_num_queries(1):  # another list: other filters
        lists.paginate(TENANTS, asked("/?limit=1&state=active"), name="t", filters={"state": "active"})
    at[0] += lists.SHORT_SECONDS
    monkeypatch.setattr(lists, "COUNTED", 2)
    with django_assert_num_queries(2):
        walk(1)
    at[0] += lists.SHORT_SECONDS
    with django_assert_num_queries(0):
        assert walk(1).approximate_total >= 3
    at[0] += lists.LONG_SECONDS
    with django_assert_num_queries(2):
        walk(1)


@pytest.mark.django_db
def test_a_page_of_several_keys_takes_up_where_the_first_key_is():
    for i in range(6):
        a_tenant(slug=f"s{i}", name=f"n{i // 3}")
    seen, cursor = [], ""
    rows = Rows(lambda: Tenant.objects.filter(slug__startswith="s"), columns=("slug", "name"), key=("name", "slug"))
    while cursor is not None:
        page = lists.paginate(rows, asked(f"/?limit=2&cursor={cursor}"), name="t")
        seen, cursor = seen + [t.slug for t in page.items], page.next
    assert seen == [f"s{i}" for i in range(6)]
    condition = str(Tenant.objects.filter(beyond(("name", "slug"), ("n", "s"), "gt")).query)
    assert '"name" >= n AND' in condition
