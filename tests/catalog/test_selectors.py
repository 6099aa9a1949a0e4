"""What pages read, over a real writer: last known is not present, unknown is not zero, few queries."""

# ruff: noqa: F811

import base64
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog import selectors
from catalog.live import marks_view, tiles_view
from catalog.models.pictures import LAYERS
from kvconsole.infra.live import difference
from kvcore.events import Drop
from tests.catalog.ingest.conftest import planted, rig  # noqa: F401  (fixtures)
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node
from tests.catalog.ingest.test_pictures import mark, use

pytestmark = pytest.mark.django_db(transaction=True)


def at(rig, seconds=0.0):
    return datetime.fromtimestamp(rig.now + seconds, UTC)


def slot(rig, seconds=1.0):
    rig.now = int(rig.now) // 60 * 60 + 60 + seconds


def codes(view):
    return {(a.code, a.node) for a in view.alerts}


def test_an_empty_fleet_says_so(planted):
    now = datetime.now(UTC)
    fleet = selectors.fleet_view(now=now)
    assert (fleet.nodes, fleet.ladder, fleet.alerts) == ([], [], [])
    assert [s.code for s in fleet.answer] == ["no-nodes"]
    assert fleet.numbers.requests_per_s is None
    assert fleet.numbers.blocks == 0
    assert selectors.node_view(name="x", now=now) is None
    assert selectors.top_families(now=now, limit=5) == []
    window = {"since": now - timedelta(hours=1), "until": now, "now": now}
    matrix = selectors.heat(metric="hits", rows=512, **window)
    assert (matrix.rows, matrix.levels) == ([], b"")
    assert len(matrix.columns) == 360
    assert {r.reasons for r in selectors.eviction_history(node=None, **window)} == {None}
    assert {r.prompt_tokens for r in selectors.token_history(node=None, **window)} == {None}


def test_the_fleet_while_all_is_well_and_after_a_node_falls_silent(planted, rig):
    ns = plant_namespace(planted, "repo")
    one, two = Sim(plant_node(planted, "n1")), Sim(plant_node(planted, "n2"))
    plant_node(planted, "n3")
    planted.execute("UPDATE catalog_node SET state = 'joining' WHERE name = 'n3'")
    rig.tick(1.1)
    slot(rig)
    for sim, used in ((one, 950), (two, 400)):
        rig.send(sim.node, sim.frame(add(ns, 1, 2, 3), mark(used), use(ns=ns, head=keys(2))))
    rig.tick(0.6)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        fleet = selectors.fleet_view(now=at(rig))
    assert len(queries) <= 10
    assert not [q for q in queries if "catalog_placement" in q["sql"] or "catalog_segment" in q["sql"]]
    n1, n2, n3 = fleet.nodes
    assert (n1.name, n1.source_state, n1.stale, n1.blocks) == ("n1", "exact", False, 3)
    assert (n1.tier("hbm").state, n1.tier("hbm").used_bytes, n2.tier("hbm").state) == ("high", 950, "ok")
    assert n2.tier("dram").used_bytes is None  # declared, never reported
    assert n2.tier("dram").blocks == 0
    assert (n3.stale, n3.age_ms, n3.source_state, n3.blocks) == (True, None, None, None)
    (step,) = [s for s in fleet.ladder if s.tier == "hbm"]
    assert (step.used_bytes, step.last_known_bytes, step.reporting, step.nodes, step.complete) == (1350, 0, 2, 3, False)
    assert fleet.complete
    assert fleet.numbers.hit_ratio == 0.5
    assert fleet.numbers.requests_per_s > 0
    assert codes(fleet) == {("tier-high", "n1")}
    assert [s.code for s in fleet.answer] == ["nodes-reporting", "tier-high"]
    assert fleet.answer[0].params == {"reporting": 2, "nodes": 2}

    for _ in range(12):
        rig.batch((two.node, two.beat()), step=1)
    fleet = selectors.fleet_view(now=at(rig))
    n1 = fleet.nodes[0]
    assert n1.stale
    assert n1.age_ms >= 12_000
    assert (n1.tier("hbm").used_bytes, n1.tier("hbm").state, n1.tier("hbm").stale) == (950, "unknown", True)
    (step,) = [s for s in fleet.ladder if s.tier == "hbm"]
    assert (step.used_bytes, step.last_known_bytes, step.complete) == (400, 950, False)
    assert not fleet.complete
    assert not fleet.numbers.complete
    assert ("node-silent", "n1") in codes(fleet)
    assert [s.code for s in fleet.answer][:2] == ["nodes-reporting", "node-silent"]

    planted.execute("UPDATE catalog_node SET state = 'lost' WHERE name = 'n1'")
    rig.batch((two.node, two.beat()), step=1.1)
    rig.batch((two.node, two.beat()), step=1.1)
    lost = selectors.node_view(name="n1", now=at(rig))
    assert (lost.state, lost.source_state, lost.blocks, lost.stale) == ("lost", "lost", None, True)
    assert lost.tier("hbm").used_bytes == 950  # last known
    planted.execute("UPDATE catalog_node SET state = 'lost' WHERE name = 'n2'")
    alone = selectors.fleet_view(now=at(rig))  # the writer lives, but nobody is left who could tell it of a request
    assert (alone.numbers.requests_per_s, alone.numbers.evictions_per_s) == (None, None)
    assert "no-traffic" not in [s.code for s in alone.answer]
    planted.execute("UPDATE catalog_shard SET seen_at = NULL")  # the store's clock is not the test's
    away = selectors.fleet_view(now=at(rig, 60))
    assert ("writer-away", None) in codes(away)
    assert away.numbers.requests_per_s is None
    assert away.answer[0].code == "writer-away"


