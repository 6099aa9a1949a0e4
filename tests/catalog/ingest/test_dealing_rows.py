"""The statements of dealing: as many arrays as placeholders, in the order of the columns."""

from datetime import UTC, datetime
from uuid import uuid4

from catalog.ingest import dealing_rows as sql

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_statement_has_its_arrays():
    t, n = uuid4(), uuid4()
    made = [
        sql.effective({(t, "hbm"): 5}),
        sql.allowances([(t, n, "hbm", None, 7, 0)]),
        sql.without([(t, n, "hbm")]),
        sql.deals([(n, 3, 2, NOW)]),
        sql.tiers({(t, "hbm"): (1, 2)}, NOW),
    ]
    for text, values in made:
        assert text.count("%s") == len(values)
    assert made[1][1] == [[t], [n], ["hbm"], [None], [7], [0]]
