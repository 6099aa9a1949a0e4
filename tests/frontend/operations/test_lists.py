"""The list of operations: its order, its filters, and what it costs."""

import pytest

from tests.frontend.operations.test_views import ENDED, text

pytestmark = pytest.mark.django_db


def test_the_list_is_newest_first_and_its_filters_are_an_address(made, person):
    who = person("viewer")
    page = who.get("/operations")
    lines = page.context["lines"]
    assert [one["one"].id for one in lines] == sorted((one["one"].id for one in lines), reverse=True)
    assert {one["state"] for one in lines} >= {"awaiting_approval", "erasing", *ENDED, "completed"}
    assert page.context["answer"] == "4 operations are open. 1 of them waits for a second person."
    for state in ("open", *ENDED, "completed"):
        found = who.get(f"/operations?state={state}").context["lines"]
        assert found
        assert all((one["one"].outcome == state) if state != "open" else not one["one"].concluded_at for one in found)
    assert "This filter leaves nothing" in text(who.get("/operations?kind=drain"))
    assert who.get("/operations?state=nonsense&after=x~y").status_code == 200


def test_the_list_asks_the_database_no_more_for_more_operations(made, person, django_assert_max_num_queries):
    who = person("viewer")
    with django_assert_max_num_queries(60):
        assert who.get("/operations?state=open").status_code == 200
