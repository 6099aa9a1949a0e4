"""What the cells hold, against plain sums."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from catalog.index.steps import NO_FAMILY
from catalog.ingest.heatcells import ROWS_DRAWN, Cells, row_id, unpack_column

NOW = datetime(2026, 1, 1, tzinfo=UTC)
small = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("add"), small, st.sampled_from(["hbm", "ssd"]), small, small, st.integers(1, 5)),
    st.tuples(st.just("move"), small, small, small),
    st.tuples(st.just("drop"), small, small, small),
    st.tuples(st.just("leave"), small, st.sampled_from(["hbm", "ssd"])),
)


@given(st.lists(st.lists(steps, max_size=4), max_size=12))
def test_any_history_holds_what_plain_sums_hold(history):
    cells, held = Cells(0, 1000), Counter()
    cells.seed([])
    for batch in history:
        for kind, source, *rest in batch:
            if kind == "add":
                tier, ks, family, n = rest
                cells.added(source, tier, ks, family, n)
                held[source, tier, ks, family] += n
            elif kind in ("move", "drop"):
                ks, family = rest
                n = held[source, "hbm", ks, family]
                if not n:
                    continue
                del held[source, "hbm", ks, family]
                if kind == "move":
                    held[source, "dram", ks, family] += n
                    cells.moved(source, "hbm", "dram", ks, family, n)
                else:
                    cells.dropped(source, "hbm", ks, family, n, evicted=True)
            else:
                (tier,) = rest
                for at in [k for k in held if k[:2] == (source, tier)]:
                    cells.dropped(source, tier, at[2], NO_FAMILY, held.pop(at), evicted=False)
        cells.settle()
        assert sum(cells.total.values()) == sum(held.values())
        assert sum(sum(of.values()) for of in cells.owners.values()) == sum(held.values())
        assert all(n > 0 for n in cells.total.values())


def test_row_numbers_are_positive_the_same_for_ever_and_apart():
    assert row_id(0, 1, 2) == row_id(0, 1, 2) > 0
    assert len({row_id(0, a, b) for a in range(50) for b in range(50)}) == 2500


def test_a_column_is_read_back_as_it_was_and_zeros_are_left_out():
    cells = Cells(0, 100)
    cells.seed([(1, "hbm", 1, i, i) for i in range(1, 5)])
    cells.used(1, 1, 2, 10, 5, 2.5)
    cells.merge()
    rows = cells.close(0, {1}, NOW, whole=True)
    *_, ids, values = rows[-1][1]
    column = unpack_column(ids, values)
    assert column[cells.ids[1, 2]] == [2, 10, 5, 0, 0, 2.5]
    assert len(column) == 4
    cells.dropped(1, "hbm", 1, 4, 4, evicted=True)
    cells.merge()
    cells.close(10, {1}, NOW, whole=True)
    *_, ids, values = cells.close(20, {1}, NOW, whole=True)[-1][1]
    assert cells.ids[1, 4] not in unpack_column(ids, values)


def test_the_ranks_decide_once_a_minute_and_who_is_drawn_has_an_advantage():
    cells = Cells(0, 10_000)
    cells.seed([(1, "hbm", 1, i, 10) for i in range(ROWS_DRAWN)])
    cells.close(0, {1}, NOW, whole=True)
    first = set(cells.members)
    for i in range(ROWS_DRAWN, ROWS_DRAWN + 5):
        cells.added(1, "hbm", 1, i, 100_000)
    cells.merge()
    cells.close(60, {1}, NOW, whole=True)
    assert len(set(cells.members) - first) == 5
    version = cells.version
    cells.merge()
    cells.close(70, {1}, NOW, whole=True)
    assert cells.version == version
