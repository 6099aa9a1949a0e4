"""What each page shows, from values made here; no database."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.selectors import Alert, FleetView, NodeView, Numbers, RefusalView, SourceView, TokenRow
from frontend import pages

NOW = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)


def source(**kw):
    base = {
        "id": 1,
        "name": "ref",
        "dp_rank": 0,
        "state": "exact",
        "reason": "",
        "since": NOW,
        "boot": "b",
        "stream": "s",
        "seq": 5,
        "can_list": True,
        "gaps": 0,
        "last_verified_at": NOW,
        "last_frame_at": NOW,
        "age_ms": 1,
        "lag_ms": 1,
        "queue_ms": None,
        "running": None,
    }
    return SourceView(**(base | kw))


def node(**kw):
    base = {
        "id": "1",
        "name": "n1",
        "region": "eu",
        "zone": "",
        "rack": "",
        "role": "mixed",
        "state": "ready",
        "source_state": "exact",
        "reason": "",
        "age_ms": 5,
        "lag_ms": 300,
        "blocks": 7,
        "stale": False,
        "tiers": [],
        "sources": [source()],
    }
    return NodeView(**(base | kw))


def fleet(*nodes, blocks=10, complete=True, alerts=(), hit=0.5):
    numbers = Numbers(
        requests_per_s=2.0,
        hit_ratio=hit,
        saved_ms_per_s=1500.0,
        events_per_s=1.0,
        evictions_per_s=None,
        blocks=blocks,
        complete=complete,
        as_of=NOW,
    )
    return FleetView(
        nodes=list(nodes), ladder=[], numbers=numbers, alerts=list(alerts), answer=[], complete=complete, as_of=NOW
    )


def tokens(hit):
    return [TokenRow(t=NOW, step_seconds=60, requests=1, prompt_tokens=100, hit_tokens={"hbm": hit}, saved_ms=1.0)]


def numbers(view, rows=()):
    return {k["name"]: k for k in pages.kpis(view, list(rows), [])}


def test_numbers_keep_unknown_apart_from_zero():
    shown = numbers(fleet(node(), complete=False))
    assert shown["hit"]["value"] == "50.0"
    assert shown["saved"]["value"] == "1.50"
    assert shown["evictions"]["value"] is None
    assert shown["blocks"]["bound"] is True
    assert numbers(fleet(hit=None))["hit"]["value"] is None
    assert numbers(fleet())["lag"]["value"] is None


def test_the_lag_of_a_silent_node_does_not_count():
    assert numbers(fleet(node(lag_ms=400), node(name="n2", lag_ms=90_000, stale=True)))["lag"]["value"] == "0.4"


@pytest.mark.parametrize(
    ("view", "hit", "steps"),
    [
        (fleet(blocks=0), 0, ["done", "now", "next", "next"]),
        (fleet(node(sources=[]), blocks=0), 0, ["done", "done", "now", "next"]),
        (fleet(node(), blocks=0), 0, ["done", "done", "done", "now"]),
        (fleet(node(), blocks=0), 5, None),
        (fleet(node(), blocks=5), 0, None),
    ],
)
def test_the_first_run_says_what_is_next(view, hit, steps):
    found = pages.first_run(view, tokens(hit))
    assert (found and [state for _step, state in found]) == steps


def test_refusals_of_all_sources_come_most_first():
    def refused(code, count):
        return RefusalView(code=code, count=count, last_at=NOW, detail="")

    view = node(
        sources=[source(refusals=[refused("nesting", 3)]), source(id=2, refusals=[refused("unknown-keys", 90)])]
    )
    rows = pages.refusals(view)
    assert [(r["code"], r["count"], r["source"].id) for r in rows] == [("unknown-keys", 90, 2), ("nesting", 3, 1)]
    assert all(r["said"] for r in rows)


def test_silence_is_a_line_on_the_map():
    since = NOW - timedelta(minutes=11)
    view = fleet(
        alerts=[
            Alert(code="node-silent", severity="critical", since=since, node="n1"),
            Alert(code="tier-high", severity="info", since=None, node="n2"),
        ]
    )
    assert pages.notes(view) == [{"t": int(since.timestamp()), "text": "n1 silent"}]


def test_the_component_sheet_shows_every_state():
    sheet = pages.component_sheet()
    assert {"ready", "lost"} <= sheet["tones"].keys()
    assert sheet["problem"].title


@pytest.mark.parametrize(
    ("since", "until", "asked"),
    [
        ("1795959000", "1795960000", (1795959000, 1795960000)),
        ("1795960000", "1795959000", None),
        ("1795959000", "1795959000", None),
        ("1795959000", "2795961000", None),
        ("-5", "1795960000", None),
        ("0", "1795960000", None),
        ("1e3", "1795960000", None),
        ("\u0661", "1795960000", None),
        ("9" * 400, "1795960000", None),
        ("", "", None),
    ],
)
def test_a_window_of_the_map_has_been(since, until, asked):
    assert pages.window(since, until, NOW) == asked
