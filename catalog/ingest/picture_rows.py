"""The statements by which pictures are written; arrays in, one statement a table and commit.

Each upsert adds to what is there, so a writer that takes over within a column completes it.
"""

from collections.abc import Sequence
from typing import Any

Rows = list[tuple[str, Sequence[Any]]]
_PLATFORM = "00000000-0000-7000-8000-000000000001"

LOAD_MARKS = "SELECT source, tier, used, capacity, high, low FROM catalog_tiermark"
LOAD_AXIS = "SELECT version, rows FROM catalog_heataxis WHERE shard = %s"
LOAD_NEWEST = "SELECT layer, max(t0) FROM catalog_heatcolumn WHERE shard = %s GROUP BY layer"
LOAD_COLUMNS = (
    "SELECT rows, values FROM catalog_heatcolumn WHERE shard = %s AND layer = %s AND t0 >= %s AND t0 < %s ORDER BY t0"
)
LOAD_ROWS = 'SELECT id, keyspace, family, kind, tenant_id, "group" FROM catalog_heatrow WHERE id = ANY(%s)'
"""Relies on the primary key; at most one axis of rows."""

MARKS = """
INSERT INTO catalog_tiermark (source, tier, used, capacity, high, low, at)
SELECT * FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::float8[], %s::timestamptz[])
ON CONFLICT (source, tier) DO UPDATE SET used = excluded.used, capacity = excluded.capacity, high = excluded.high,
    low = excluded.low, at = excluded.at"""

SAMPLES = """
INSERT INTO catalog_marksample (layer, t0, source, tier, used, capacity, high, low, peak)
SELECT 0, %s, * FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::float8[], %s::bigint[])
ON CONFLICT (source, tier, layer, t0) DO UPDATE SET used = excluded.used, capacity = excluded.capacity,
    high = excluded.high, low = excluded.low, peak = greatest(catalog_marksample.peak, excluded.peak)"""

EVICTIONS = """
INSERT INTO catalog_eviction (layer, t0, source, tier, reason, blocks, bytes)
SELECT 0, %s, * FROM unnest(%s::int[], %s::text[], %s::text[], %s::bigint[], %s::bigint[])
ON CONFLICT (source, tier, reason, layer, t0) DO UPDATE SET blocks = catalog_eviction.blocks + excluded.blocks,
    bytes = catalog_eviction.bytes + excluded.bytes"""

_USAGE_ADDS = """
ON CONFLICT (keyspace, source, tier, layer, t0) DO UPDATE SET requests = catalog_usage.requests + excluded.requests,
    prompt_tokens = catalog_usage.prompt_tokens + excluded.prompt_tokens,
    hit_tokens = catalog_usage.hit_tokens + excluded.hit_tokens, saved_ms = catalog_usage.saved_ms + excluded.saved_ms,
    measured_requests = catalog_usage.measured_requests + excluded.measured_requests"""

USAGE = f"""
INSERT INTO catalog_usage (layer, t0, keyspace, source, tier, tenant_id, requests, prompt_tokens, hit_tokens, saved_ms,
    measured_requests)
SELECT 1, %s, keyspace, source, tier, coalesce(tenant, '{_PLATFORM}'::uuid), requests, prompt, hit, saved, measured
FROM unnest(%s::int[], %s::int[], %s::text[], %s::uuid[], %s::bigint[], %s::bigint[], %s::bigint[], %s::float8[],
    %s::bigint[]) AS u(keyspace, source, tier, tenant, requests, prompt, hit, saved, measured) {_USAGE_ADDS}"""  # noqa: S608

REFUSALS = """
INSERT INTO catalog_refusal (source, code, count, last_at, detail)
SELECT * FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::timestamptz[], %s::text[])
ON CONFLICT (source, code) DO UPDATE SET count = catalog_refusal.count + excluded.count, last_at = excluded.last_at,
    detail = excluded.detail"""

HEARD = """
INSERT INTO catalog_sourcepulse (source, at, lag_ms)
SELECT * FROM unnest(%s::int[], %s::timestamptz[], %s::float8[])
ON CONFLICT (source) DO UPDATE SET at = excluded.at, lag_ms = coalesce(excluded.lag_ms, catalog_sourcepulse.lag_ms)"""

LOADS = """
INSERT INTO catalog_sourcepulse (source, at, load_at, queue_ms, running, curve_a, curve_b, measured)
SELECT s, t, t, q, r, a, b, m FROM unnest(%s::int[], %s::timestamptz[], %s::float8[], %s::int[], %s::float8[],
    %s::float8[], %s::bool[]) AS u(s, t, q, r, a, b, m)
ON CONFLICT (source) DO UPDATE SET load_at = excluded.load_at, queue_ms = excluded.queue_ms,
    running = excluded.running, curve_a = excluded.curve_a, curve_b = excluded.curve_b, measured = excluded.measured"""

