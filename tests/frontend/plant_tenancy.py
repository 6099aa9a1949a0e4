"""Plants what the writer would have counted of tenants: what they hold of their quotas, and use of a week."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg

from kvconsole.infra.sql import PLATFORM, uuid7
from tenants.slugs import slug_skeleton
from tests.frontend.plant import AHEAD, TIERS, _insert

MIB = 1 << 20
QUOTAS = {"hbm": (64 * MIB, 16 * MIB, 8 * MIB), "dram": (256 * MIB, 0, 0), "ssd": (1024 * MIB, 128 * MIB, 128 * MIB)}
"""Tier → (limit, guarantee, what it is worth)."""
HELD = {"hbm": 64 * MIB, "dram": 240 * MIB, "ssd": 100 * MIB, "remote": 5 * MIB}


def counted(cx: psycopg.Connection, now: datetime, days: int = 5) -> None:
    """The writer has counted for so many days, up to now."""
    _insert(cx, "catalog_usagecover", tenant_id=PLATFORM, shard=0, since=now - timedelta(days=days), upto=now + AHEAD)


def quotas(cx: psycopg.Connection, tenant: UUID, now: datetime) -> None:
    """hbm is used up and its guarantee is worth half, dram is nearly full, remote has no limit."""
    cx.execute("DELETE FROM catalog_quota WHERE tenant_id = %s", (tenant,))
    for tier, (limit, guaranteed, worth) in QUOTAS.items():
        _insert(
            cx, "catalog_quota", tenant_id=tenant, tier=tier, limit_bytes=limit, guaranteed_bytes=guaranteed,
            effective_bytes=worth,
        )  # fmt: skip
    for tier, size in HELD.items():
        _insert(cx, "catalog_tenanttier", tenant_id=tenant, tier=tier, blocks=size // 16384, bytes=size, at=now + AHEAD)


def usage(cx: psycopg.Connection, tenant: UUID, now: datetime, days: int = 6) -> None:
    """Each day 1,000 requests of 2,048 prompt tokens; three quarters of them were hits, in two tiers alike."""
    for back in range(days):
        day = (now.astimezone(UTC) - timedelta(days=back)).date()
        whole = {
            "requests": 1000, "prompt_tokens": 2_048_000, "hit_tokens": 1_536_000, "hit_bytes": 1_536_000 * 1024,
            "saved_us": 61_000_000, "measured_requests": 1000, "unsized_requests": 0,
        }  # fmt: skip
        _insert(cx, "catalog_usageday", tenant_id=tenant, day=day, tier="", **whole)
        half = {name: value // 2 for name, value in whole.items()}
        for tier in list(TIERS)[:2]:
            _insert(cx, "catalog_usageday", tenant_id=tenant, day=day, tier=tier, **half)


def epochs(cx: psycopg.Connection, now: datetime) -> None:
    """The old epoch of the model that has a roll-out loses blocks as was forecast, for twenty minutes."""
    found = cx.execute("SELECT tenant_id, model_id FROM tenants_rollout").fetchall()
    for tenant, model in found:
        cx.execute(
            "UPDATE tenants_rollout SET changed_at = %s, held = %s WHERE model_id = %s",
            (now - timedelta(minutes=20), f'{{"1": {300 * MIB}}}', model),
        )
        for minute in range(20):
            t0 = (now - timedelta(minutes=20 - minute)).replace(second=0, microsecond=0)
            for epoch, size in ((1, (300 - minute) * MIB), (2, 2 * minute * MIB)):
                _insert(
                    cx, "tenants_epochbytes", tenant_id=tenant, model_id=model, epoch=epoch, t0=t0, size_bytes=size,
                    blocks=size // 16384, stale_hit_tokens=0,
                )  # fmt: skip


def tenancy(dsn: str, now: datetime | None = None) -> dict[str, UUID]:
    """Quotas and a week of use of `acme-code`; nothing of anybody else. Answers the tenants' ids."""
    now = now or datetime.now(UTC)
    with psycopg.connect(dsn, autocommit=True) as cx:
        found = dict(cx.execute("SELECT slug, id FROM tenants_tenant").fetchall())
        counted(cx, now)
        quotas(cx, found["acme-code"], now)
        usage(cx, found["acme-code"], now)
        epochs(cx, now)
    return found


def alone(dsn: str) -> None:
    """A tenant that may have nodes of its own and holds nothing."""
    with psycopg.connect(dsn, autocommit=True) as cx:
        _insert(
            cx, "tenants_tenant", id=uuid7(), slug="delta-legal", lookalike=slug_skeleton("delta-legal"),
            name="Delta Legal", residency="", isolation="node", classes=[], erasure_scope="label", retention="{}",
            state="active", created_at=datetime.now(UTC),
        )  # fmt: skip
