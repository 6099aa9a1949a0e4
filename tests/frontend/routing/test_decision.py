"""The page of one decision: made of what was recorded, by the code that decided."""

import html
import re

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from frontend.routing.wording import TERMS

pytestmark = pytest.mark.django_db


def text(answer):
    """What a person reads of it."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def page(who, decision, query=""):
    answer = who.get(f"/routing/decisions/{decision}{query}")
    assert answer.status_code == 200
    return answer


def test_the_sentence_names_who_holds_what_and_why_the_fuller_one_was_not_taken(made, person):
    said = text(page(person("viewer"), made.held))
    assert "Sent to fra-p1 because it holds 62 of 71 blocks in dram." in said
    assert "fra-p2 had 71, but 14 requests queued." in said


def test_nobody_was_left_and_the_gate_is_named(made, person):
    said = text(page(person("viewer"), made.nobody))
    assert "Sent nowhere: fra-d2 was kept out by the gate “health”." in said
    assert "no-candidates" in said


def test_what_is_fetched_is_said_of_whom(made, person):
    said = text(page(person("viewer"), made.fetched))
    assert "Sent to ams-m1 , which fetches what it does not hold." in said.replace("ams-m1,", "ams-m1 ,")
    assert "come from fra-p1" in said
    assert "fetched" in said


def test_every_candidate_is_listed_with_the_first_gate_that_failed(made, person):
    answer = page(person("viewer"), made.held)
    rows = {str(line.number): line for line in answer.context["lines"]}
    assert answer.context["lines"][0].number == 0
    assert (rows["2"].gate, rows["3"].gate) == ("health", "residency")
    assert rows["2"].terms is None
    assert rows["0"].picked
    said = text(answer)
    assert "residency" in said


def test_terms_add_up_in_the_chart_the_table_and_the_sum(made, person):
    answer = page(person("viewer"), made.held)
    fall, sums = answer.context["fall"], answer.context["sums"]
    assert [row.term for row in fall] == list(TERMS)
    assert sum(row.expected for row in fall) == pytest.approx(sums[0])
    assert sum(row.measured for row in fall) == pytest.approx(sums[1])
    assert sum(row.ghost for row in fall) == pytest.approx(sums[2])
    last = fall[-1]
    assert last.expected_at + last.expected == pytest.approx(sums[0])
    assert sums[2] > sums[0], "without a cache it takes longer"
    assert fall[2].ghost == 0, "nothing is loaded where nothing lies"


def test_what_was_not_measured_is_unknown_and_not_zero(made, person):
    answer = page(person("viewer"), made.computed)
    assert {row.measured for row in answer.context["fall"]} == {None}
    assert {one["measured"] for one in answer.context["series"]} == {None}
    assert "no outcome was reported" in text(answer)
    assert 'class="unk"' in answer.content.decode()


def test_it_is_scored_again_and_says_so(made, person):
    answer = page(person("viewer"), made.held)
    assert answer.context["replay"] == "same"
    assert re.fullmatch("sha256:[0-9a-f]{64}", answer.context["digest"])


def test_without_the_picked_one_the_next_is_simulated_and_marked(made, person):
    who = person("viewer")
    answer = page(who, made.held, "?without=0")
    said = text(answer)
    assert "Simulated." in said
    assert "It would have gone to fra-p2" in said
    again = page(who, made.held, "?without=0&without=1")
    assert "Sent nowhere" in str(again.context["what_if"]["said"])
    assert page(who, made.held).context["what_if"]["said"] is None
    assert page(who, made.held, "?without=99&without=x&policy=none").context["what_if"]["said"] is None


def test_another_policy_scores_the_same_inputs(made, person):
    answer = page(person("viewer"), made.held, "?policy=least_loaded")
    assert answer.context["what_if"]["kind"] == "least_loaded"
    assert "just the same" in str(answer.context["what_if"]["said"])


def test_a_page_stays_in_its_budget_of_queries(made, person):
    who = person("viewer")
    page(who, made.held)
    with CaptureQueriesContext(connections["default"]) as spent:
        page(who, made.held, "?without=1")
    assert len(spent) <= 14, "\n".join(q["sql"][:110] for q in spent)
