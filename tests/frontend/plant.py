"""Plants what the writer and the agents would have left: a fleet with its history, as rows of a real database.

Facts that age are dated an hour ahead, so that a fleet without processes stays fresh as long as a test runs; the
silent node's are dated back.
"""

import math
import random
import zlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import psycopg

from catalog.models.pictures import LAYERS, METRICS
from kvconsole.infra.sql import PLATFORM, uuid7
from tenants.slugs import slug_skeleton

AHEAD = timedelta(hours=1)
TIERS = {
    "hbm": (64 << 20, 0.85, 0.92),
    "pinned": (32 << 20, 0.8, 0.9),
    "dram": (256 << 20, 0.8, 0.9),
    "ssd": (1 << 30, 0.8, 0.9),
    "remote": (2 << 30, 0.85, 0.95),
}
NODES = (
    ("fra-p1", "prefill", "ready", "exact", "", (0.90, 0.79, 0.79, 0.64, 0.45)),
    ("fra-p2", "prefill", "ready", "degraded", "hashes-over-tokens", (0.944, 0.758, 0.912, 0.70, 0.475)),
    ("fra-d2", "decode", "silent", "exact", "", (0.904, 0.625, 0.686, 0.4, 0.287)),
    ("ams-m1", "mixed", "ready", "recovering", "gap", (0.718, 0.469, 0.588, 0.30, 0.175)),
)
FAMILIES = (("acme-code", "ref-1k·1", 9), ("acme-code", "ref-1k·2", 5), ("borealis-bank", "ref-1k·1", 8))


def _insert(cx: psycopg.Connection, table: str, **row: object) -> None:
    names = ", ".join(f'"{n}"' for n in row)
    cx.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(row))})", tuple(row.values()))


def node(
    cx: psycopg.Connection,
    number: int,
    *,
    name: str,
    role: str = "mixed",
    state: str = "ready",
    source_state: str = "exact",
    reason: str = "",
    fills: tuple[float, ...] = (0.5,) * 5,
    now: datetime,
    heard: datetime | None = None,
) -> UUID:
    """A node with five tiers, one source, its marks and what it holds."""
    pk, heard = uuid7(), heard or now + AHEAD
    _insert(
        cx,
        "catalog_node",
        id=pk,
        name=name,
        region="eu-" + name[:3],
        zone="a",
        rack="r1",
        role=role,
        agent_url="",
        state=state,
        state_since=now,
        wanted="ready",
        agent_version="0.1.0",
        profile="ref-1k",
        engine='{"kind": "reference", "version": "1"}',
        created_at=now,
        enrolled_at=now - timedelta(days=2),
        last_heard_at=heard,
    )
    _insert(
        cx,
        "catalog_source",
        id=number,
        shard=0,
        node_id=pk,
        name="reference",
        dp_rank=0,
        boot=str(uuid7()),
        stream=str(uuid7()),
        seq=4711,
        old_boots=[],
        state=source_state,
        reason=reason,
        since=now - timedelta(minutes=12),
        last_verified_at=now - timedelta(minutes=3),
        last_frame_at=heard,
        can_list=True,
        gaps=2,
    )
    _insert(
        cx,
        "catalog_sourcepulse",
        source=number,
        at=heard,
        lag_ms=310.0,
        load_at=heard,
        queue_ms=12.0,
        running=3,
        curve_a=0.1,
        curve_b=0.0,
        measured=False,
    )
    for at, ((tier, (capacity, low, high)), share) in enumerate(zip(TIERS.items(), fills, strict=True)):
        _insert(
            cx,
            "catalog_nodetier",
            node_id=pk,
            tier=tier,
            capacity_bytes=capacity,
            emulated=tier == "hbm",
            encrypted=tier in ("ssd", "remote"),
            high=high,
            low=low,
        )
        _insert(
            cx,
            "catalog_tiermark",
            source=number,
            tier=tier,
            used=int(capacity * share),
            capacity=capacity,
            high=high,
            low=low,
            at=heard,
        )
        owner = number * 10 + at
        _insert(cx, "catalog_owner", id=owner, shard=0, source_id=number, tier=tier, retired=False, born=now)
        _insert(
            cx,
            "catalog_holding",
            keyspace=1,
            owner=owner,
            tenant_id=PLATFORM,
            blocks=int(capacity * share) // 16384,
            lo=1,
            hi=1,
        )
    return pk


