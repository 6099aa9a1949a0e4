"""Decides how the writer's numbers become rows: binary arrays by column, and the statements that take them.

Called by `catalog.store` only. PostgreSQL's binary array format is written here and not by psycopg, which would make a
Python object of every element. Source: PostgreSQL `array_recv`, `timestamptz_recv`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from catalog.index import facts
from catalog.index.births import NEVER
from catalog.index.memory import Memory
from kvconsole.infra.sql import named

SQL = named("catalog", "store.sql")
Statement = tuple[str, Sequence[Any]]
_OID = {"int2": 21, "int4": 23, "int8": 20, "bytea": 17, "uuid": 2950, "text": 25, "bool": 16, "timestamptz": 1184}
_INT = {"int2": ">i2", "int4": ">i4", "int8": ">i8"}
_EPOCH = 946_684_800
"""UNIX seconds at which PostgreSQL's time begins, 2000-01-01."""
_NULL = b"\xff\xff\xff\xff"
NONE = -1
"""In place of NULL in integer columns."""


class Array(bytes):
    """A one-dimensional array in PostgreSQL's binary form; the statement's cast says of what."""


class _ArrayDumper(Dumper):
    format = Format.BINARY
    oid = 0

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


def register(connection: "psycopg.Connection[Any]") -> None:
    """The connection takes `Array` parameters."""
    connection.adapters.register_dumper(Array, _ArrayDumper)


def ints(kind: str, values: Iterable[int]) -> Array:
    """An array of integers, none of them NULL."""
    v = np.fromiter(values, _INT[kind])
    out = np.empty(len(v), np.dtype([("length", ">i4"), ("value", v.dtype)]))
    out["length"], out["value"] = v.dtype.itemsize, v
    return _array(kind, len(v), out.tobytes())


def _array(kind: str, n: int, elements: bytes, nulls: bool = False) -> Array:
    head = (int(n > 0), int(nulls), _OID[kind], *((n, 1) if n else ()))
    return Array(b"".join(x.to_bytes(4, "big") for x in head) + elements)


def values(kind: str, items: Iterable[bytes | None]) -> Array:
    """An array of values already in binary form; None = NULL."""
    parts, n, nulls = [], 0, False
    for item in items:
        n += 1
        if item is None:
            parts.append(_NULL)
            nulls = True
        else:
            parts.append(len(item).to_bytes(4, "big"))
            parts.append(item)
    return _array(kind, n, b"".join(parts), nulls)


def times(seconds: Iterable[float | None]) -> Array:
    """An array of timestamptz from UNIX seconds; `NEVER` gives -infinity."""
    return values("timestamptz", (None if s is None else _time(s) for s in seconds))


def _time(seconds: float) -> bytes:
    micros = -(2**63) if seconds == NEVER else round((seconds - _EPOCH) * 1e6)
    return micros.to_bytes(8, "big", signed=True)


def _texts(items: Iterable[str]) -> Array:
    return values("text", (s.encode() for s in items))


def _bools(items: Iterable[bool]) -> Array:
    return values("bool", (b"\1" if b else b"\0" for b in items))


def _signed(n: int) -> int:
    return n - 2**64 if n >= 2**63 else n


def _tenants(memory: Memory, keyspaces: Iterable[int]) -> Array:
    return values("uuid", [memory.keyspaces[ks].tenant_id.bytes for ks in keyspaces])


# ------------------------------------------------------------------- tables
def segments(memory: Memory, grown: Sequence[tuple[int, bytes]]) -> Statement:
    """Rows of segments, new or grown by these keys."""
    ids = [s for s, _ in grown]
    ks = memory.seg_ks[ids].tolist()
    up = memory.seg_up[ids]
    return SQL["segment_merge"], (
        ints("int8", ids),
        ints("int8", (int.from_bytes(k[:8], "little", signed=True) for _, k in grown)),
        ints("int8", np.maximum(up, NONE).tolist()),
        ints("int8", memory.seg_fam[ids].tolist()),
        ints("int4", ks),
        ints("int2", memory.seg_up_off[ids].tolist()),
        _tenants(memory, ks),
        values("bytea", [memory.parent_of(s) for s in ids]),
        values("bytea", [k for _, k in grown]),
    )


def placements(memory: Memory, rows: Sequence[tuple[int, int, int, float]]) -> Statement:
    """Rows of placements that hold something: (owner, segment, mask, born)."""
    segs = [s for _, s, _, _ in rows]
    ks = memory.seg_ks[segs].tolist()
    packed = [facts.pack(mask) for _, _, mask, _ in rows]
    return SQL["placement_merge"], (
        ints("int8", segs),
        times(born for *_, born in rows),
        ints("int4", (o for o, *_ in rows)),
        ints("int4", ks),
        _tenants(memory, ks),
        ints("int2", (n for n, _ in packed)),
        values("bytea", (held for _, held in packed)),
        values("bytea", (facts.pack_states(memory.states.get((o, s))) for o, s, *_ in rows)),
    )


