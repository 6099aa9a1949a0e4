"""The pictures as the writer makes them: exact where they must be, unknown where nobody spoke."""

import math
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from catalog.index.steps import NO_FAMILY, Keyspace, Touched
from catalog.ingest.heatcells import unpack_column
from catalog.ingest.pictures import Pictures
from catalog.models.pictures import LAYERS, METRICS
from kvconsole.infra.sql import PLATFORM, dsn
from kvcore.events import Drop, Load, Mark, Move, Use
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node

T0 = 1_789_999_980
"""Begin of a minute."""
KEYSPACES = {
    n: Keyspace(n, PLATFORM, None, bytes([n]) * 32, 1, 0, 16, 1024, True)
    for n in range(1, 4)
}  # fmt: skip


def mark(used, capacity=1000, tier="hbm"):
    return Mark(tier=tier, used=used, capacity=capacity, high=0.9, low=0.8)


def use(*, hit=32, prompt=64, saved=5.0, tiers=None, measured=True, ns=bytes(32), head=None):
    tiers = {"hbm": hit} if tiers is None else tiers
    return Use(ns=ns, gen=1, head=head, hit_tokens=hit, tiers=tiers, prompt_tokens=prompt, saved_ms=saved,
               measured=measured, request=str(uuid.uuid4()))  # fmt: skip


def batch(added=(), dropped=(), moved=()):
    """What a folded batch says to the pictures."""
    touched = Touched()
    touched.added.update(dict(added))
    touched.dropped.update(dict(dropped))
    touched.moved.update(dict(moved))
    return touched


class Desk:
    """Pictures, a clock, and a transaction as kv_ingest that is rolled back."""

    def __init__(self, cx):
        self.cx, self.now = cx, float(T0)
        self.begin()

    def begin(self):
        """A writer begins."""
        self.pictures = Pictures()
        self.pictures.restore(self.cx, self.when)
        for n in KEYSPACES:
            self.pictures.keyspace(n, tenant_id=PLATFORM, group=f"m·{n}")
        self.pictures.resident([])

    @property
    def when(self):
        return datetime.fromtimestamp(self.now, UTC)

    def hear(self, *sources):
        for source in sources:
            self.pictures.seen(source, self.when, self.now - 0.2)

    def fold(self, **counts):
        self.pictures.batch(batch(**counts), KEYSPACES)

    def commit(self, step=0.0):
        self.now += step
        for sql, params in self.pictures.rows(self.when):
            self.cx.execute(sql, params)
        self.pictures.committed()

    def rows(self, query, *params):
        return self.cx.execute(query, params).fetchall()

    def columns(self, layer=0):
        rows = self.rows("SELECT t0, rows, values FROM catalog_heatcolumn WHERE layer = %s ORDER BY t0", layer)
        return {int(t0.timestamp()) - T0: figures(unpack_column(bytes(i), bytes(v))) for t0, i, v in rows}


def figures(column):
    """The sums over all rows by metric; None where a row is unknown."""
    sums = [sum(v) for v in zip(*column.values(), strict=True)] if column else [0.0] * 6
    return {name: None if math.isnan(x) else round(x, 3) for name, x in zip(METRICS, sums, strict=True)}


NOTHING = dict.fromkeys(METRICS, 0)


@pytest.fixture
def desk(django_db_setup):
    cx = psycopg.connect(dsn("ingest"))
    yield Desk(cx)
    cx.rollback()
    cx.close()


