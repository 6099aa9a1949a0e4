"""Keeps what the rows of the heat map hold and did since the last column: blocks by owner and family, sums of the rest.

Called by `catalog.ingest.pictures` through `Cells`. Work and memory are by family, never by block.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from catalog.index.steps import NO_FAMILY
from catalog.models.pictures import METRICS

WIDTH = len(METRICS)
HITS, MISSES, STORES, EVICTIONS, SAVED = range(1, WIDTH)

Group = tuple[UUID | None, str]
"""Tenant, model and epoch: what is never merged with another."""


class Row(NamedTuple):
    """What a row stands for."""

    kind: str
    keyspace: int
    family: int
    tenant: UUID | None
    group: str

    @property
    def at(self) -> Group:
        """Where it is merged when it is not drawn."""
        return self.tenant, self.group


def row_id(*parts: object) -> int:
    """A positive 63-bit number that is the same for the same row after every restart."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


class Contents:
    """The rows of one shard's map, what they hold, and the sums of the open column."""

    def __init__(self, shard: int, families_max: int) -> None:
        self.shard, self.families_max = shard, families_max
        self.groups: dict[int, Group] = {}
        self.ids: dict[tuple[int, int | None], int] = {}
        self.rows: dict[int, Row] = {}
        self.owners: dict[tuple[int, str, int], dict[int, int]] = {}
        self.left: dict[tuple[int, str, int], int] = {}
        self.came: dict[tuple[int, str, int], dict[int, int]] = {}
        self.total: dict[int, int] = {}
        self.group_total: Counter[Group] = Counter()
        self.group_rows: Counter[Group] = Counter()
        """Rows of a group that hold something."""
        self.empty: set[int] = set()
        self.seeded = False
        self.sources: dict[int, set[int]] = {}
        self.fresh: dict[int, list[float]] = {}
        self.open: dict[int, list[float]] = {}
        self.loaded: set[int] = set()
        """Rows that came with what they hold and have no rank yet."""
        self.untold: set[int] = set()
        """Rows that stand for something else than was told."""

    # ---------------------------------------------------------------- what happened
    def name(self, keyspace: int, tenant: UUID, group: str) -> None:
        """Rows of the keyspace belong to this tenant and group."""
        if self.groups.get(keyspace) == (tenant, group):
            return
        self.groups[keyspace] = (tenant, group)
        for row in [r for at, r in self.ids.items() if at[0] == keyspace]:
            held, before = self.total.get(row, 0), self.rows[row]
            self._total(row, -held)
            self.rows[row] = before._replace(tenant=tenant, group=group)
            self._total(row, held)
            self.untold.add(row)

    def seed(self, contents: Iterable[tuple[int, str, int, int, int]]) -> None:
        """These contents are all there is, whatever was noted before."""
        self.owners, self.total, self.group_total, self.group_rows = {}, {}, Counter(), Counter()
        for source, tier, keyspace, family, blocks in contents:
            self._hold((source, tier, keyspace), self._row(keyspace, family), blocks)
            self.sources.setdefault(keyspace, set()).add(source)
        self.loaded = {r for r in self.total if self.rows[r].kind != "other"}
        self.seeded = True

    def added(self, source: int, tier: str, keyspace: int, family: int, blocks: int) -> None:
        """Blocks came."""
        row = self._row(keyspace, family)
        self._came((source, tier, keyspace), row, blocks)
        self._sums(row)[STORES] += blocks
        self.sources.setdefault(keyspace, set()).add(source)

    def moved(self, source: int, tier: str, to: str, keyspace: int, family: int, blocks: int) -> None:
        """Blocks went from one tier of a source to another: nothing was stored or evicted."""
        row = self._row(keyspace, family)
        self._hold((source, tier, keyspace), row, -blocks)
        self._came((source, to, keyspace), row, blocks)

    def dropped(self, source: int, tier: str, keyspace: int, family: int, blocks: int, *, evicted: bool) -> None:
        """Blocks went; `NO_FAMILY` = with their whole owner, so that families are not told."""
        at = (source, tier, keyspace)
        if family == NO_FAMILY:
            self.left[at] = self.left.get(at, 0) + blocks
            return
        row = self._row(keyspace, family)
        self._hold(at, row, -blocks)
        if evicted:
            self._sums(row)[EVICTIONS] += blocks

    def settle(self) -> None:
        """Owners that left a keyspace hold what came afterwards in the same batch.

        The batch tells sums, not an order. Whoever leaves leaves whole, so what stays is of what this batch brought;
        only if some of that came before is it a guess which, and never how much.
        """
        for at, blocks in self.left.items():
            held = self.owners.pop(at, {})
            stays = max(0, sum(held.values()) - blocks)
            came = self.came.get(at, {})
            for row, count in held.items():
                keep = min(came.get(row, 0), stays)
                stays -= keep
                self._total(row, keep - count)
                if keep:
                    self.owners.setdefault(at, {})[row] = keep
        self.left, self.came = {}, {}

    def used(self, source: int, keyspace: int, family: int | None, hits: int, misses: int, saved_ms: float) -> None:
        """A request read tokens of a family and computed the rest; without a hit it counts for the row `new`."""
        sums = self._sums(self._row(keyspace, family))
        sums[HITS] += hits
        sums[MISSES] += misses
        sums[SAVED] += saved_ms
        self.sources.setdefault(keyspace, set()).add(source)

    def merge(self) -> None:
        """What was noted since the last commit belongs to the open column."""
        for row, sums in self.fresh.items():
            have = self.open.get(row)
            self.open[row] = sums if have is None else [a + b for a, b in zip(have, sums, strict=True)]
        self.fresh = {}

    def _sums(self, row: int) -> list[float]:
        sums = self.fresh.get(row)
        if sums is None:
            sums = self.fresh[row] = [0.0] * WIDTH
        return sums

    def _came(self, at: tuple[int, str, int], row: int, blocks: int) -> None:
        came = self.came.setdefault(at, {})
        came[row] = came.get(row, 0) + blocks
        self._hold(at, row, blocks)

    def _hold(self, at: tuple[int, str, int], row: int, blocks: int) -> None:
        held = self.owners.setdefault(at, {})
        left = held.get(row, 0) + blocks
        if left:
            held[row] = left
        else:
            held.pop(row, None)
        self._total(row, blocks)

    def _total(self, row: int, blocks: int) -> None:
        if not blocks:
            return
        before = self.total.get(row, 0)
        left, group = before + blocks, self.rows[row].at
        self.group_total[group] += blocks
        if left:
            self.total[row] = left
        else:
            del self.total[row]
            self.empty.add(row)
            self.group_rows[group] -= 1
        if not before:
            self.empty.discard(row)
            self.group_rows[group] += 1

    def _row(self, keyspace: int, family: int | None) -> int:
        row = self.ids.get((keyspace, family))
        if row is None:
            tenant, group = self.groups.get(keyspace, (None, ""))
            if len(self.ids) >= self.families_max:
                return self._other(tenant, group)
            kind = "new" if family is None else "family"
            row = self.ids[keyspace, family] = row_id(self.shard, keyspace, family)
            self.rows[row] = Row(kind, keyspace, -1 if family is None else family, tenant, group)
            self.empty.add(row)
        return row

    def _other(self, tenant: UUID | None, group: str) -> int:
        row = row_id(self.shard, "other", str(tenant), group)
        self.rows[row] = Row("other", -1, -1, tenant, group)
        return row