def history(cx: psycopg.Connection, source: int, now: datetime, seed: int = 1, heard: datetime | None = None) -> None:
    """An hour of fills and evictions in steps of 10 s, with a gap of three minutes; fills and usage in minutes too."""
    chance, step = random.Random(seed), LAYERS[0][0]
    first = int(now.timestamp()) // step * step - 360 * step
    samples, evictions, minutes = [], [], {}
    heard = heard or now
    for i in range(360):
        t0 = datetime.fromtimestamp(first + i * step, UTC)
        if 120 <= i < 138 or t0 > heard:
            continue
        for tier, (capacity, low, high) in TIERS.items():
            used = int(capacity * (0.6 + 0.2 * math.sin(i / 40 + source)))
            samples.append((source, tier, 0, t0, used, used, capacity, high, low))
            minute = datetime.fromtimestamp((first + i * step) // 60 * 60, UTC)
            minutes[tier, minute] = (source, tier, 1, minute, used, used, capacity, high, low)
        evictions.append((source, "hbm", "watermark", 0, t0, chance.randrange(40), 16384))
        evictions.append((source, "dram", "value", 0, t0, chance.randrange(20), 16384))
    with cx.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO catalog_marksample (source, tier, layer, t0, used, peak, capacity, high, low)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [*samples, *minutes.values()],
        )
        cursor.executemany(
            "INSERT INTO catalog_eviction (source, tier, reason, layer, t0, blocks, bytes)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            evictions,
        )
        for i in range(60):
            t0 = datetime.fromtimestamp(int(now.timestamp()) // 60 * 60 - (60 - i) * 60, UTC)
            for tier, hit in (("", 620), ("hbm", 400), ("dram", 220)):
                cursor.execute(
                    "INSERT INTO catalog_usage (keyspace, source, tier, layer, t0, tenant_id, requests, prompt_tokens,"
                    " hit_tokens, saved_ms, measured_requests) VALUES (-1, %s, %s, 1, %s, %s, 30, 1000, %s, 400, 0)",
                    (source, tier, t0, PLATFORM, hit),
                )


def heat(cx: psycopg.Connection, now: datetime, tenants: dict[str, UUID]) -> None:
    """An hour of the heat map: rows of three groups, one of them merged, one not reported for the last minutes."""
    ids, rows, step = [], [], LAYERS[0][0]
    for slug, group, count in FAMILIES:
        for k in range(count):
            kind = "other" if k == count - 1 else "family"
            ids.append((len(ids) + 1) * 0x0123_4567_89AB_CDEF % 2**63)
            rows.append((ids[-1], tenants[slug], kind, group, None if kind == "other" else 1, k, now))
    with cx.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO catalog_heatrow (id, tenant_id, kind, "group", keyspace, family, told_at)'
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            rows,
        )
    merged = [212 if r[2] == "other" else 0 for r in rows]
    pack = lambda array: zlib.compress(array.tobytes())  # noqa: E731
    _insert(
        cx,
        "catalog_heataxis",
        shard=0,
        version=1,
        at=now,
        rows=pack(np.array(ids, "<i8")),
        merged=pack(np.array(merged, "<i4")),
    )
    last = int(now.timestamp()) // step * step - step
    for i in range(360):
        t0 = last - (359 - i) * step
        heat_column(
            cx,
            t0,
            ids,
            [120 * math.exp(-k / 3) * (1.2 + math.sin(i / 30 + k)) for k in range(len(ids))],
            unknown={2, 9} if i > 320 else set(),
        )


def heat_column(
    cx: psycopg.Connection, t0: int, ids: list[int], levels: list[float], unknown: set[int] = frozenset()
) -> None:
    """One column: every metric of row k is `levels[k]` a second."""
    values = np.zeros((len(ids), len(METRICS)), "<f4")
    for k, level in enumerate(levels):
        values[k] = math.nan if k in unknown else level * LAYERS[0][0]
    _insert(
        cx,
        "catalog_heatcolumn",
        shard=0,
        layer=0,
        t0=datetime.fromtimestamp(t0, UTC),
        axis=1,
        families=len(ids),
        rows=zlib.compress(np.array(ids, "<i8").tobytes()),
        values=zlib.compress(values.tobytes()),
    )


def tenants(cx: psycopg.Connection, now: datetime) -> dict[str, UUID]:
    """The tenants of the heat map; those that are there already keep their ids."""
    found = dict(cx.execute("SELECT slug, id FROM tenants_tenant").fetchall())
    for slug in dict.fromkeys(f[0] for f in FAMILIES):
        if slug not in found:
            found[slug] = uuid7()
            _insert(
                cx,
                "tenants_tenant",
                id=found[slug],
                slug=slug,
                lookalike=slug_skeleton(slug),
                name=slug,
                residency="",
                isolation="shared",
                classes=[],
                erasure_scope="label",
                retention="{}",
                state="active",
                created_at=now,
            )
    return found


def writer(cx: psycopg.Connection, now: datetime, *, away: bool = False) -> None:
    """The writer lives, and says how much happens; or it has been away for a minute."""
    at = now - timedelta(minutes=1) if away else now + AHEAD
    cx.execute("UPDATE catalog_shard SET seen_at = %s WHERE id = 0", (at,))
    cx.execute("DELETE FROM catalog_pulse")
    _insert(
        cx,
        "catalog_pulse",
        shard=0,
        at=at,
        window_seconds=10.0,
        requests=482,
        prompt_tokens=100_000,
        hit_tokens=71_400,
        saved_ms=61_000.0,
        events=3_120,
        evictions=12_840,
    )


def fleet(dsn: str, now: datetime | None = None) -> datetime:
    """Four nodes, one of them silent, with an hour behind them. Returns the present."""
    now = now or datetime.now(UTC)
    with psycopg.connect(dsn, autocommit=True) as cx:
        of = tenants(cx, now)
        writer(cx, now)
        _insert(
            cx,
            "catalog_keyspace",
            id=1,
            shard=0,
            tenant_id=PLATFORM,
            digest=bytes(32),
            generation=1,
            cache_group=0,
            block_tokens=16,
            block_bytes=16384,
            claimed=False,
        )
        for number, (name, role, state, source_state, reason, fills) in enumerate(NODES, 1):
            heard = now - timedelta(minutes=11) if state == "silent" else None
            node(
                cx,
                number,
                name=name,
                role=role,
                state=state,
                source_state=source_state,
                reason=reason,
                fills=fills,
                now=now,
                heard=heard,
            )
            history(cx, number, now, number, heard)
        for code, count in (("hashes-over-tokens", 17), ("unknown-keys", 1204)):
            _insert(cx, "catalog_refusal", source=2, code=code, count=count, last_at=now, detail="<b>not markup</b>")
        heat(cx, now, of)
    return now
