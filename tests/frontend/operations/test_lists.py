"""The list of operations: its order, its filters, and what it costs."""

import re
from datetime import UTC, datetime

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.conftest import TEST_DATABASE
from tests.frontend import plant_operations
from tests.frontend.operations.test_views import ENDED, text

pytestmark = pytest.mark.django_db


def test_the_list_is_newest_first_and_its_filters_are_an_address(made, person):
    who = person("viewer")
    page = who.get("/operations")
    lines = page.context["lines"]
    assert [one["one"].id for one in lines] == sorted((one["one"].id for one in lines), reverse=True)
    assert {one["state"] for one in lines} >= {"awaiting_approval", "erasing", *ENDED, "completed"}
    assert page.context["answer"] == "5 operations are open. 1 of them waits for a second person."
    for state in ("open", *ENDED, "completed"):
        found = who.get(f"/operations?state={state}").context["lines"]
        assert found
        assert all((one["one"].outcome == state) if state != "open" else not one["one"].concluded_at for one in found)
    assert "This filter leaves nothing" in text(who.get("/operations?kind=prefetch"))
    assert who.get("/operations?state=nonsense&after=x~y").status_code == 200


def asked(who, path):
    """The statements of a page."""
    with CaptureQueriesContext(connection) as found:
        assert who.get(path).status_code == 200
    return [one["sql"] for one in found.captured_queries]


def test_neither_list_nor_run_reads_receipts(made, person):
    who = person("viewer")
    for path in ("/operations", *(f"/operations/{made[name]}" for name in ("erasing", "completed", "drain"))):
        told = [sql for sql in asked(who, path) if '"catalog_step"' in sql]
        assert told, path
        assert not [sql for sql in told if re.search(r'"receipt"|receipt__|"receipt_prev"', sql)], path


def test_the_list_asks_the_database_no_more_for_more_operations(made, person, postgres):
    """The last of this module: what it plants stays."""
    who, path = person("viewer"), "/operations?state=open&kind=deletion"
    before, now = [asked(who, path) for _ in range(2)][1], datetime.now(UTC)  # the first one fills what is kept
    with psycopg.connect(postgres.superuser_dsn(TEST_DATABASE)) as cx:
        nodes = dict(cx.execute("SELECT name, id FROM catalog_node ORDER BY name").fetchall())
        for _ in range(3):
            more = plant_operations.operation(cx, now, finalizers=["catalog"], order_event=plant_operations.logged(cx))
            plant_operations.steps(cx, more, nodes, now, {"erase": "done", "verify": "done"})
    assert len(who.get(path).context["lines"]) == 7
    assert len(asked(who, path)) == len(before)
