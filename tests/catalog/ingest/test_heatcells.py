"""Which rows are drawn and what a column says."""

import uuid
from datetime import UTC, datetime

from catalog.ingest.heatcells import ROWS_DRAWN, Cells, unpack_column

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


def test_a_group_that_changed_its_name_is_told_again():
    cells = Cells(0, 100)
    cells.seed([(1, "hbm", 1, 7, 3)])
    cells.close(0, {1}, NOW, whole=True)
    cells.name(1, uuid.UUID(int=5), "m·1")
    rows = cells.close(10, {1}, NOW, whole=True)
    assert len(rows) == 3
    assert rows[1][1][2] == [uuid.UUID(int=5)]