def test_a_tier_that_works_at_its_mark_is_one_alert_that_stands(planted, rig):
    """It is filled above the mark and evicts below it again and again; a minute after the last time all is well."""
    sim = Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    slot(rig)
    seen = []
    for used in (950, 600, 940, 600, 600, 600):
        rig.send(sim.node, sim.frame(mark(used)), step=0)
        for _ in range(4):
            rig.batch((sim.node, sim.beat()), step=3.5)
            seen.append([(a.code, a.params["share"], a.params["peak"]) for a in selectors.alerts(now=at(rig))])
    assert [code for ((code, _share, _peak),) in seen[4:]] == ["tier-high"] * 20, "once a column is closed it stands"
    assert {share for ((_code, share, _peak),) in seen[4:]} == {0.6, 0.94}, "and says what is so now"
    assert {peak for ((_code, _share, peak),) in seen[4:]} <= {0.95, 0.94}
    for _ in range(25):
        rig.batch((sim.node, sim.beat()), step=3.5)
    assert selectors.alerts(now=at(rig)) == []


def test_states_refusals_and_sources_of_a_node(planted, rig):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1)))
    sim.frame(add(ns, 2, parent=1))  # lost on its way
    rig.send(sim.node, sim.frame(b"\x81\xa1k\xa3foo"))
    view = selectors.node_view(name="n1", now=at(rig))
    assert view.source_state == "recovering"
    assert (view.sources[0].reason, view.sources[0].gaps) == ("gap", 1)
    assert ("source-recovering", "n1") in {(a.code, a.node) for a in selectors.alerts(now=at(rig))}
    for seq in (1, 2):
        rig.send(sim.node, sim.frames[seq])
    view = selectors.node_view(name="n1", now=at(rig))
    assert view.sources[0].refused == 1
    assert ("refused", "n1") in {(a.code, a.node) for a in selectors.alerts(now=at(rig))}
    assert selectors.node_names() == {"n1": str(sim.node)}


def test_history_has_gaps_where_nobody_spoke_and_zeros_where_nothing_happened(planted, rig):
    ns = plant_namespace(planted, "repo")
    one, two = Sim(plant_node(planted, "n1")), Sim(plant_node(planted, "n2"))
    rig.tick(1.1)
    slot(rig)
    begin = at(rig, -1)
    for sim in (one, two):
        rig.send(sim.node, sim.frame(add(ns, *range(1, 9)), mark(100), use(ns=ns, head=keys(2))), step=0)
    rig.send(one.node, one.frame(Drop(ns=ns, gen=1, keys=keys(8), tier="hbm", reason="ttl")), step=0)
    for _ in range(3):
        rig.batch((one.node, one.beat()), step=10)
    window = {"since": begin, "until": at(rig), "now": at(rig)}
    fills = {n: selectors.watermark_history(node=n, tier="hbm", **window) for n in ("n1", "n2", "none")}
    assert [s.used_bytes for s in fills["n1"]] == [100, 100, 100]
    assert [s.used_bytes for s in fills["n2"]] == [100, None, None]
    assert {s.used_bytes for s in fills["none"]} == {None}
    assert [r.reasons for r in selectors.eviction_history(node=None, **window)] == [{"ttl": 1}, {}, {}]
    assert [r.reasons for r in selectors.eviction_history(node="n2", **window)] == [{}, None, None]
    rig.batch((one.node, one.beat()), step=60)
    window = {"since": begin, "until": at(rig), "now": at(rig)}
    tokens = selectors.token_history(node=None, **window)
    assert (tokens[0].requests, tokens[0].prompt_tokens, tokens[0].hit_tokens) == (2, 128, {"hbm": 64})
    assert tokens[0].step_seconds == 60


