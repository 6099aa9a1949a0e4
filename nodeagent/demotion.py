"""Decides how tiers are relieved: which copies leave, which go one tier down, and the reason told for each.

Reasons: `watermark` (the last tier that would take it, or still on a colder one), `value` (not worth its way down),
`ttl`, `quota`, `epoch` (fenced). Works in slices, so that a request never waits for a whole relief.
"""

from collections.abc import Mapping
from typing import Any

from kvcore.blocks import BlockState, Tier
from nodeagent.budget import ERASING, STALE, Policy
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run, Space
from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta, TierDown, TierFull, TierReset

SLICE_BYTES = 4 * 2**20
"""Relieved at once while the lock is held; a quarter of it where every byte has to reach a medium."""
_CLOSED = {STALE: "epoch", ERASING: "delete"}
"""Reason told for a copy whose next tier takes nothing of its space, by why."""
Victim = tuple[Run, Copy]


class Relief:
    """Evicts and demotes for a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        pool.relief = self
        self.version = 0
        """Of the allowances that were taken last."""

    def make_room(self, tier: Tier, size_bytes: int, now: float, tenant: str = "") -> bool:
        """Whether the tier has room for the tenant's bytes now; colder tiers take what is worth it.

        Nobody falls below what it is guaranteed for that, and arenas are left alone.
        """
        store, budget, queue = self._pool.tiers[tier], self._pool.budget, self._pool.queues[tier]
        if size_bytes > budget.most(tenant, tier, store.capacity_bytes):
            return False  # nobody's blocks leave for what cannot fit
        while (over := budget.over(tenant, tier, store.used_bytes, store.capacity_bytes, size_bytes)) > 0:
            own = budget.pressed(tenant, tier, store.used_bytes, store.capacity_bytes)
            victims = list(queue.pop(over, asker=tenant) if own is None else queue.own(own, over))
            if not victims:
                return False
            self.evict(tier, victims, now)
        return True

    def make_own_room(self, space: Space, tier: Tier, blocks: int, now: float) -> None:
        """The tenant's own least value has left the tier: so many blocks more are within its limit, if they can be."""
        over = self._pool.budget.excess(space.tenant, tier, blocks * space.block_bytes)
        self.evict(tier, list(self._pool.queues[tier].own(space.tenant, over)), now, reason="quota")

    def work(self, now: float) -> bool:
        """One slice of relief on every tier above its high mark, coldest first; True if more is to be done."""
        pool, more = self._pool, False
        with pool.lock:
            for tier in reversed(pool.order):
                if not pool.up(tier, now):
                    continue
                excess = pool.excess(tier)
                if excess:
                    victims = list(pool.queues[tier].pop(min(excess, self._slice(tier, now))))
                    self.evict(tier, victims, now)
                    more = more or bool(victims and pool.excess(tier))
            pool.teller.flush()
        return more

    def evict(self, tier: Tier, victims: list[Victim], now: float, *, reason: str = "watermark") -> None:
        """Takes the copies off the tier: down where that is worth it and allowed, else away, each with its reason."""
        pool = self._pool
        ttl = pool.configs[tier].ttl_seconds
        colder = pool.order[pool.order.index(tier) + 1 :]
        going: dict[tuple[Tier, str], list[Victim]] = {}
        for run, copy in victims:
            if run.space.fenced:
                pool.drop(run, tier, "epoch")
            elif ttl and now - run.last > ttl:
                pool.drop(run, tier, "ttl")
            elif any(t in run.copies for t in colder) or (down := self._down(run, tier, now)) is None:
                pool.drop(run, tier, reason)
            elif not pool.admission.worth(run, down):
                pool.drop(run, tier, "value")
            else:
                going.setdefault((down, run.space.tenant), []).append((run, copy))
        for (down, tenant), runs in going.items():
            for part in self._parts(down, tenant, runs):
                self._demote(tier, down, part, now, reason=reason)

    def _most(self, tier: Tier, tenant: str) -> int:
        return self._pool.budget.most(tenant, tier, self._pool.tiers[tier].capacity_bytes)

    def _parts(self, down: Tier, tenant: str, runs: list[Victim]) -> list[list[Victim]]:
        """The runs in order, cut so that the tier below has room for each part: it may be smaller than a slice."""
        most, size = self._most(down, tenant), 0
        parts: list[list[Victim]] = [[]]
        for run, copy in runs:
            size += run.meta.size_bytes
            if parts[-1] and size > most:
                parts.append([])
                size = run.meta.size_bytes
            parts[-1].append((run, copy))
        return parts

    def _down(self, run: Run, tier: Tier, now: float) -> Tier | None:
        """The next tier below that may hold the run and is large enough for one; those that may not count a refusal."""
        pool = self._pool
        for down in pool.order[pool.order.index(tier) + 1 :]:
            if not pool.up(down, now):
                continue
            why = pool.budget.barred(run.space.ns, down)
            if why:
                pool.budget.refuse(run.space.ns, down, why, run.blocks)
            elif run.meta.size_bytes <= self._most(down, run.space.tenant):
                return down
        return None

    def _slice(self, tier: Tier, now: float) -> int:
        down = self._below(tier, now)
        return SLICE_BYTES // 4 if down is not None and self._pool.tiers[down].persistent else SLICE_BYTES

    def _below(self, tier: Tier, now: float) -> Tier | None:
        order = self._pool.order
        return next((t for t in order[order.index(tier) + 1 :] if self._pool.up(t, now)), None)

    def _demote(
        self, tier: Tier, down: Tier, going: list[Victim], now: float, *, reason: str = "watermark"
    ) -> None:  # fmt: skip
        """Runs of one tenant go one tier down; what that does not take goes away."""
        pool = self._pool
        for _, copy in going:
            copy.to(BlockState.EVICTING)
        ready: list[tuple[Run, Copy, bytes]] = []
        for run, copy in going:
            try:
                raw = pool.tiers[tier].read(run.meta, copy.place)
                if pool.reserve(run.space, down, run.blocks, now):
                    ready.append((run, copy, raw))
                else:
                    pool.drop(run, tier, _CLOSED.get(pool.closed(run.space, down), "quota"))
            except BlockRefused as e:
                pool.refused_blocks[e.code] += 1
                pool.teller.quarantine(run, tier)
                pool.drop(run, tier, "engine")
            except LeaseOver:
                pool.drop(run, tier, reason)
        if not ready:
            return
        places = self._store(down, [(run.meta, raw) for run, _, raw in ready], now, ready[0][0].space.tenant)
        if places is None:
            for run, _, _ in ready:
                pool.abort(run.space, down, run.blocks)
                pool.drop(run, tier, reason)
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

    def _store(self, down: Tier, runs: list[tuple[RunMeta, bytes]], now: float, tenant: str) -> list[object] | None:
        """The places on the colder tier, None if it cannot take them now."""
        pool = self._pool
        if not pool.up(down, now):  # it went with an earlier part
            return None
        if not self.make_room(down, sum(meta.size_bytes for meta, _ in runs), now, tenant):
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
            pool.budget.unpin(now)
            for tier in pool.order:
                ttl = pool.configs[tier].ttl_seconds
                if ttl:
                    for run in [r for r in pool.runs.values() if tier in r.copies and now - r.last > ttl]:
                        if run.copies[tier].state is BlockState.COMMITTED and not pool.budget.pinned(run):
                            pool.drop(run, tier, "ttl")
                            count += 1
            count += self._trim() + self._bar()
            pool.teller.flush()
        return count

    def _trim(self) -> int:
        """Drops the least valuable copies of tenants that are above their limits. Answers runs."""
        pool, count = self._pool, 0
        for tenant, tiers in pool.budget.shares.items():
            for tier in [t for t in tiers if t in pool.tiers]:
                over = pool.budget.excess(tenant, tier)
                for run, _ in list(pool.queues[tier].own(tenant, over)) if over else ():
                    pool.drop(run, tier, "quota")
                    count += 1
        return count

    def _bar(self) -> int:
        """Drops copies that lie on tiers that bar them. Answers runs."""
        pool, count = self._pool, 0
        bars = {ns: policy.barred for ns, policy in pool.budget.policies.items() if policy.barred}
        for run in list(pool.runs.values()) if bars else ():
            barred = bars.get(run.space.ns, {})
            for tier in [t for t in run.copies if t.value in barred]:
                if run.copies[tier].state is BlockState.COMMITTED:
                    pool.drop(run, tier, "delete")
                    count += 1
        return count

    # What the console says

    def learn(self, policies: Mapping[bytes, Policy]) -> None:
        """The policies hold, and what they bar has left."""
        pool = self._pool
        with pool.lock:
            changed = pool.budget.learn(policies)
            spaces = [s for s in pool.spaces.values() if s.ns in changed]
            moved = [s for s in spaces if s.tenant != pool.budget.tenant(s.ns)]
            for space in moved:
                pool.budget.move(space, pool.budget.tenant(space.ns))
            if moved:
                self._regroup()
            if spaces:
                self._bar()
                pool.teller.flush()

    def allow(self, allowances: Mapping[str, Any]) -> bool:
        """The allowances hold. False: something is above them and cannot leave yet, because it is in use."""
        pool = self._pool
        with pool.lock:
            version = allowances.get("version")
            if not isinstance(version, int) or version < self.version:
                return False
            before = pool.budget.shares.keys(), pool.budget.arenas
            pool.budget.allow(allowances)
            self.version = version
            if before != (pool.budget.shares.keys(), pool.budget.arenas):
                self._regroup()
            self._trim()
            pool.teller.flush()
            return not any(
                pool.budget.excess(tenant, tier) for tenant, tiers in pool.budget.shares.items() for tier in tiers
            )

    def _regroup(self) -> None:
        for queue in self._pool.queues.values():
            queue.regroup(self._pool.runs.values())
