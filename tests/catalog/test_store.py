"""The store against PostgreSQL: what is durable when, the fence, write-behind, sweeps, losses, removals."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from catalog import store as store_module
from catalog import store_reads
from catalog.index.steps import Touched, replacement
from catalog.store import Deposed, Store
from tests.catalog.stored import OTHER, TENANT, Rig, chain, module_database_, store_database_

__all__ = ["module_database_", "store_database_"]


@pytest.fixture
def rig(store_database: Any) -> Iterator[Rig]:
    """A store that writes rows when they are 2 s old."""
    rig = Rig(store_database.dsn("ingest"))
    yield rig
    rig.store.close()


def facts(rig: Rig) -> set[tuple[str, bytes, str]]:
    with psycopg.connect(rig.dsn, autocommit=True) as connection:
        return {(f.tier, f.key, f.state) for f in store_reads.exact_facts(connection, wait=False)}


def told(tier: str, keys: list[bytes], state: str = "committed") -> set[tuple[str, bytes, str]]:
    return {(tier, k[:16], state) for k in keys}


def test_ledger_holdings_and_cursors_are_durable_at_once_and_rows_later(rig: Rig) -> None:
    keys = chain(300)
    row = rig.store.memory.sources[rig.source]
    row.boot, row.stream, row.seq, row.old_boots, row.state = "b", "s", 7, ("a b", 'c"d'), "exact"
    touched = rig.store.memory.apply([rig.step("add", keys)])
    touched.sources.add(rig.source)
    rig.store.commit(touched, now=rig.now)
    assert rig.rows("SELECT blocks FROM catalog_holding") == [(300,)]
    assert rig.rows("SELECT boot, stream, seq, old_boots, state FROM catalog_source") == [
        ("b", "s", 7, ["a b", 'c"d'], "exact")
    ]
    assert rig.rows("SELECT count(*) FROM catalog_segment") == [(0,)]
    assert rig.rows("SELECT seq - redo FROM catalog_shard") == [(0,)]
    rig.store.commit(Touched(), now=rig.now + 1.9)
    assert not facts(rig)
    rig.store.commit(Touched(), now=rig.now + 2.0)
    assert facts(rig) == told("hbm", keys)
    assert rig.rows("SELECT redo - seq FROM catalog_shard") == [(1,)]


def test_idle_writes_what_is_due(rig: Rig) -> None:
    keys = chain(3)
    rig.do(rig.step("add", keys), flush=False)
    assert rig.store.prepare_idle(rig.now + 1) is None
    rig.store.idle(rig.now + 2)
    assert facts(rig) == told("hbm", keys)


def test_nothing_is_swept_between_fold_and_prepare(rig: Rig) -> None:
    rig.do(rig.step("add", chain(3)), rig.step("drop", chain(3), reason="ttl"))
    touched = rig.store.memory.apply([rig.step("add", chain(3))])
    assert rig.store.prepare_idle(rig.now + 60) is None
    rig.store.commit(touched, flush=True)
    assert facts(rig) == told("hbm", chain(3))


def test_a_barrier_is_answered_without_traffic(rig: Rig) -> None:
    rig.do(rig.step("add", chain(3)), flush=False)
    with psycopg.connect(rig.dsn, autocommit=True) as connection:
        with pytest.raises(store_reads.BarrierTimeout):
            store_reads.barrier(connection, timeout=0.05)
        rig.store.idle(rig.now)
        assert store_reads.barrier(connection, timeout=0) == 3  # nothing lags behind any more
    assert facts(rig) == told("hbm", chain(3))


def test_prepared_batches_are_written_while_the_next_is_folded(rig: Rig) -> None:
    one, two = chain(100), chain(100, 1)
    first = rig.store.prepare(rig.store.memory.apply([rig.step("add", one)]), now=rig.now, flush=True)
    touched = rig.store.memory.apply([rig.step("add", two), rig.step("drop", one[:50], reason="ttl")])
    rig.store.write(first)
    assert facts(rig) == told("hbm", one)
    rig.store.commit(touched, now=rig.now, flush=True)
    assert facts(rig) == told("hbm", two + one[50:])


def test_a_second_writer_deposes_the_first(rig: Rig) -> None:
    rig.do(rig.step("add", chain(3)))
    second = Store(rig.dsn)
    with pytest.raises(Deposed):
        rig.do(rig.step("add", chain(9, 1)))
    with pytest.raises(Deposed):  # and it stays deposed
        rig.store.prepare(Touched())
    with pytest.raises(Deposed):
        rig.store.prepare_idle()
    assert facts(rig) == told("hbm", chain(3))
    assert second.memory.digests(rig.source)[rig.ks, "hbm"][0] == 3
    second.close()


def test_a_shard_that_is_not_there_is_no_shard(rig: Rig) -> None:
    with pytest.raises(LookupError):
        Store(rig.dsn, shard=5)


def test_extras_are_in_the_same_transaction(rig: Rig) -> None:
    seen = "INSERT INTO catalog_reader (name, shard, seq, seen_at) VALUES (%s, 0, %s, now())"
    rig.do(rig.step("add", chain(1)), extras=[(seen, ("me", 1))])
    assert rig.rows("SELECT name FROM catalog_reader") == [("me",)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        rig.do(rig.step("add", chain(5, 1)), extras=[(seen, ("me", 1))])
    assert facts(rig) == told("hbm", chain(1))
    with pytest.raises(Deposed):  # memory and tables differ now: only loading helps
        rig.do(rig.step("add", chain(1)))


def test_a_lost_reply_is_neither_lost_nor_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = rig.store._send, []

    def send(prepared: Any) -> None:
        calls.append(prepared.seq)
        if len(calls) in (1, 2):
            if len(calls) == 2:
                real(prepared)
            raise psycopg.OperationalError("reply lost")
        real(prepared)

    monkeypatch.setattr(rig.store, "_send", send)
    rig.do(rig.step("add", chain(3)))
    rig.do(rig.step("drop", chain(1), reason="ttl"))
    assert calls == [2, 2, 3]
    assert facts(rig) == told("hbm", chain(3)[1:])


def test_a_database_that_stays_away_ends_the_store(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RECONNECT_SECONDS", 0.1)
    rig.store.dsn = "host=127.0.0.1 port=1 connect_timeout=1"
    rig.store.connection.close()
    with pytest.raises(Deposed):
        rig.do(rig.step("add", chain(3)))


def test_loss_of_a_node_is_one_commit_and_its_rows_go_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SWEEP", 4)
    for seed in range(10):
        rig.do(rig.step("add", chain(3, seed)), rig.step("add", chain(3, seed), tier="ssd"))
    rig.store.memory.sources[rig.source].state = "lost"
    before = rig.store.seq
    touched = rig.store.memory.apply([rig.step("lose")])
    touched.sources.add(rig.source)
    rig.store.commit(touched, now=rig.now)
    assert rig.store.seq == before + 1
    assert not facts(rig)
    assert rig.rows("SELECT count(*) FROM catalog_holding") == [(0,)]
    assert rig.rows("SELECT count(*) FROM catalog_placement") == [(20,)]
    told_ = store_reads.ledger_after(rig.store.connection, before)[0][2]
    assert told_.owners == [(1, rig.source, "hbm", True), (2, rig.source, "ssd", True)]
    assert told_.sources[0][4] == "lost"
    left = [20]
    while rig.store.idle(rig.now):
        left.append(rig.rows("SELECT count(*) FROM catalog_placement")[0][0])
        assert left[-1] >= left[-2] - 4
    assert rig.rows("SELECT count(*) FROM catalog_placement") == [(0,)]
    assert rig.rows("SELECT count(*) FROM catalog_owner") == [(0,)]
    rig.sweep()
    assert rig.rows("SELECT count(*) FROM catalog_segment") == [(0,)]


def test_segments_wait_out_their_grace(rig: Rig) -> None:
    rig.store.grace = 5.0
    rig.do(rig.step("add", chain(3)), rig.step("drop", chain(3), reason="ttl"))
    rig.store.idle(rig.now)
    rig.store.idle(rig.now + 4.9)
    assert rig.rows("SELECT count(*) FROM catalog_segment") == [(1,)]
    rig.now += 4.9
    rig.do(rig.step("add", chain(1)))
    rig.store.idle(rig.now + 5)
    assert rig.store.memory.next_seg == 1  # it kept its place
    rig.do(rig.step("drop", chain(1), reason="ttl"))
    for seconds in (10, 16):
        rig.store.idle(rig.now + seconds)
    assert rig.rows("SELECT count(*) FROM catalog_segment") == [(0,)]


def test_an_inventory_is_one_commit(rig: Rig) -> None:
    keys, more = chain(300), chain(40, 1)
    rig.do(rig.step("add", keys), rig.step("add", keys[:9], tier="ssd"))
    seq = rig.store.seq
    rig.do(*replacement(rig.source, [rig.step("add", keys[100:]), rig.step("add", more, tier="dram")]))
    assert rig.store.seq == seq + 1
    assert facts(rig) == told("hbm", keys[100:]) | told("dram", more)


def test_born_is_when_the_first_block_was_committed(rig: Rig) -> None:
    def born() -> list[tuple[float]]:
        return rig.rows("SELECT extract(epoch FROM born)::float8 FROM catalog_placement")

    start = rig.now
    rig.do(rig.step("add", chain(10)))
    rig.now += 100
    rig.do(rig.step("add", chain(20)))
    assert born() == [(start,)]
    rig.do(rig.step("drop", chain(20), reason="ttl"))
    rig.now += 100
    rig.do(rig.step("add", chain(5)))
    assert born() == [(start + 200,)]


def test_a_claimed_keyspace_goes_to_its_tenant_with_all_rows(rig: Rig) -> None:
    first = Touched()
    open_ = rig.store.memory.keyspace(b"u" * 32, 1, 0, first, tenant_id=TENANT, claimed=False)
    rig.store.commit(first)
    rig.do(rig.step("add", chain(3), keyspace=open_.id))
    tenant, later = uuid.uuid4(), Touched()
    rig.store.memory.keyspace(b"u" * 32, 1, 0, later, tenant_id=tenant, namespace_id=OTHER)
    rig.store.commit(later)
    for table in ("segment", "placement", "holding"):
        assert rig.rows(f"SELECT DISTINCT tenant_id FROM catalog_{table}") == [(tenant,)]
    assert rig.rows("SELECT tenant_id, claimed, namespace_id FROM catalog_keyspace WHERE id = %s", open_.id) == [
        (tenant, True, OTHER)
    ]


def test_removing_a_keyspace_takes_its_rows_and_nothing_else(rig: Rig) -> None:
    first = Touched()
    gone = rig.store.memory.keyspace(b"g" * 32, 1, 0, first, tenant_id=TENANT).id
    rig.store.commit(first)
    rig.do(rig.step("add", chain(500), keyspace=gone), rig.step("add", chain(20)))
    rig.do(rig.step("add", chain(30, 1), keyspace=gone), flush=False)
    rig.store.write(rig.store.prepare_removal((gone,), rig.now))
    assert facts(rig) == told("hbm", chain(20))
    for table in ("segment", "placement", "holding"):
        assert rig.rows(f"SELECT count(*) FROM catalog_{table} WHERE keyspace = %s", gone) == [(0,)]
    second = Store(rig.dsn)
    assert second.memory.digests(rig.source) == rig.store.memory.digests(rig.source)
    assert second.memory.resident == rig.store.memory.resident
    second.close()


def test_the_ledger_is_pruned_behind_every_reader(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LEDGER_KEPT", 2)
    for seed in range(10):
        rig.do(rig.step("add", chain(2, seed)))
    store_reads.reader_seen(rig.store.connection, "slow", 6)
    rig.do(rig.step("drop", chain(2), reason="ttl"))
    rig.sweep()
    assert store_reads.ledger_ends(rig.store.connection) == (rig.store.seq, 6)
    with psycopg.connect(rig.dsn, autocommit=True) as connection:
        connection.execute("UPDATE catalog_reader SET seen_at = now() - interval '2 minutes'")
    rig.do(rig.step("drop", chain(2, 1), reason="ttl"))
    rig.sweep()
    assert store_reads.ledger_ends(rig.store.connection)[1] == rig.store.seq - 1 - 2


def test_the_writers_role_is_no_owner_and_makes_no_tables(rig: Rig) -> None:
    with psycopg.connect(rig.dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE t (i int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("ALTER TABLE catalog_segment ADD COLUMN x int")
    forced = rig.rows("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity")
    assert {("catalog_segment",), ("catalog_placement",), ("catalog_holding",), ("catalog_keyspace",)} <= set(forced)
    pools = rig.rows("SELECT count(*) FROM pg_inherits WHERE inhparent IN ('catalog_segment'::regclass,"
                     " 'catalog_placement'::regclass)")  # fmt: skip
    assert pools == [(64,)]
