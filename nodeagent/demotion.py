"""Decides how tiers are relieved: which copies leave, which go one tier down, and the reason told for each.

Reasons: `watermark` (the last tier that would take it, or still on a colder one), `value` (not worth its way down),
`ttl`, `quota`, `epoch` (fenced). Works in slices, so that a request never waits for a whole relief.
"""

from kvcore.blocks import BlockState, Tier
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run
from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta, TierDown, TierFull, TierReset

SLICE_BYTES = 4 * 2**20
"""Relieved at once while the lock is held; a quarter of it where every byte has to reach a medium."""
Victim = tuple[Run, Copy]


class Relief:
    """Evicts and demotes for a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        pool.relief = self
        self.quotas: dict[tuple[bytes, Tier], int] = {}
        """Bytes a namespace may use on a tier; absent = no limit."""

    def make_room(self, tier: Tier, size_bytes: int, now: float) -> bool:
        """Whether the tier has room for the bytes now; colder tiers take what is worth it."""
        store = self._pool.tiers[tier]
        if size_bytes > store.capacity_bytes:
            return False
        while store.used_bytes + size_bytes > store.capacity_bytes:
            victims = list(self._pool.queues[tier].pop(store.used_bytes + size_bytes - store.capacity_bytes))
            if not victims:
                return False
            self.evict(tier, victims, now)
        return True

    def work(self, now: float) -> bool:
        """One slice of relief on every tier above its high mark, coldest first; True if more is to be done."""
        pool, more = self._pool, False
        with pool.lock:
            for tier in reversed(pool.order):
                if not pool.up(tier, now):
                    continue
                store = pool.tiers[tier]
                excess = pool.gates[tier].excess(store.used_bytes)
                if excess:
                    victims = list(pool.queues[tier].pop(min(excess, self._slice(tier, now))))
                    self.evict(tier, victims, now)
                    more = more or bool(victims and pool.gates[tier].excess(store.used_bytes))
            pool.teller.flush()
        return more

    def evict(self, tier: Tier, victims: list[Victim], now: float) -> None:
        """Takes the copies off the tier: down where that is worth it, else away, each with its reason."""
        pool, down = self._pool, self._below(tier, now)
        ttl = pool.configs[tier].ttl_seconds
        going: list[Victim] = []
        for run, copy in victims:
            if run.space.fenced:
                pool.drop(run, tier, "epoch")
            elif ttl and now - run.last > ttl:
                pool.drop(run, tier, "ttl")
            elif down is None or any(t in run.copies for t in pool.order[pool.order.index(tier) + 1 :]):
                pool.drop(run, tier, "watermark")
            elif not pool.admission.worth(run, down):
                pool.drop(run, tier, "value")
            else:
                going.append((run, copy))
        if going and down is not None:
            self._demote(tier, down, going, now)

    def _slice(self, tier: Tier, now: float) -> int:
        down = self._below(tier, now)
        return SLICE_BYTES // 4 if down is not None and self._pool.tiers[down].persistent else SLICE_BYTES

    def _below(self, tier: Tier, now: float) -> Tier | None:
        order = self._pool.order
        return next((t for t in order[order.index(tier) + 1 :] if self._pool.up(t, now)), None)

    def _demote(self, tier: Tier, down: Tier, going: list[Victim], now: float) -> None:
        pool = self._pool
        for _, copy in going:
            copy.to(BlockState.EVICTING)
        ready: list[tuple[Run, Copy, bytes]] = []
        for run, copy in going:
            try:
                ready.append((run, copy, pool.tiers[tier].read(run.meta, copy.place)))
            except BlockRefused as e:
                pool.refused_blocks[e.code] += 1
                pool.teller.quarantine(run, tier)
                pool.drop(run, tier, "engine")
            except LeaseOver:
                pool.drop(run, tier, "watermark")
        places = self._store(down, [(run.meta, raw) for run, _, raw in ready], now)
        if places is None:
            for run, _, _ in ready:
                pool.drop(run, tier, "watermark")
            return
        for (run, copy, _), place in zip(ready, places, strict=True):
            new = Copy(now)
            new.to(BlockState.TRANSFERRING)
            new.place = place
            new.to(BlockState.COMMITTED)
            pool.attach(run, down, new)
            pool.detach(run, tier)
            copy.to(BlockState.FREE)
            pool.teller.move(run, tier, down)
        pool.tiers[tier].free([(run.meta, copy.place) for run, copy, _ in ready])

    def _store(self, down: Tier, runs: list[tuple[RunMeta, bytes]], now: float) -> list[object] | None:
        """The places on the colder tier, None if it cannot take them now."""
        pool = self._pool
        if not self.make_room(down, sum(meta.size_bytes for meta, _ in runs), now):
            return None
        try:
            return pool.tiers[down].write(runs)
        except (TierFull, LeaseOver):
            return None
        except TierDown:
            pool.down(down)
        except TierReset as e:
            pool.reset(down, e.boot)
        return None

    def expire(self, now: float) -> int:
        """Drops copies that were not used for their tier's ttl, and what is over a quota. Answers runs."""
        pool, count = self._pool, 0
        with pool.lock:
            for tier in pool.order:
                ttl = pool.configs[tier].ttl_seconds
                if ttl:
                    for run in [r for r in pool.runs.values() if tier in r.copies and now - r.last > ttl]:
                        if run.copies[tier].state is BlockState.COMMITTED:
                            pool.drop(run, tier, "ttl")
                            count += 1
            for (ns, tier), limit in self.quotas.items():
                count += self._trim(ns, tier, limit)
            pool.teller.flush()
        return count

    def _trim(self, ns: bytes, tier: Tier, limit: int) -> int:
        """Drops the least valuable copies of a namespace until it is within its quota on the tier."""
        pool, count = self._pool, 0
        mine = [r for r in pool.runs.values() if r.space.ns == ns and tier in r.copies]
        used = sum(r.meta.size_bytes for r in mine)
        for run in sorted(mine, key=lambda r: (pool.policy.rank(r), -r.depth)) if used > limit else ():
            if used <= limit:
                break
            if run.copies[tier].state is BlockState.COMMITTED:
                used -= run.meta.size_bytes
                pool.drop(run, tier, "quota")
                count += 1
        return count
