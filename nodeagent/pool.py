"""Decides what this node holds: the one index of runs over all tiers, and every way a copy comes, is read or goes.

Everything happens under `lock` and is told to the outboxes before it is released; so at any frame, what was told and
what is there are the same. Called by engines (look-up, commit) and by `agent` (upkeep); demotion is in `demotion`.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kvcore.blocks import BlockState, Tier
from kvcore.events import Item, Mark
from kvcore.keys import KEY_BYTES
from kvcore.messages import DigestLine
from kvcore.quotas import Verdict
from kvcore.residency import QUOTA
from nodeagent.budget import ERASING, STALE, Budget
from nodeagent.config import TierConfig
from nodeagent.lines import Lines
from nodeagent.outbox import Outbox
from nodeagent.runs import Copy, Run, Space
from nodeagent.telling import Teller
from nodeagent.tiers.base import (
    BlockRefused,
    LeaseOver,
    Look,
    RunMeta,
    Stored,
    TierDown,
    TierFull,
    TierReset,
    TierStore,
)
from nodeagent.tiers.memory import MemoryTier
from nodeagent.watermarks import REUSE_FLOOR, Admission, Gate, Policy

REMOTE_PAUSE_SECONDS = 5.0
"""How long a medium that did not answer is left alone, so that it cannot hold up requests."""


class Room(Protocol):
    """What makes room; `nodeagent.demotion.Relief` puts itself here."""

    def make_room(self, tier: Tier, size_bytes: int, now: float, tenant: str = "") -> bool:
        """Whether the tier has room for the tenant's bytes now."""
        ...

    def make_own_room(self, space: Space, tier: Tier, blocks: int, now: float) -> None:
        """The tenant's own least value has left the tier: so many blocks more are within its limit, if they can be."""
        ...