def test_the_heat_map_its_live_columns_and_its_families(planted, rig):
    repo, tools = plant_namespace(planted, "repo"), plant_namespace(planted, "tools")
    one, two = Sim(plant_node(planted, "n1")), Sim(plant_node(planted, "n2"))
    rig.tick(1.1)
    slot(rig)
    first = int(rig.now) // 10 * 10
    rig.send(one.node, one.frame(add(repo, 1, 2, 3), add(repo, 50, 51)))
    rig.send(one.node, one.frame(use(ns=repo, head=keys(2), hit=640, prompt=700)))
    rig.send(two.node, two.frame(add(tools, 1, 2, 3, 4), use(ns=tools, hit=0, prompt=300, tiers={})))
    for _ in range(3):
        rig.batch((one.node, one.beat()), step=10)
    now = at(rig)
    window = {"since": now - timedelta(hours=1), "until": now, "now": now}
    matrix = selectors.heat(metric="hits", rows=512, **window)
    assert {(r.kind, r.namespace) for r in matrix.rows} == {("family", "repo"), ("family", "tools"), ("new", "tools")}
    assert matrix.step_seconds == 10
    width = len(matrix.columns)
    assert len(matrix.levels) == width * len(matrix.rows)
    column = matrix.columns.index(first)
    at_first = [matrix.levels[i * width + column] for i in range(len(matrix.rows))]
    assert sorted(at_first)[-1] == pytest.approx(max(at_first))
    assert sum(1 for x in at_first if 0 < x < 255) == 1
    # n2 spoke in the first column only: from then on its rows are veiled, n1's are zero
    later = {r.namespace: matrix.levels[i * width + column + 1] for i, r in enumerate(matrix.rows)}
    assert later == {"repo": 0, "tools": 255}
    assert matrix.levels[column - 5] == 255  # before there was a column

    live = selectors.heat_live(metric="hits", now=now)
    assert live["axis"]["version"] == matrix.axis
    for t0, cell in live["columns"].items():
        drawn = [matrix.levels[i * width + matrix.columns.index(int(t0))] for i in range(len(matrix.rows))]
        assert list(base64.b64decode(cell["levels"])) == drawn
    families = selectors.top_families(now=now, limit=5)
    assert families[0].namespace == "repo"
    assert families[0].hit_tokens_per_s > 0
    assert len(families) == 3
    one_row = selectors.heat(metric="resident", rows=1, **window)
    assert sorted(r.kind for r in one_row.rows) == ["family", "other", "other"]
    assert {(r.tenant) for r in one_row.rows if r.kind == "other"} == {r.tenant for r in matrix.rows}
    assert "rows-merged" in {s.code for s in one_row.honesty}
    with CaptureQueriesContext(connection) as queries:
        selectors.heat(metric="saved", rows=512, **window)
    assert len(queries) <= 24
    touched = ("catalog_placement", "catalog_segment")
    assert not [q for q in queries if any(t in q["sql"] for t in touched)]
    wide = selectors.heat(metric="hits", rows=512, since=now - timedelta(days=80), until=now, now=now)
    assert wide.layer == len(LAYERS) - 1
    assert "means" in {s.code for s in wide.honesty}


def test_views_of_an_idle_fleet_hardly_change(planted, rig):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1), mark(100)))
    rig.tick(0.6)
    before = tiles_view(selectors.fleet_view(now=at(rig)))
    rig.batch((sim.node, sim.beat()), step=0.6)
    after = tiles_view(selectors.fleet_view(now=at(rig)))
    delta = difference(before, after)
    assert list(delta) == ["fleet"]
    assert list(delta["fleet"]) == ["numbers"]
    marks = marks_view(selectors.fleet_view(now=at(rig)))
    assert marks["marks"]["n1/hbm"]["used"] == 100
