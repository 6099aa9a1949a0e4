"""What the map's rows hold, against plain sums."""

import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from catalog.index.steps import NO_FAMILY
from catalog.ingest.heatcontents import Contents, row_id

small = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("add"), small, st.sampled_from(["hbm", "ssd"]), small, small, st.integers(1, 5)),
    st.tuples(st.just("move"), small, small, small),
    st.tuples(st.just("drop"), small, small, small),
    st.tuples(st.just("leave"), small, st.sampled_from(["hbm", "ssd"])),
)


@given(st.lists(st.lists(steps, max_size=4), max_size=12))
def test_any_history_holds_what_plain_sums_hold(history):
    cells, held = Contents(0, 1000), Counter()
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
        assert sum(cells.group_total.values()) == sum(held.values())
        assert sum(cells.group_rows.values()) == len(cells.total)
        assert cells.empty == cells.rows.keys() - cells.total.keys()


def test_row_numbers_are_positive_the_same_for_ever_and_apart():
    assert row_id(0, 1, 2) == row_id(0, 1, 2) > 0
    assert len({row_id(0, a, b) for a in range(50) for b in range(50)}) == 2500


def test_a_keyspace_that_is_claimed_takes_its_rows_along():
    cells, tenant = Contents(0, 100), uuid.UUID(int=5)
    cells.seed([(1, "hbm", 1, 7, 3), (1, "hbm", 2, 7, 4)])
    cells.name(1, tenant, "m·1")
    assert cells.group_total[tenant, "m·1"] == 3
    assert cells.group_total[None, ""] == 4
    assert cells.group_rows[tenant, "m·1"] == 1
    assert cells.untold == {cells.ids[1, 7]}
    cells.name(1, tenant, "m·1")
    assert cells.group_total[tenant, "m·1"] == 3
