"""Figures of nodes and tiers: unknown is never zero, last known is never added."""

from datetime import UTC, datetime

from django.utils import translation

from catalog.selectors import LadderStep
from frontend.templatetags import fleet
from tests.frontend.templatetags.test_console import tier
from tests.frontend.test_pages import node

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def step(**kw):
    base = {"tier": "dram", "used_bytes": 3 << 30, "last_known_bytes": 0, "capacity_bytes": 8 << 30, "low": 0.8,
            "high": 0.9, "blocks": 7, "reporting": 3, "nodes": 3, "emulated": False, "complete": True}  # fmt: skip
    return LadderStep(**(base | kw))


def test_a_whole_sum():
    words = fleet.ladder_words(step())
    assert (words["used"], words["of"], words["full"]) == ("3 GiB", "of 8", "38 %")
    assert "≥" not in words["label"]


def test_a_sum_with_something_missing_is_a_lower_bound():
    words = fleet.ladder_words(step(complete=False, last_known_bytes=1 << 30))
    assert words["used"] == "≥ 3 GiB"
    assert words["of"] == "+ 1 last known of 8"
    assert words["full"] == "50 %"
    assert "≥ 3 GiB reported, 1 GiB last known" in words["label"]


def test_a_tier_nobody_reported():
    words = fleet.ladder_words(step(used_bytes=None, complete=False))
    assert "unknown" in words["used"]
    assert "unknown" in words["full"]
    assert "nothing reported" in words["label"]


def test_keys_under_a_tile():
    keys = {k["tier"]: k for k in fleet.keys_of(node(tiers=[tier(), tier(tier="ssd", used_bytes=None)]))}
    assert keys["dram"]["part"] == "91▲"
    assert keys["dram"]["hot"]
    assert "unknown" in keys["ssd"]["part"]
    assert "unknown" in keys["hbm"]["part"], "a tier the node does not have is no zero"
    veiled = {k["tier"]: k for k in fleet.keys_of(node(stale=True, tiers=[tier()]))}
    assert "unknown" in veiled["dram"]["part"]
    assert veiled["dram"]["used"] == "91 B"


def test_a_tile_is_one_sentence():
    assert fleet.tile_label(node(tiers=[tier()])) == "n1, mixed, ready: dram 91 percent, above the high mark"
    assert fleet.tile_label(node(state="silent", stale=True, tiers=[tier()])).startswith(
        "n1, mixed, silent, last known: dram"
    )
    with translation.override("zh-hans"):
        assert fleet.tile_label(node(tiers=[tier()])) == "n1、混合、就绪: dram 百分之 91，超过高水位"


def test_big_fleets_show_the_worst_tier():
    squares = fleet.dense_of(
        [node(tiers=[tier(), tier(tier="hbm", state="full")]), node(name="n0", state="lost", stale=True)]
    )
    assert [(s["node"].name, s["tone"]) for s in squares] == [("n0", "danger"), ("n1", "danger")]


def test_a_silent_nodes_tier_is_veiled():
    words = fleet.tier_words(tier(), node(stale=True))
    assert words["veiled"]
    assert words["tone"].tone == "unknown"
    assert fleet.tier_words(tier(), node())["tone"].tone == "warn"
    assert "unknown full" in fleet.tier_words(tier(used_bytes=None, state="unknown"), node())["label"]


def test_why_sums_are_lower_bounds_and_what_is_emulated():
    assert fleet.missing_words(["a"]).startswith("a is silent")
    assert "+2" in fleet.missing_words(["a", "b", "c", "d", "e"])
    assert fleet.emulated_words([step()]) == ""
    assert "dram: emulated in memory" in fleet.emulated_words([step(emulated=True)])


def test_every_number_of_the_strip_has_a_name_and_a_note():
    for name in fleet.NAMES:
        assert fleet.kpi_name(name)
        assert fleet.kpi_note(name)


def test_history_as_a_sentence():
    assert fleet.fills_words([["hbm", 0.1, 0.2, 0.5, 0.4, 0.0], ["ssd", None, None, None, None, None]]) == (
        "hbm between 10 % and 50 %, now 40 %"
    )
    assert fleet.because("gap") == "Frames are missing; the agent sends them again."
