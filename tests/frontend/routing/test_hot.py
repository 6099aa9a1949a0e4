"""Hot prefixes on their page: copies by node, bytes by tier, and who has a right to them."""

import re

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from tests.conftest import TEST_DATABASE
from tests.frontend import plant_routing
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def hot(planted, postgres):
    plant_routing.prefixes(postgres.superuser_dsn(TEST_DATABASE))


def test_the_hottest_comes_first_with_its_copies_and_bytes(hot, person):
    lines = person("viewer").get("/prefixes").context["lines"]
    hits = [line["one"].hit_tokens for line in lines]
    assert hits == sorted(hits, reverse=True)
    known = [line for line in lines if line["one"].run_blocks]
    assert [(line["one"].copies, line["nodes"]) for line in known[:2]] == [(2, ["fra-p1", "fra-p2"]), (1, ["fra-p1"])]
    assert {line["one"].run_blocks for line in known} == {64}
    assert known[0]["one"].tiers == {"hbm": 64 * 16384, "dram": 64 * 16384}
    holed = next(line["one"] for line in lines if line["one"].tiers == {"ssd": 63 * 16384})
    assert holed.copies == 0, "without its first block it is no copy"


def test_what_was_not_reported_is_a_bound_and_what_is_not_held_is_unknown(hot, person):
    answer = person("viewer").get("/prefixes")
    assert {line["one"].complete for line in answer.context["lines"]} == {True, False}
    said = text(answer)
    assert "≥" in said
    assert "unknown" in said
    assert "pfx_" in said


def test_the_sentence_says_what_lies_on_one_node_alone(hot, person):
    said = text(person("viewer").get("/prefixes"))
    assert "was read most:" in said
    assert re.search(r"\d+ of those below lies? on one node alone\.", said)


def test_the_page_stays_in_its_budget_of_queries(hot, person):
    who = person("viewer")
    who.get("/prefixes")
    with CaptureQueriesContext(connections["default"]) as spent:
        assert who.get("/prefixes").status_code == 200
    assert len(spent) <= 14, "\n".join(q["sql"][:110] for q in spent)


def test_a_group_names_all_who_may_read():
    from datetime import UTC, datetime

    from frontend.routing.hot import readers

    assert readers([], datetime.now(UTC)) == {}
