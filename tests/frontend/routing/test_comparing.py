"""Policies compared: every kind over the same requests, the quickest first."""

import pytest

from frontend.routing import comparing
from kvcore.policies import KINDS
from routing.selectors import PolicyView
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


def test_every_kind_is_there_over_the_same_requests_and_the_quickest_comes_first(made, person):
    answer = person("viewer").get("/routing/compare?n=50")
    rows = answer.context["rows"]
    assert {row.kind for row in rows} == set(KINDS)
    assert {row.requests for row in rows} == {5}
    times = [row.predicted_ms for row in rows if row.predicted_ms is not None]
    assert times == sorted(times)
    predicted = next(row for row in rows if row.kind == "predicted")
    assert (predicted.changed, predicted.unanswered) == (0, 1)
    said = text(answer)
    assert "picks the shortest way" in said
    assert "simulated" in said


def test_only_one_model_where_it_is_named(made, person):
    who = person("viewer")
    assert who.get("/routing/compare?model=ref-1k&n=77").context["size"] == comparing.SIZES[0]
    assert who.get("/routing/compare?model=nobody").context["rows"] == []


def test_a_policy_that_cannot_be_read_any_more_is_left_out():
    broken = PolicyView("old", 3, "", "predicted", {"kind": "gone", "params": {}}, None, "", True)
    assert [rule.kind for rule in comparing.rules([broken])] == list(KINDS)
