"""Who writes the shard: one holder of the lock, and nobody who was deposed."""

import time

import psycopg
import pytest

from catalog.ingest.writer import Lock
from catalog.store import Deposed
from kvconsole.infra.sql import dsn
from tests.catalog.ingest.rig import Sim, add


@pytest.fixture
def locks(planted):
    made = [Lock(dsn("ingest"), 0), Lock(dsn("ingest"), 0), Lock(dsn("ingest"), 1)]
    yield made
    for lock in made:
        lock.release()


def test_one_at_a_time_per_shard(locks):
    first, second, other_shard = locks
    assert first.acquire()
    assert first.acquire()  # still
    assert not second.acquire()
    assert other_shard.acquire()
    first.release()
    deadline = time.monotonic() + 5
    while not second.acquire():
        assert time.monotonic() < deadline
    assert not first.acquire()


def test_a_lock_whose_connection_died_is_taken_again_or_not(locks, planted):
    first, second, _ = locks
    assert first.acquire()
    planted.execute("SELECT pg_terminate_backend(%s)", (first.connection.info.backend_pid,))
    assert first.acquire()
    planted.execute("SELECT pg_terminate_backend(%s, 5000)", (first.connection.info.backend_pid,))
    assert second.acquire()
    assert not first.acquire()


def test_a_database_that_is_away_gives_no_lock():
    with pytest.raises(psycopg.OperationalError):
        Lock("host=127.0.0.1 port=1 dbname=x user=x password=x", 0).acquire()


def test_a_deposed_writer_changes_nothing(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    old = rig.writer
    rig.open()
    rig.writer, rig.folder, new = old, old.folder, rig.writer
    lost = sim.frame(add(ns, 2))
    with pytest.raises(Deposed):
        rig.send(sim.node, lost)
    rig.writer, rig.folder = new, new.folder
    assert rig.holdings(sim.node) != sim.sums()
    rig.send(sim.node, lost)
    assert rig.holdings(sim.node) == sim.sums()


def test_a_new_writer_knows_what_the_old_one_knew(rig, ns, node):
    sims = [Sim(node), Sim(node, dp_rank=1)]
    rig.send(node, sims[0].beat(ranks={"ref": 2}))
    for s in sims:
        rig.send(node, s.frame(add(ns, 1, 2), add(ns, 3, tier="ssd")))
    rig.open()
    for s in sims:
        assert rig.send(node, s.digest()).state == "equal"
        assert rig.send(node, s.frame(add(ns, 4))).state == "next"
        assert rig.holdings(node, dp_rank=s.dp_rank) == s.sums()