class TestExact:
    def test_usage_by_source_and_tier_and_their_sum(self, desk):
        desk.pictures.use(1, 1, use(tiers={"hbm": 16, "dram": 16}), desk.when, family=9)
        desk.commit()
        desk.pictures.use(1, 1, use(hit=0, tiers={}, measured=False), desk.when)
        desk.commit(0.1)
        rows = desk.rows(
            "SELECT keyspace, tier, requests, prompt_tokens, hit_tokens, saved_ms, measured_requests"
            " FROM catalog_usage WHERE layer = 1"
        )
        of = {(k, t): rest for k, t, *rest in rows}
        for keyspace in (1, -1):
            assert of[keyspace, ""] == [2, 128, 32, 10.0, 1]
            assert of[keyspace, "hbm"][2] == of[keyspace, "dram"][2] == 16

    def test_only_drops_are_evictions(self, desk):
        at = (1, "hbm", "watermark", 1, 9)
        desk.fold(added={(1, "hbm", 1, 9): 10}, dropped={at: 2, (1, "hbm", "reset", 1, NO_FAMILY): 4})
        desk.commit()
        desk.fold(dropped={at: 1})
        desk.commit(0.1)
        rows = desk.rows("SELECT tier, reason, blocks, bytes FROM catalog_eviction WHERE layer = 0")
        assert rows == [("hbm", "watermark", 3, 3072)]

    def test_refusals_count_and_keep_the_last_detail(self, desk):
        desk.pictures.refused(1, "nesting", "first", desk.when)
        desk.pictures.refused(1, "nesting", "second", desk.when, 3)
        desk.commit()
        desk.pictures.refused(1, "nesting", "x" * 999, desk.when)
        desk.commit()
        assert desk.rows("SELECT code, count, length(detail) FROM catalog_refusal") == [("nesting", 5, 200)]

    def test_a_failed_commit_comes_again_in_order(self):
        now, pictures = datetime.fromtimestamp(T0, UTC), Pictures()
        pictures.refused(1, "a", "first", now)
        first = pictures.rows(now)
        pictures.refused(1, "b", "second", now)
        second = pictures.rows(now + timedelta(seconds=0.1))
        pictures.failed()
        again = pictures.rows(now + timedelta(seconds=0.2))
        assert again[: len(first) + len(second)] == [*first, *second]
        pictures.committed()
        assert [s for s, _ in pictures.rows(now + timedelta(seconds=0.3)) if "refusal" in s] == []


class TestMarks:
    def test_the_present_fill_and_a_sample_per_column_while_the_node_speaks(self, desk):
        for used in (400, 700, 500):
            desk.pictures.mark(1, "hbm", mark(used), desk.when)
            desk.commit(1)
        assert desk.rows("SELECT used, capacity FROM catalog_tiermark") == [(500, 1000)]
        desk.now = T0 + 12
        desk.hear(1)
        desk.commit()
        desk.commit(10)
        samples = desk.rows("SELECT used, peak FROM catalog_marksample WHERE layer = 0 ORDER BY t0")
        assert samples == [(500, 700), (500, 500)]

    def test_a_silent_node_leaves_a_gap(self, desk):
        desk.pictures.mark(1, "hbm", mark(400), desk.when)
        desk.commit()
        for _ in range(4):
            desk.commit(10)
        desk.pictures.mark(1, "hbm", mark(300), desk.when)
        desk.commit()
        desk.commit(10)
        times = desk.rows("SELECT t0 FROM catalog_marksample WHERE layer = 0 ORDER BY t0")
        assert [int(t.timestamp()) - T0 for (t,) in times] == [0, 40]

    def test_load_and_lag(self, desk):
        desk.pictures.load(1, Load(queue_ms=12.5, running=3, prefill_curve=(0.1, 0.0), measured=True), desk.when)
        desk.commit()
        desk.hear(1)
        desk.commit(2)
        (row,) = desk.rows("SELECT queue_ms, running, round(lag_ms) FROM catalog_sourcepulse")
        assert row == (12.5, 3, 200)

    def test_folding_keeps_the_last_fill_and_the_peak(self, desk):
        for used in (100, 900, 300, 200, 250, 150):
            desk.pictures.mark(1, "hbm", mark(used), desk.when)
            desk.commit()
            desk.now += 10
        desk.commit()
        assert desk.rows("SELECT used, peak FROM catalog_marksample WHERE layer = 1") == [(150, 900)]