def placements_older(memory: Memory, moved: Sequence[tuple[int, int, int]]) -> Statement:
    """Of each (owner, segment, owner before): the first is as old as what the second one's row says."""
    segs = [s for _, s, _ in moved]
    ks = memory.seg_ks[segs].tolist()
    columns = (ints("int4", ks), ints("int8", segs), *(ints("int4", (row[i] for row in moved)) for i in (0, 2)))
    return SQL["placement_older"], columns


def placements_gone(memory: Memory, gone: Sequence[tuple[int, int]]) -> Statement:
    """Rows of these (owner, segment) go."""
    segs = [s for _, s in gone]
    ks = memory.seg_ks[segs].tolist()
    return SQL["placement_delete"], (ints("int4", ks), ints("int4", (o for o, _ in gone)), ints("int8", segs))


def segments_gone(memory: Memory, dead: Sequence[int]) -> Statement:
    """Rows of these segments go."""
    return SQL["segment_delete"], (ints("int4", memory.seg_ks[list(dead)].tolist()), ints("int8", dead))


def holdings(memory: Memory, held: Iterable[tuple[int, int]]) -> tuple[list[Statement], list[tuple[int, int, int]]]:
    """Statements for these (keyspace, owner), and the same for the ledger."""
    rows, gone, told = [], [], []
    for ks, o in held:
        if o not in memory.holding:  # retired since: `holding_retire` has it
            continue
        h = memory.holding[o].get(ks)
        told.append((ks, o, h[0] if h else 0))
        if h is None or not h[0]:
            gone.append((ks, o))
            memory.holding[o].pop(ks, None)
        else:
            rows.append((ks, o, h[0], _signed(h[1]), _signed(h[2])))
    out: list[Statement] = []
    if rows:
        ks_, owners, blocks, lo, hi = zip(*rows, strict=True)
        numbers = (ints("int8", blocks), ints("int8", lo), ints("int8", hi))
        out.append((SQL["holding_merge"], (ints("int4", ks_), ints("int4", owners), _tenants(memory, ks_), *numbers)))
    if gone:
        sql = SQL["holding_delete"]
        out.append((sql, (ints("int4", (k for k, _ in gone)), ints("int4", (o for _, o in gone)))))
    return out, told


def sources(memory: Memory, ids: Sequence[int], shard: int) -> Statement:
    """Cursor and state of these sources."""
    rows = [memory.sources[i] for i in ids]
    return SQL["source_merge"], (
        ints("int4", ids),
        ints("int2", [shard] * len(rows)),
        values("uuid", (r.node_id.bytes for r in rows)),
        _texts(r.name for r in rows),
        ints("int4", (r.dp_rank for r in rows)),
        _texts(r.boot for r in rows),
        _texts(r.stream for r in rows),
        ints("int8", (r.seq for r in rows)),
        values("text", (msgspec.json.encode(r.old_boots) for r in rows)),
        _texts(r.state for r in rows),
        _texts(r.reason for r in rows),
        times(r.since for r in rows),
        times(r.last_verified_at for r in rows),
        times(r.last_frame_at for r in rows),
        _bools(r.can_list for r in rows),
        ints("int8", (r.gaps for r in rows)),
    )


def owners(memory: Memory, ids: Sequence[int], shard: int) -> Statement:
    """Owners that came or were retired."""
    rows = [memory.owners[i] for i in ids]
    return SQL["owner_merge"], (
        ints("int4", ids),
        ints("int2", [shard] * len(rows)),
        ints("int4", (r.source for r in rows)),
        _texts(r.tier for r in rows),
        _bools(r.retired for r in rows),
        times(r.born for r in rows),
    )


def keyspaces(memory: Memory, ids: Sequence[int], shard: int) -> Statement:
    """Keyspaces that came or were claimed."""
    rows = [memory.keyspaces[i] for i in ids]
    return SQL["keyspace_merge"], (
        ints("int4", ids),
        ints("int2", [shard] * len(rows)),
        values("uuid", (r.tenant_id.bytes for r in rows)),
        values("uuid", (r.namespace_id.bytes if r.namespace_id else None for r in rows)),
        values("bytea", (r.digest for r in rows)),
        ints("int8", (r.generation for r in rows)),
        ints("int2", (r.group for r in rows)),
        ints("int4", (r.block_tokens for r in rows)),
        ints("int8", (r.block_bytes for r in rows)),
        _bools(r.claimed for r in rows),
    )
