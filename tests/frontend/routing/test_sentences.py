"""Sentences of decisions: the pick with its reason, and the reason against who held more."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from frontend.routing import sentences
from kvcore.cards import Held
from kvcore.policies import built_in
from routing.packing import FORM, Inputs
from tests.frontend import plant_routing
from tests.frontend.plant_routing import worker


def inputs(**more):
    made = plant_routing.recorded(UUID(int=1), datetime.now(UTC), **more)
    return Inputs(FORM, made.ask, made.candidates, made.held, made.edges, made.policy, made.learned, made.choice)


def said(**more):
    one = inputs(**more)
    return sentences.decided(one, lambda at: f"w{at}")


def test_who_held_more_and_waits_long_is_named_with_its_queue():
    assert "<b>Sent to w0</b> because it holds 62 of 71 blocks in dram." in said()
    assert "w1 had 71, but 14 requests queued." in said()


def test_who_held_more_and_was_kept_out_is_named_with_the_gate():
    two = (worker("n1"), worker("n2", state="silent"))
    assert "w1 had 71, but the gate “health” kept it out." in said(
        candidates=two, edges={}, held=plant_routing.HELD[:2]
    )


def test_who_held_more_and_is_slower_is_named_with_its_time():
    two = (worker("n1", waiting=3), worker("n2", queue_ms=2_000.0, waiting=3))
    assert "w1 had 71, but would have taken 2" in said(candidates=two, edges={}, held=plant_routing.HELD[:2])


def test_where_nothing_lies_the_next_best_is_named():
    two = (worker("n1"), worker("n2", queue_ms=900.0))
    text = said(candidates=two, held=())
    assert "nothing of its 71 blocks is loaded" in text
    assert "w1 would have taken" in text


def test_nobody_was_left():
    text = said(candidates=(worker("n1", refused="residency"), worker("n2", state="silent")), held=())
    assert "w0 was kept out by the gate “residency”" in text or "w1 was kept out by the gate “health”" in text
    assert "1 more candidate was kept out, too." in text
    assert "there was no candidate" in sentences.nowhere(None, str)


@pytest.mark.parametrize(("runs", "depth"), [
    (((10, "dram"), (20, "ssd")), 20), (((10, "dram"), (20, ""), (30, "ssd")), 10), (((5, ""), (9, "hbm")), 0), ((), 0),
])  # fmt: skip
def test_what_is_held_ends_at_the_first_hole(runs, depth):
    assert sentences.leading([Held(0, runs)], 0) == depth
    assert sentences.leading([Held(0, runs)], 1) == 0


@pytest.mark.parametrize(("row", "text"), [
    ({"answer": "refused", "origin": "router"}, "before any candidate was scored"),
    ({"answer": "recompute", "origin": "router"}, "how far fences go was not known"),
    ({"answer": "hit", "origin": "dynamo"}, "by another router"),
    ({"answer": "hit", "origin": "router"}, "was not kept"),
])  # fmt: skip
def test_what_is_left_to_say_without_inputs(row, text):
    assert text in sentences.without_inputs(row, "w")


def test_names_are_escaped():
    one = inputs()
    assert "<i>" not in sentences.decided(one, lambda at: "<i>x</i>")


def test_what_is_simulated_says_by_how_much():
    one = inputs()
    worse = inputs(policy=built_in("random"), candidates=(worker("n1", queue_ms=9_000.0),), held=())
    assert "longer." in sentences.simulated(one, worse.choice, lambda at: f"w{at}")
    assert "just the same" in sentences.simulated(one, one.choice, lambda at: f"w{at}")
