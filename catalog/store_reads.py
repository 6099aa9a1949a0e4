"""Decides how the block catalog is read: exact rows behind the barrier, chains, holdings, pages, and the ledger.

Called by selectors of `catalog` and `routing`, by the anti-entropy check and by tests. Takes psycopg connections.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from catalog.index import facts
from kvconsole.infra.sql import named

SQL = named("catalog", "store_reads.sql")
Connection = psycopg.Connection[Any]
KEY = 16
"""Bytes of a key in PostgreSQL."""


class Fact(NamedTuple):
    """One block on one owner."""

    node: UUID
    source: str
    dp_rank: int
    tier: str
    digest: bytes
    generation: int
    group: int
    key: bytes
    state: str


class Holding(NamedTuple):
    """What one owner holds of one keyspace; lo and hi are the digest of `kvcore.keys.digest_add`."""

    keyspace: int
    generation: int
    group: int
    node: UUID
    source: str
    dp_rank: int
    tier: str
    owner: int
    blocks: int
    lo: int
    hi: int
    block_tokens: int
    block_bytes: int


class Block(NamedTuple):
    """One replica on a page; the first four name its place in the order."""

    keyspace: int
    owner: int
    seg: int
    offset: int
    key: bytes
    state: str
    source_id: int
    tier: str
    born: datetime


class BarrierTimeout(Exception):
    """The writer has not written its rows in time: it is away or far behind. Nothing was read."""


def barrier(connection: Connection, shard: int = 0, timeout: float = 10.0) -> int:
    """Segment and placement rows contain everything committed before the call; answers the ledger's number of then.

    Raises:
        BarrierTimeout: the writer did not follow within `timeout` seconds.
    """
    row = connection.execute(SQL["barrier_ask"], (shard,)).fetchone()
    if row is None:
        raise LookupError(f"there is no shard {shard}")
    if not connection.autocommit:
        connection.commit()
    deadline = time.monotonic() + timeout
    while True:
        done = connection.execute(SQL["barrier_wait"], (row[0], shard)).fetchone()
        if not connection.autocommit:
            connection.commit()
        if done and done[0]:
            return int(row[0])
        if time.monotonic() > deadline:
            raise BarrierTimeout(f"shard {shard} has not reached {row[0]}")
        time.sleep(0.02)


def exact_facts(connection: Connection, shard: int = 0, *, wait: bool = True) -> set[Fact]:
    """Every block on every live owner, by SQL alone; `wait=False` where the caller knows that nothing lags."""
    if wait:
        barrier(connection, shard)
    out: set[Fact] = set()
    for *names, keys, n, held, states in connection.execute(SQL["facts"], binary=True):
        for offset, state in _held(n, held, states):
            out.add(Fact._make((*names, bytes(keys[KEY * offset : KEY * (offset + 1)]), state)))
    return out


def _held(n: int, held: bytes | None, states: bytes | None) -> Iterator[tuple[int, str]]:
    """(offset, state) of each block of a placement."""
    mask, by_state = facts.unpack(n, held), facts.unpack_states(states)
    for offset in range(mask.bit_length()):
        if mask >> offset & 1:
            yield offset, next((s for s, m in by_state.items() if m >> offset & 1), "committed")


def chain_owners(connection: Connection, keyspace: int, keys: Sequence[bytes]) -> list[set[int]]:
    """Live owners of each key of a chain given from its start, in one query; empty where nobody has it.

    Only heads of segments are indexed, so the keys must be a whole chain: any of them may be a head.
    """
    at = {k[:KEY]: i for i, k in enumerate(keys)}
    heads = [int.from_bytes(k[:8], "little", signed=True) for k in keys]
    out: list[set[int]] = [set() for _ in keys]
    for _, packed, owner, n, held, _ in connection.execute(SQL["chain"], (keyspace, heads), binary=True):
        if owner is None:
            continue
        mask = facts.unpack(n, held)
        for offset in range(mask.bit_length()):
            i = at.get(bytes(packed[KEY * offset : KEY * (offset + 1)]))
            if mask >> offset & 1 and i is not None:
                out[i].add(owner)
    return out


def holdings_of_namespace(connection: Connection, namespace_id: UUID) -> list[Holding]:
    """Blocks and digests of a namespace, exact as of the last commit."""
    rows = connection.execute(SQL["holdings_of_namespace"], (namespace_id,)).fetchall()
    return [Holding._make((*r[:9], r[9] % 2**64, r[10] % 2**64, *r[11:])) for r in rows]


def subtree(connection: Connection, keyspace: int, segment: int) -> list[int]:
    """The segment and all below it; a ring, which a lying node may have built, is walked once."""
    return [r[0] for r in connection.execute(SQL["subtree"], (keyspace, segment, keyspace))]


def blocks_page(
    connection: Connection,
    *,
    keyspaces: Sequence[int],
    sources: Sequence[int] | None = None,
    tier: str | None = None,
    state: str | None = None,
    after: tuple[int, int, int, int] | None = None,
    limit: int = 50,
) -> list[Block]:
    """Up to `limit` replicas in the order (keyspace, owner, segment, offset), behind `after`."""
    start = after or (0, 0, 0, -1)
    out: list[Block] = []
    at = start[:3]
    while len(out) < limit:
        rows = connection.execute(
            SQL["blocks_page"],
            {"keyspaces": list(keyspaces), "keyspace": at[0], "owner": at[1], "seg": at[2], "tier": tier,
             "sources": None if sources is None else list(sources), "limit": limit + 1},
        ).fetchall()  # fmt: skip
        for ks, owner, seg, keys, n, held, states, born, source, of_tier in rows:
            for offset, is_state in _held(n, held, states):
                if (ks, owner, seg, offset) <= start or (state and state != is_state):
                    continue
                key = bytes(keys[KEY * offset : KEY * (offset + 1)])
                out.append(Block(ks, owner, seg, offset, key, is_state, source, of_tier, born))
                if len(out) == limit:
                    return out
        if len(rows) <= limit:
            break
        at = (rows[-1][0], rows[-1][1], rows[-1][2])
        start = (*at, 256)  # read in full
    return out


# ------------------------------------------------------------------- ledger
def ledger_ends(connection: Connection, shard: int = 0) -> tuple[int, int | None]:
    """(newest number, oldest kept row or None): a reader behind the oldest must load the tables again."""
    row = connection.execute(SQL["ledger_ends"], (shard,)).fetchone()
    if row is None:
        raise LookupError(f"there is no shard {shard}")
    return row[0], row[1]


def ledger_after(
    connection: Connection, seq: int, shard: int = 0, limit: int = 1000
) -> list[tuple[int, datetime, facts.Facts]]:
    """Transactions after `seq`, oldest first; not contiguous with `seq` where the ledger was pruned."""
    rows = connection.execute(SQL["ledger_after"], (shard, seq, limit), binary=True).fetchall()
    return [(n, at, facts.decode(body)) for n, at, body in rows]


def reader_seen(connection: Connection, name: str, seq: int, shard: int = 0) -> None:
    """The ledger behind `seq` is not needed by this reader; to be said again within a minute."""
    connection.execute(SQL["reader_seen"], (name, shard, seq))
