"""Topology: edges as they were measured, and what a loss takes, by the formulas, over what was recorded."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from frontend.routing import topology
from kvcore.cards import Curve, Held
from tests.frontend import plant_routing
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


def test_an_edge_leads_from_who_was_read_to_who_fetched_and_few_samples_are_not_believed(planted, loads, person):
    answer = person("viewer").get("/topology")
    found = {(e.source, e.target): e for e in answer.context["edges"]}
    assert set(found) == {("fra-p2", "fra-p1"), ("ams-m1", "fra-p1"), ("fra-p1", "fra-p2"), ("fra-d2", "fra-p2")}
    assert found["fra-p2", "fra-p1"].gb_per_s == 2.5
    assert found["fra-p2", "fra-p1"].level == "leaf"
    assert found["ams-m1", "fra-p1"].level is None
    assert found["fra-p2", "fra-p1"].believed
    assert not found["fra-d2", "fra-p2"].believed
    assert "measured too seldom or too long ago" in text(answer)


def test_the_chain_of_a_request_has_who_held_what_and_ends_at_its_first_hole():
    held = (Held(0, ((10, "dram"), (20, ""), (30, "ssd"))), Held(1, ((15, "hbm"),)))
    one = plant_routing.recorded(UUID(int=1), datetime.now(UTC), held=held)
    chain = topology.chain(one)
    assert chain.runs == ((10, frozenset({"fra-p1", "fra-p2"})), (5, frozenset({"fra-p2"})))
    assert (chain.block_tokens, chain.prompt_tokens) == (256, 71 * 256 + 40)


def test_a_loss_takes_what_the_formulas_say(planted, made, person):
    answer = person("viewer").get("/topology?without=fra-p2")
    loss = answer.context["loss"]
    blasts = {node.name: blast for node, blast in answer.context["blasts"]}
    assert loss == blasts["fra-p2"]
    # two of the five prompts are held to 71 by fra-p2 alone; fra-p1 has 62 of them, and a third one whole
    prompt, cached, left = 71 * 256 + 40, 71 * 256, 62 * 256
    curve = plant_routing.CURVE
    rest = 2 * curve.suffix_ms(0, prompt)
    before = rest + 3 * curve.suffix_ms(cached, prompt)
    after = rest + 2 * curve.suffix_ms(left, prompt) + curve.suffix_ms(cached, prompt)
    assert (loss.chains, loss.broken, loss.blocks_lost) == (5, 2, 18)
    assert loss.prefill_ms_before == pytest.approx(before)
    assert loss.surge == pytest.approx(after / before, rel=0.01)
    assert blasts["fra-p1"].broken == 1
    assert blasts["fra-d2"].broken == 0
    said = text(answer)
    assert "would be missed most" in said
    assert "Simulated." in said


def test_without_a_curve_the_surge_is_unknown_and_not_one():
    assert topology.typical_curve([]) == Curve(0.0, 0.0, 0.0, "unknown")


def test_nodes_nobody_knows_are_left_out(planted, made, person):
    answer = person("viewer").get("/topology?without=nobody&without=%3Cb%3E")
    assert answer.context["gone"] == []
    assert answer.context["loss"] is None


def test_the_page_stays_in_its_budget_of_queries(planted, made, person):
    who = person("viewer")
    who.get("/topology")
    with CaptureQueriesContext(connections["default"]) as spent:
        assert who.get("/topology").status_code == 200
    assert len(spent) <= 20, "\n".join(q["sql"][:110] for q in spent)