class TestHeat:
    def test_a_column_has_what_happened_in_it(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 8})
        desk.commit()
        desk.pictures.use(1, 1, use(hit=64, prompt=100, saved=7.5), desk.when, family=9)
        desk.fold(dropped={(1, "hbm", "ttl", 1, 9): 1}, moved={(1, "hbm", "dram", 1, 9): 2})
        desk.commit(1)
        desk.now = T0 + 15
        desk.hear(1)
        desk.commit()
        desk.commit(10)
        busy = {"resident": 7, "hits": 64, "misses": 36, "stores": 8, "evictions": 1, "saved": 7.5}
        assert desk.columns() == {0: busy, 10: {**NOTHING, "resident": 7}}

    def test_rows_of_silent_sources_are_unknown(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 3})
        desk.commit()
        desk.commit(10)
        desk.commit(10)
        got = desk.columns()
        assert got[0]["resident"] == 3
        assert got[10] == dict.fromkeys(METRICS)

    def test_one_source_of_two_that_speaks_is_enough_to_know_something(self, desk):
        desk.hear(1, 2)
        desk.fold(added={(1, "hbm", 1, 9): 3, (2, "hbm", 1, 9): 4})
        desk.commit()
        desk.now = T0 + 11
        desk.hear(2)
        desk.commit()
        desk.commit(10)
        assert desk.columns()[10]["resident"] == 7

    def test_the_column_in_which_a_writer_began_is_unknown_in_its_rates(self, desk):
        desk.now = T0 + 4
        desk.begin()
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 3})
        desk.commit()
        desk.commit(10)
        assert desk.columns()[0] == {**dict.fromkeys(METRICS), "resident": 3}

    def test_a_time_without_a_writer_has_no_column(self, desk):
        desk.commit()
        desk.commit(10)
        desk.now = T0 + 70
        desk.begin()
        desk.commit()
        desk.commit(10)
        assert list(desk.columns()) == [0, 70]

    def test_an_idle_writer_makes_up_for_the_columns_it_lived_through(self, desk):
        desk.commit()
        desk.commit(45)
        assert desk.columns() == dict.fromkeys((0, 10, 20, 30), NOTHING)

    def test_resident_is_unknown_until_the_store_was_read(self, desk):
        desk.pictures = Pictures()
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 3})
        desk.commit()
        desk.commit(10)
        assert desk.columns()[0]["resident"] is None

    def test_who_leaves_whole_takes_every_family_and_leaves_what_came_after(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 2, (1, "hbm", 1, 10): 2, (1, "ssd", 1, 9): 1, (1, "hbm", 2, 5): 7})
        desk.commit()
        desk.fold(added={(1, "hbm", 1, 9): 1}, dropped={(1, "hbm", "reset", 1, NO_FAMILY): 4})
        desk.commit()
        assert sum(desk.pictures.cells.total.values()) == 1 + 1 + 7
        desk.fold(dropped={(1, "hbm", "lose", 1, NO_FAMILY): 1, (1, "hbm", "lose", 2, NO_FAMILY): 7})
        desk.commit()
        assert sum(desk.pictures.cells.total.values()) == 1

    def test_the_axis_survives_a_new_writer(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 2, (1, "hbm", 2, 9): 2})
        desk.commit()
        desk.commit(10)
        before = desk.rows("SELECT version, rows FROM catalog_heataxis")
        desk.begin()
        desk.pictures.resident([(1, "hbm", 1, 9, 2), (1, "hbm", 2, 9, 2)])
        desk.commit()
        desk.commit(10)
        assert desk.rows("SELECT version, rows FROM catalog_heataxis") == before
        assert len(desk.rows("SELECT id FROM catalog_heatrow")) == 2

    def test_coarser_columns_are_sums_and_last_values_also_over_a_change_of_writer(self, desk):
        for i in range(6):
            desk.hear(1)
            desk.fold(added={(1, "hbm", 1, 9): 1})
            desk.commit()
            desk.now += 10
            if i == 2:
                desk.commit()
                desk.begin()
                desk.pictures.resident([(1, "hbm", 1, 9, 3)])
        desk.commit()
        got = desk.columns(layer=1)[0]
        assert (got["stores"], got["resident"]) == (6, 6)

    def test_retention_drops_what_a_layer_no_longer_keeps(self, desk):
        desk.pictures.mark(1, "hbm", mark(10), desk.when)
        desk.commit()
        for _ in range(LAYERS[0][1] // 60 + 3):
            desk.now += 600
            desk.pictures.mark(1, "hbm", mark(10), desk.when)
            desk.commit()
        for table in ("marksample", "heatcolumn"):
            (oldest,) = desk.rows(f"SELECT min(t0) FROM catalog_{table} WHERE layer = 0")[0]
            assert desk.when - oldest <= timedelta(seconds=LAYERS[0][0] * LAYERS[0][1] + 60)
        assert desk.rows("SELECT count(*) > 5 FROM catalog_marksample WHERE layer = 1") == [(True,)]


class TestRows:
    def test_beyond_the_drawn_rows_the_rest_of_a_group_is_one_row_and_never_across_groups(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1 + i % 2, i): 1 + i // 100 for i in range(1200)})
        desk.commit()
        desk.commit(10)
        kinds = desk.rows('SELECT kind, "group", count(*)::int FROM catalog_heatrow GROUP BY 1, 2 ORDER BY 1, 2')
        assert sum(n for kind, _, n in kinds if kind == "family") == 512
        assert [(k, g, n) for k, g, n in kinds if k == "other"] == [("other", "m·1", 1), ("other", "m·2", 1)]
        assert desk.columns()[0]["resident"] == sum(1 + i // 100 for i in range(1200))

    def test_rows_stay_while_they_live(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, i): 5 for i in range(400)})
        desk.commit()
        desk.commit(10)
        first = desk.pictures.cells.drawn()
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, i): 500 for i in range(400, 460)})
        desk.commit()
        desk.commit(10)
        assert desk.pictures.cells.drawn()[:400] == first

    def test_families_beyond_the_memory_are_counted_in_their_group(self, desk):
        desk.pictures.cells.families_max = 10
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, i): 1 for i in range(50)})
        desk.commit()
        desk.commit(10)
        assert len(desk.pictures.cells.ids) == 10
        assert desk.columns()[0]["resident"] == 50

    def test_prompts_that_hit_nothing_are_a_row_of_their_own(self, desk):
        desk.hear(1)
        desk.pictures.use(1, 1, use(hit=0, prompt=80, saved=0.0, tiers={}), desk.when)
        desk.commit()
        desk.commit(10)
        assert desk.rows("SELECT kind, keyspace, family FROM catalog_heatrow") == [("new", 1, None)]
        assert desk.columns()[0]["misses"] == 80

    def test_a_row_that_is_empty_for_an_hour_leaves(self, desk):
        desk.hear(1)
        desk.fold(added={(1, "hbm", 1, 9): 1})
        desk.fold(dropped={(1, "hbm", "ttl", 1, 9): 1})
        desk.commit()
        for _ in range(100):
            desk.now += 60
            desk.commit()
        assert desk.pictures.cells.drawn() == []
        assert desk.pictures.cells.rows == {}