PULSE = """
INSERT INTO catalog_pulse (shard, at, window_seconds, requests, prompt_tokens, hit_tokens, saved_ms, events, evictions)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (shard) DO UPDATE SET at = excluded.at, window_seconds = excluded.window_seconds,
    requests = excluded.requests, prompt_tokens = excluded.prompt_tokens, hit_tokens = excluded.hit_tokens,
    saved_ms = excluded.saved_ms, events = excluded.events, evictions = excluded.evictions"""

COLUMN = """
INSERT INTO catalog_heatcolumn (shard, layer, t0, axis, families, rows, values) VALUES (%s, %s, %s, %s, %s, %b, %b)
ON CONFLICT (shard, layer, t0) DO UPDATE SET axis = excluded.axis, families = excluded.families, rows = excluded.rows,
    values = excluded.values"""

HEAT_ROWS = f"""
INSERT INTO catalog_heatrow (id, tenant_id, kind, "group", keyspace, family, told_at)
SELECT id, coalesce(tenant, '{_PLATFORM}'::uuid), kind, grp, nullif(ks, -1), nullif(fam, -1), at
FROM (SELECT %s::timestamptz AS at) AS t,
     unnest(%s::bigint[], %s::uuid[], %s::text[], %s::text[], %s::int[], %s::bigint[])
        AS u(id, tenant, kind, grp, ks, fam)
ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id, "group" = excluded."group", told_at = excluded.told_at
"""  # noqa: S608

AXIS = """
INSERT INTO catalog_heataxis (shard, version, at, rows, merged) VALUES (%s, %s, %s, %b, %b)
ON CONFLICT (shard) DO UPDATE SET version = excluded.version, at = excluded.at, rows = excluded.rows,
    merged = excluded.merged"""

FOLD_MARKS = """
INSERT INTO catalog_marksample (source, tier, layer, t0, used, peak, capacity, high, low)
SELECT source, tier, p.layer, p.start, (array_agg(used ORDER BY t0 DESC))[1], max(peak),
    (array_agg(capacity ORDER BY t0 DESC))[1], (array_agg(high ORDER BY t0 DESC))[1],
    (array_agg(low ORDER BY t0 DESC))[1]
FROM (SELECT %s::int2 AS layer, %s::int2 AS finer, %s::timestamptz AS start, %s::timestamptz AS stop) p
JOIN catalog_marksample m ON m.layer = p.finer AND m.t0 >= p.start AND m.t0 < p.stop
GROUP BY source, tier, p.layer, p.start
ON CONFLICT (source, tier, layer, t0) DO UPDATE SET used = excluded.used, peak = excluded.peak,
    capacity = excluded.capacity, high = excluded.high, low = excluded.low"""

FOLD_EVICTIONS = """
INSERT INTO catalog_eviction (source, tier, reason, layer, t0, blocks, bytes)
SELECT source, tier, reason, p.layer, p.start, sum(blocks), sum(bytes)
FROM (SELECT %s::int2 AS layer, %s::int2 AS finer, %s::timestamptz AS start, %s::timestamptz AS stop) p
JOIN catalog_eviction e ON e.layer = p.finer AND e.t0 >= p.start AND e.t0 < p.stop
GROUP BY source, tier, reason, p.layer, p.start
ON CONFLICT (source, tier, reason, layer, t0) DO UPDATE SET blocks = excluded.blocks, bytes = excluded.bytes"""

FOLD_USAGE = """
INSERT INTO catalog_usage (keyspace, source, tier, layer, t0, tenant_id, requests, prompt_tokens, hit_tokens, saved_ms,
    measured_requests)
SELECT keyspace, source, tier, p.layer, p.start, (array_agg(tenant_id))[1], sum(requests), sum(prompt_tokens),
    sum(hit_tokens), sum(saved_ms), sum(measured_requests)
FROM (SELECT %s::int2 AS layer, %s::int2 AS finer, %s::timestamptz AS start, %s::timestamptz AS stop) p
JOIN catalog_usage u ON u.layer = p.finer AND u.t0 >= p.start AND u.t0 < p.stop
GROUP BY keyspace, source, tier, p.layer, p.start
ON CONFLICT (keyspace, source, tier, layer, t0) DO UPDATE SET requests = excluded.requests,
    prompt_tokens = excluded.prompt_tokens, hit_tokens = excluded.hit_tokens, saved_ms = excluded.saved_ms,
    measured_requests = excluded.measured_requests"""

EXPIRE = tuple(
    f"DELETE FROM catalog_{table} WHERE layer = %s AND t0 < %s"  # noqa: S608
    for table in ("marksample", "eviction", "usage", "heatcolumn")
)

EXPIRE_ROWS = "DELETE FROM catalog_heatrow WHERE told_at < %s AND NOT id = ANY(%s)"
"""What a row stood for, once no column can name it any more; the rows of the axis stay."""
