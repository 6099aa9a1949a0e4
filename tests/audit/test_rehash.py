"""One stretch of the log, read and hashed: what went by retention is no divergence; a walk goes on from any tile."""

from datetime import date

import numpy as np
import psycopg
import pytest

from audit import rehash
from audit.gaps import Tally
from kvcore.proofs import Frontier


@pytest.fixture
def reader(log):
    options = "-c max_parallel_workers_per_gather=0"
    with psycopg.connect(log.database.dsn("seq"), autocommit=True, options=options) as c:
        yield c


def test_stretches_make_the_tree_again(log, reader):
    log.events(5000)
    log.seal()
    walk = rehash.Walk(Frontier(), Tally())
    first = rehash.read(reader, 0)
    assert (first.first, first.end, first.size) == (0, rehash.STEP, 5000)
    assert rehash.check(walk, first, log.database.dsn("seq")) == []
    assert walk.frontier.size == rehash.STEP
    last = rehash.read(reader, first.end)
    assert rehash.check(walk, last, log.database.dsn("seq")) == []
    assert walk.frontier.size == 5000 // 256 * 256
    assert walk.tally.holes() == []
    assert sum(b - a + 1 for runs in walk.tally._runs.values() for a, b, _ in runs) == 5000


def test_a_body_that_went_by_order_is_not_missing(log, reader):
    ids = log.events(3)
    log.seal()
    log.attack(f"UPDATE audit_event SET body = '' WHERE id = {ids[1]}")
    part = rehash.read(reader, 0)
    assert [d.kind for d in rehash.check(rehash.Walk(Frontier(), Tally()), part, log.database.dsn("seq"))] == ["body"]
    log.attack(
        "ALTER TABLE audit_retired DISABLE TRIGGER USER",
        "INSERT INTO audit_retired (month, class, approval, events, digest)"
        " VALUES (date_trunc('month', now() AT TIME ZONE 'UTC'), 15, gen_random_uuid(), 1, sha256(''))",
    )
    part = rehash.read(reader, 0)
    assert rehash.check(rehash.Walk(Frontier(), Tally()), part, log.database.dsn("seq")) == []


def test_classes_and_months():
    rows = np.zeros(2, rehash._EVENT)
    rows["type"], rows["time"] = (0x0F01, 0x0101), (1_790_000_000_000_000, 0)
    assert rehash._classes(rows).tolist() == [15 * 100_000 + 56 * 12 + 8, 100_000]
    assert rehash._keys(frozenset({(15, date(2026, 9, 1))})) == [15 * 100_000 + 56 * 12 + 8]