def test_pulse_is_the_last_ten_seconds(desk):
    desk.commit()
    desk.now += 20
    desk.pictures.use(1, 1, use(), desk.when, family=9)
    desk.pictures.events(2)
    desk.commit()
    (row,) = desk.rows("SELECT requests, prompt_tokens, hit_tokens, events, window_seconds FROM catalog_pulse")
    assert row == (1, 64, 32, 2, 10.0)
    for _ in range(12):
        desk.commit(1)
    assert desk.rows("SELECT requests, events FROM catalog_pulse") == [(0, 0)]


@pytest.mark.django_db(transaction=True)
def test_the_writer_tells_them_with_the_commit_of_the_frame(planted, rig):
    node, ns = plant_node(planted, "n1"), plant_namespace(planted, "repo")
    rig.tick(1.1)
    sim, begin = Sim(node), int(rig.now) // 10 * 10 + 10
    rig.now = begin + 1
    rig.send(node, sim.frame(add(ns, 1, 2, 3, 4), mark(400)))
    rig.send(node, sim.frame(use(ns=ns, head=keys(2)), Move(ns=ns, gen=1, keys=keys(1), from_="hbm", to="dram")))
    rig.send(node, sim.frame(Drop(ns=ns, gen=1, keys=keys(2, 3), tier="hbm", reason="value"), b"\x81\xa1k\xa3foo"))
    assert rig.rows("SELECT reason, blocks, bytes FROM catalog_eviction") == [("value", 2, 2048)]
    assert rig.rows("SELECT sum(requests)::int FROM catalog_usage WHERE keyspace > 0 AND tier = ''") == [(1,)]
    assert sum(rig.refused().values()) == 1
    rig.batch((node, sim.beat()), step=10)
    ids, values = rig.rows("SELECT rows, values FROM catalog_heatcolumn ORDER BY t0 DESC LIMIT 1")[0]
    expected = {"resident": 2, "hits": 32, "misses": 32, "stores": 4, "evictions": 2, "saved": 5}
    assert figures(unpack_column(bytes(ids), bytes(values))) == expected
    tenants = rig.rows(
        "SELECT tenant_id FROM catalog_heatrow UNION SELECT tenant_id FROM catalog_usage WHERE keyspace > 0"
    )
    assert len(tenants) == 1
    assert tenants != [(PLATFORM,)]
