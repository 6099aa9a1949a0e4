"""Reads of the block catalog by SQL alone, and what a tenant may see of it."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from catalog import store_reads
from catalog.index.steps import Touched
from kvconsole.infra import sql
from tests.catalog.stored import NODE, OTHER, TENANT, Rig, chain, module_database_, store_database_

__all__ = ["module_database_", "store_database_"]


@pytest.fixture
def rig(store_database: Any) -> Iterator[Rig]:
    rig = Rig(store_database.dsn("ingest"))
    rig.operator, rig.tenant = store_database.dsn("operator"), store_database.dsn("tenant")
    yield rig
    rig.store.close()


@pytest.fixture
def connection(rig: Rig) -> Iterator[Any]:
    """As the operator's pages read."""
    with psycopg.connect(rig.operator, autocommit=True) as connection:
        yield connection


def test_facts_name_everything(rig: Rig, connection: Any) -> None:
    key = chain(1)[0]
    rig.do(rig.step("add", [key]), rig.step("state", [key], state="evicting"))
    fact = store_reads.Fact(NODE, "engine", 0, "hbm", bytes(32), 1, 0, key[:16], "evicting")
    assert store_reads.exact_facts(connection, wait=False) == {fact}


def test_chain_owners_finds_a_prefix_over_segments_and_branches(rig: Rig, connection: Any) -> None:
    trunk, branch = chain(400), chain(50, 1)
    rig.do(rig.step("add", trunk), rig.step("add", branch, parent=trunk[99]), rig.step("add", trunk[:60], tier="ssd"),
           rig.step("drop", trunk[10:12], reason="ttl"))  # fmt: skip
    found = store_reads.chain_owners(connection, rig.ks, trunk[:100] + branch)
    assert found[:10] == [{1, 2}] * 10
    assert found[10:12] == [{2}] * 2
    assert found[12:60] == [{1, 2}] * 48
    assert found[60:] == [{1}] * 90
    assert store_reads.chain_owners(connection, rig.ks, chain(5, 7)) == [set()] * 5
    assert store_reads.subtree(connection, rig.ks, 0) == [0, 1, 2]


def test_holdings_of_a_namespace(rig: Rig, connection: Any) -> None:
    keys = chain(300)
    rig.do(rig.step("add", keys), flush=False)
    (h,) = store_reads.holdings_of_namespace(connection, OTHER)
    assert (h.blocks, h.tier, h.node, h.block_tokens) == (300, "hbm", NODE, 16)
    assert (h.blocks, h.lo, h.hi) == rig.store.memory.digests(rig.source)[rig.ks, "hbm"]
    assert store_reads.holdings_of_namespace(connection, uuid.uuid4()) == []


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_pages_hold_every_block_once(rig: Rig, connection: Any, limit: int) -> None:
    for seed in range(6):
        rig.do(rig.step("add", chain(30, seed)), rig.step("add", chain(3, seed), tier="ssd"))
    rig.do(rig.step("state", chain(30)[:5], state="evicting"), rig.step("drop", chain(30, 1)[3:9], reason="ttl"))
    seen: list[store_reads.Block] = []
    while page := store_reads.blocks_page(
        connection, keyspaces=[rig.ks], after=tuple(seen[-1][:4]) if seen else None, limit=limit
    ):
        assert len(page) <= limit
        seen += page
    assert len(seen) == len(set(seen)) == 6 * 33 - 6
    assert sum(b.state == "evicting" for b in seen) == 5
    assert seen == sorted(seen)
    only = store_reads.blocks_page(connection, keyspaces=[rig.ks], tier="ssd", sources=[rig.source], limit=1000)
    assert len(only) == 18
    assert len(store_reads.blocks_page(connection, keyspaces=[rig.ks], state="evicting", limit=limit)) == min(5, limit)
    assert store_reads.blocks_page(connection, keyspaces=[rig.ks], sources=[], limit=5) == []


def test_the_ledger_tells_every_change(rig: Rig, connection: Any) -> None:
    rig.do(rig.step("add", chain(3)))
    rig.do(rig.step("drop", chain(1), reason="ttl"))
    (_, _, first), (_, _, came), (_, _, went) = store_reads.ledger_after(connection, 0)
    assert first.keyspaces[0][0] == rig.ks
    assert first.sources[0][4] == "recovering"
    assert came.born == [(0, rig.ks, -2, -1, 0, None)]
    assert came.keys[0][:2] == (0, 0)
    assert came.places == [(1, 0, 3, None, None)]
    assert came.holdings == [(rig.ks, 1, 3)]
    assert went.places == [(1, 0, 2, b"\x06", None)]
    assert store_reads.ledger_ends(connection) == (3, 1)
    assert [n for n, _, _ in store_reads.ledger_after(connection, 1, limit=1)] == [2]
    store_reads.reader_seen(connection, "test", 2)
    store_reads.reader_seen(connection, "test", 3)
    with pytest.raises(LookupError):
        store_reads.ledger_ends(connection, shard=9)
    with pytest.raises(LookupError):
        store_reads.barrier(connection, shard=9)


def test_readers_write_nothing_but_their_wishes(connection: Any) -> None:
    connection.execute("UPDATE catalog_shard SET wanted = wanted")
    for query in ("UPDATE catalog_shard SET seq = 0", "DELETE FROM catalog_placement", "DELETE FROM catalog_ledger"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(query)


def test_a_tenant_sees_its_own_blocks_only(rig: Rig) -> None:
    own, first = uuid.uuid4(), Touched()
    ks = rig.store.memory.keyspace(b"t" * 32, 1, 0, first, tenant_id=own).id
    rig.store.commit(first)
    rig.do(rig.step("add", chain(3)), rig.step("add", chain(7, 1), keyspace=ks))
    with psycopg.connect(rig.tenant) as connection:
        for tenant, blocks in ((own, [7]), (TENANT, [3]), (uuid.uuid4(), []), (None, [])):
            sql.enter(connection, tenant)
            assert [b for (b,) in connection.execute("SELECT blocks FROM catalog_holding")] == blocks
            assert [n for (n,) in connection.execute("SELECT n FROM catalog_placement")] == blocks
            connection.rollback()
        for table in ("ledger", "owner", "source", "shard", "reader"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM catalog_{table}")
            connection.rollback()