class Pool:
    """Runs and their copies. `tiers` in order from hottest to coldest; the first one is where blocks are produced."""

    def __init__(
        self,
        tiers: Sequence[TierStore],
        configs: dict[Tier, TierConfig],
        outboxes: dict[Tier, Outbox],
        policy: Policy,
        *,
        is_fenced: Callable[[bytes, int], bool],
        budget: Budget,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lock = threading.RLock()
        self.tiers = {t.name: t for t in tiers}
        self.order = [t.name for t in tiers]
        self.configs, self.outboxes, self.policy, self.budget = configs, outboxes, policy, budget
        self.gates = {n: Gate(t.capacity_bytes, configs[n].high, configs[n].low) for n, t in self.tiers.items()}
        self.queues = {n: Lines(n, policy, budget) for n in self.tiers}
        self.admission = Admission(policy)
        self.teller = Teller(outboxes)
        self.index: dict[bytes, Run] = {}
        self.runs: dict[int, Run] = {}
        self.spaces: dict[tuple[bytes, int, int], Space] = {}
        self.dropped: Counter[tuple[Tier, str]] = Counter()
        """Blocks per tier and reason since the start."""
        self.refused_blocks: Counter[str] = Counter()
        """Failed checks by code since the start."""
        self.down_until: dict[Tier, float] = {}
        self.on_reset: Callable[[Tier, str], None] = lambda tier, boot: None
        self.on_cleared: Callable[[Tier, list[Stored]], None] = lambda tier, fenced: None
        self.relief: Room
        self.erasing: list[tuple[Tier, Callable[[Space], bool]]] = []
        """Spaces of which a tier takes nothing now."""
        self.cleared: Counter[Tier] = Counter()
        """Blocks that were fenced when their tier was found again, and were erased before anything was told."""
        self.clock, self._is_fenced = clock, is_fenced
        self._version = time.time_ns()

    # What is here

    def space(self, ns: bytes, gen: int, group: int, *, block_tokens: int, block_bytes: int) -> Space:
        """The space, made if it is new."""
        key = ns, gen, group
        if key not in self.spaces:
            self.spaces[key] = Space(ns, gen, group, block_tokens=block_tokens, block_bytes=block_bytes)
            self.spaces[key].fenced = self._is_fenced(ns, gen)
            self.spaces[key].tenant = self.budget.tenant(ns)
        return self.spaces[key]

    def meta(self, space: Space, *, depth: int, parent: bytes | None, keys: bytes) -> RunMeta:
        """What a new run will be; its version was never used before on this node."""
        self._version += 1
        return RunMeta(
            space.ns, space.gen, space.group, depth, parent, keys, self._version, space.block_tokens, space.block_bytes
        )

    def up(self, tier: Tier, now: float) -> bool:
        """Whether the tier exists here and answered lately."""
        return tier in self.tiers and self.down_until.get(tier, 0.0) <= now

    def attach(self, run: Run, tier: Tier, copy: Copy) -> None:
        """Makes a committed copy part of the index. It was charged before, see `reserve`."""
        if not run.copies:
            self.runs[run.meta.version] = run
            keys = run.keys
            for at in range(0, len(keys), KEY_BYTES):
                self.index[keys[at : at + KEY_BYTES]] = run
        run.copies[tier] = copy
        run.space.count(tier, run, +1)
        self.budget.store(run.space, tier, run.blocks)
        self.queues[tier].push(run, copy)

    def detach(self, run: Run, tier: Tier) -> Copy:
        """Takes a copy out of the index; a run without copies is forgotten."""
        copy = run.copies.pop(tier)
        run.space.count(tier, run, -1)
        self.budget.store(run.space, tier, -run.blocks)
        self.budget.charge(run.space, tier, -run.blocks)
        if not run.copies:
            del self.runs[run.meta.version]
            keys = run.keys
            for at in range(0, len(keys), KEY_BYTES):
                key = keys[at : at + KEY_BYTES]
                if self.index.get(key) is run:
                    del self.index[key]
        return copy

    def drop(self, run: Run, tier: Tier, reason: str) -> None:
        """Frees the run's copy on the tier and tells why."""
        copy = self.detach(run, tier)
        copy.to(BlockState.FREE, told=True)
        self.teller.drop(run, tier, reason)
        self._free(tier, [(run.meta, copy.place)])
        self.dropped[tier, reason] += run.blocks
        if not run.copies:
            self.admission.forget(run)

    def _free(self, tier: Tier, places: list[tuple[RunMeta, object]]) -> None:
        try:
            self.tiers[tier].free(places)
        except TierDown:
            self.down(tier)  # the values are destroyed: what is left there cannot be read
        except TierReset as e:
            self.reset(tier, e.boot)

    # How blocks come

    def reserve(self, space: Space, tier: Tier, blocks: int, now: float) -> bool:
        """Whether the tenant may have so many more blocks there; they are charged then, until they go or `abort`.

        Above its limit the tenant's own lowest value makes room, nobody else's. What is refused is counted.
        """
        budget = self.budget
        if why := self.closed(space, tier) or budget.barred(space.ns, tier):
            budget.refuse(space.ns, tier, why, blocks)
            return False
        if budget.verdict(space, tier, blocks) is Verdict.EVICT:
            self.relief.make_own_room(space, tier, blocks, now)
        if budget.verdict(space, tier, blocks) is not Verdict.FITS:
            budget.refuse(space.ns, tier, QUOTA, blocks)
            return False
        budget.charge(space, tier, blocks)
        return True

    def closed(self, space: Space, tier: Tier) -> str:
        """Why the tier takes nothing of the space whatever policy says, "" if it does."""
        if space.fenced or self._is_fenced(space.ns, space.gen):
            return STALE
        return ERASING if any(t is tier and covers(space) for t, covers in self.erasing) else ""

    def abort(self, space: Space, tier: Tier, blocks: int) -> None:
        """A reservation came to nothing: what was charged for it is given back."""
        self.budget.charge(space, tier, -blocks)

    def adopt(self, tier: Tier, now: float) -> int:
        """Takes over what a persistent tier still holds from an earlier process, and tells it. Answers runs.

        What is fenced by now is erased first and never told.
        """
        count, fenced, stored = 0, list[Stored](), list[Stored]()
        for x in self.tiers[tier].stored():
            (fenced if self._is_fenced(x.meta.ns, x.meta.gen) else stored).append(x)
        if fenced:
            self.on_cleared(tier, fenced)
            self.tiers[tier].erase(fenced, Look())
            self.cleared[tier] += sum(x.meta.blocks for x in fenced)
        for meta, place in stored:
            self._version = max(self._version, meta.version)
            run = self._run_of(meta, now)
            if run is None or tier in run.copies:
                self._free(tier, [(meta, place)])  # the same blocks twice: one copy is enough
                continue
            copy = Copy(now)
            copy.place = place
            copy.to(BlockState.COMMITTED)
            self.budget.charge(run.space, tier, run.blocks)
            self.attach(run, tier, copy)
            self.teller.add(run, tier)
            count += 1
        self.teller.flush()
        return count

    def _run_of(self, meta: RunMeta, now: float) -> Run | None:
        """The run a found object belongs to, new or known from another tier; None if other runs hold its blocks."""
        keys = meta.keys
        known = {self.index.get(keys[at : at + KEY_BYTES]) for at in range(0, len(keys), KEY_BYTES)}
        if known == {None}:
            tokens, size = meta.block_tokens, meta.block_bytes
            space = self.space(meta.ns, meta.gen, meta.group, block_tokens=tokens, block_bytes=size)
            run = Run(space, meta, now=now)
            run.heat = REUSE_FLOOR * self.policy.curve.run_ms(run)
            return run
        (one, *others) = known
        return one if one is not None and not others and one.meta.version == meta.version else None

    def commit(self, made: Sequence[tuple[Run, bytes]], now: float) -> bool:
        """Stores new runs of one space in the hottest tier and tells them.

        False if they may not be there or do not fit even after making room; then nothing is charged for them.
        """
        top, space = self.order[0], made[0][0].space
        blocks = sum(run.blocks for run, _ in made)
        if not self.reserve(space, top, blocks, now):
            return False
        copies = [Copy(now) for _ in made]
        try:
            if not self.relief.make_room(top, sum(run.meta.size_bytes for run, _ in made), now, space.tenant):
                self.abort(space, top, blocks)
                return False
            places = self.tiers[top].write([(run.meta, raw) for run, raw in made])
        except TierFull:  # blocks of another size than the arena's slots
            self.abort(space, top, blocks)
            return False
        for (run, _), copy, place in zip(made, copies, places, strict=True):
            copy.place = place
            copy.to(BlockState.COMMITTED)
            self.attach(run, top, copy)
            self.teller.add(run, top)
        return True

    # How blocks are read

    def use(self, run: Run, now: float) -> Tier | None:
        """The tier where a good copy was found; afterwards the run is in the hottest tier if it fits there.

        None if no copy could be used: those that failed a check are gone, those that cannot be read now stay.
        """
        for tier in self.order:
            copy = run.copies.get(tier)
            if copy is None or not self.up(tier, now):
                continue
            try:
                self._take_up(run, tier, copy, now)
                return tier
            except BlockRefused as e:
                self.refused_blocks[e.code] += 1
                self.teller.quarantine(run, tier)
                self.drop(run, tier, "engine")
            except LeaseOver:
                continue
            except TierDown:
                self.down(tier)
            except TierReset as e:
                self.reset(tier, e.boot)
        return None

    def hold(self, run: Run) -> Copy | None:
        """The run's copy in the hottest tier, held until released: it is not evicted meanwhile. None if it has none."""
        copy = run.copies.get(self.order[0])
        if copy is not None:
            copy.acquire()
        return copy

    def _take_up(self, run: Run, tier: Tier, copy: Copy, now: float) -> None:
        """Reads and checks the copy, and promotes it."""
        store, top = self.tiers[tier], self.order[0]
        if tier is top:
            if isinstance(store, MemoryTier):
                store.check(run.meta, copy.place)
            else:
                store.read(run.meta, copy.place)
            return
        raw = store.read(run.meta, copy.place)
        copy.acquire()  # making room must not evict what is being promoted
        fits = self.reserve(run.space, top, run.blocks, now)
        if fits and not self.relief.make_room(top, run.meta.size_bytes, now, run.space.tenant):
            self.abort(run.space, top, run.blocks)
            fits = False
        copy.release()
        if fits:
            new = Copy(now)
            new.to(BlockState.TRANSFERRING)
            (new.place,) = self.tiers[top].write([(run.meta, raw)])
            new.to(BlockState.COMMITTED)
            self.attach(run, top, new)
            if store.persistent:
                self.teller.add(run, top)  # the lower copy stays: rewriting it later costs more than its place
            else:
                self.detach(run, tier).to(BlockState.FREE, told=True)
                store.free([(run.meta, copy.place)])
                self.teller.move(run, tier, top)

    # What happens to tiers

    def down(self, tier: Tier) -> None:
        """Leaves a tier alone for a while; what it holds stays in the index."""
        self.down_until[tier] = self.clock() + REMOTE_PAUSE_SECONDS

    def reset(self, tier: Tier, boot: str) -> None:
        """Forgets everything of a tier that lost it; its source begins a new life, which tells it."""
        for run in [r for r in self.runs.values() if tier in r.copies]:
            self.detach(run, tier)
        self.queues[tier] = Lines(tier, self.policy, self.budget)
        self.teller.forget(tier)
        self.on_reset(tier, boot)

    def fence(self) -> None:
        """Looks again which spaces are fenced; their runs are the first to go everywhere."""
        with self.lock:
            for space in self.spaces.values():
                if space.fenced or not self._is_fenced(space.ns, space.gen):
                    continue
                space.fenced = True
                for run in self.runs.values():
                    if run.space is space:
                        for tier, copy in run.copies.items():
                            self.queues[tier].push(run, copy)

    def excess(self, tier: Tier) -> int:
        """Bytes that must leave the tier now because it is above its high mark; arenas are apart."""
        store, gate = self.tiers[tier], self.gates[tier]
        gate.capacity_bytes = max(0, store.capacity_bytes - self.budget.kept(tier))
        return gate.excess(self.budget.common_used(tier, store.used_bytes))

    def relieving(self, tier: Tier) -> bool:
        """Whether relief of the tier is due or under way."""
        return self.gates[tier].relieving(self.budget.common_used(tier, self.tiers[tier].used_bytes))

    # What is told on request

    def marks(self, source: str) -> list[Item]:
        """Fill of each of the source's tiers that answers."""
        now, out = self.clock(), []
        for name, tier in self.tiers.items():
            if self.outboxes[name].source == source and self.up(name, now):
                high, low, used = self.configs[name].high, self.configs[name].low, tier.used_bytes
                out.append(Mark(tier=name.value, used=used, capacity=tier.capacity_bytes, high=high, low=low))
        return list[Item](out)

    def listing(self, tiers: frozenset[Tier]) -> Iterable[Item]:
        """Everything the tiers hold, as `add` and `adds` items."""
        scratch = Teller({t: self.outboxes[t] for t in tiers})
        for tier in self.order:
            if tier in tiers:
                for run in self.runs.values():
                    if tier in run.copies:
                        scratch.add(run, tier)
        return scratch.items()

    def digests(self, tiers: frozenset[Tier]) -> list[DigestLine]:
        """One line per space and tier that holds anything."""
        return [
            DigestLine(s.ns, s.gen, s.group, tier.value, *total)
            for s in self.spaces.values()
            for tier, total in s.totals.items()
            if tier in tiers
        ]


class Listing:
    """The pool as one source sees it: its own tiers."""

    def __init__(self, pool: Pool, tiers: Iterable[Tier]) -> None:
        self._pool, self._tiers = pool, frozenset(tiers)
        self.lock = pool.lock
        self.gap = ""  # the pool is what is there

    def inventory(self) -> Iterable[Item]:
        """See `kvcore.messages.InventoryPage`."""
        return self._pool.listing(self._tiers)

    def digests(self) -> Sequence[DigestLine]:
        """See `kvcore.messages.DigestReport`."""
        return self._pool.digests(self._tiers)
