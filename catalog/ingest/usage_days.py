"""Adds up what requests saved, by tenant, tier and day (UTC), in the commits that take the requests over.

So a day is the sum of its requests, whatever fails. What may be missing is written down as a gap: times when nobody
counted, or when a source may have lost what it had to tell. Called by `folding` and `admission`.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from catalog.models import UsageCover
from kvconsole.infra.sql import PLATFORM
from kvcore.events import Use
from kvcore.quotas import share

AWAY = timedelta(seconds=10)
"""A writer that begins within this after the last one has missed nothing: nodes keep what they were not answered."""
COVER_S = 2.0
WRITER = 0
"""Source of a gap of the writer itself."""
Rows = list[tuple[str, Sequence[Any]]]
_FIELDS = 7

DAYS = """
INSERT INTO catalog_usageday AS d (tenant_id, day, tier, requests, prompt_tokens, hit_tokens, hit_bytes, saved_us,
    measured_requests, unsized_requests)
SELECT * FROM unnest(%s::uuid[], %s::date[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant_id, day, tier) DO UPDATE SET requests = d.requests + excluded.requests,
    prompt_tokens = d.prompt_tokens + excluded.prompt_tokens, hit_tokens = d.hit_tokens + excluded.hit_tokens,
    hit_bytes = d.hit_bytes + excluded.hit_bytes, saved_us = d.saved_us + excluded.saved_us,
    measured_requests = d.measured_requests + excluded.measured_requests,
    unsized_requests = d.unsized_requests + excluded.unsized_requests"""
OPEN = f"""
INSERT INTO catalog_usagegap (tenant_id, source, since, until, reason) VALUES ('{PLATFORM}', %s, %s, %s, %s)
ON CONFLICT (tenant_id, source, since) DO UPDATE SET until = excluded.until, reason = excluded.reason"""  # noqa: S608
CLOSE = "UPDATE catalog_usagegap SET until = %s WHERE source = %s AND until IS NULL"
COVER = f"""
INSERT INTO catalog_usagecover (tenant_id, shard, since, upto) VALUES ('{PLATFORM}', %s, %s, %s)
ON CONFLICT (tenant_id, shard) DO UPDATE SET upto = excluded.upto"""  # noqa: S608


class UsageDays:
    """What has been counted since the last commit of one shard's writer."""

    def __init__(self, shard: int, when: datetime) -> None:
        self._shard = shard
        self._sums: dict[tuple[UUID, date, str], list[int]] = {}
        self._pending: Rows = []
        self._covered: datetime | None = None
        before = UsageCover.objects.filter(shard=shard).first()
        self._since = before.since if before else when
        if before and when - before.upto > AWAY:
            self._pending.append((OPEN, (WRITER, before.upto, when, "writer-away")))

    def use(self, tenant: UUID, item: Use, when: datetime, *, bytes_per_block: int, block_tokens: int) -> None:
        """One request read the cache.

        Args:
            tenant: whose request it was.
            item: what the node told of it.
            when: its day.
            bytes_per_block, block_tokens: of its blocks; 0 = not known.
        """
        day = when.astimezone(UTC).date()
        sized = block_tokens > 0 and bytes_per_block > 0
        saved = max(0, round(item.saved_ms * 1000))
        unsized = int(not sized and item.hit_tokens > 0)
        size = {t: n * bytes_per_block // block_tokens if sized else 0 for t, n in item.tiers.items()}
        parts = share(saved, item.tiers) if any(item.tiers.values()) else {}
        rest = item.hit_tokens - sum(item.tiers.values())
        whole = sum(size.values()) + (rest * bytes_per_block // block_tokens if sized and rest > 0 else 0)
        measured = int(item.measured)
        self._add(tenant, day, "", (1, item.prompt_tokens, item.hit_tokens, whole, saved, measured, unsized))
        for tier, tokens in item.tiers.items():
            if tokens:
                self._add(tenant, day, tier, (1, 0, tokens, size[tier], parts.get(tier, 0), measured, unsized))

    def _add(self, tenant: UUID, day: date, tier: str, values: Sequence[int]) -> None:
        sums = self._sums.setdefault((tenant, day, tier), [0] * _FIELDS)
        for i, value in enumerate(values):
            sums[i] += value

    def gap(self, source: int, since: float | None, until: float | None, reason: str) -> None:
        """Requests of the source may be missing between these times (Unix seconds); `until` None = still."""
        end = None if until is None else _time(until)
        begin = _time(since) if since is not None else (end or self._since)
        self._pending.append((OPEN, (source, min(begin, end) if end else begin, end, reason[:32])))

    def back(self, source: int, now: float) -> None:
        """The source speaks again, and what it had to tell has come or is coming."""
        self._pending.append((CLOSE, (_time(now), source)))

    def rows(self, when: datetime) -> Rows:
        """Statements for the commit; what they write is forgotten here."""
        out, self._pending = self._pending, []
        if self._sums:
            keys = list(self._sums)
            columns = [[key[i] for key in keys] for i in range(3)]
            out.append((DAYS, [*columns, *([self._sums[key][i] for key in keys] for i in range(_FIELDS))]))
            self._sums = {}
        if self._covered is None or (when - self._covered).total_seconds() >= COVER_S:
            self._covered = when
            out.append((COVER, (self._shard, self._since, when)))
        return out


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
