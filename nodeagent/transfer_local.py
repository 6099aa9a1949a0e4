"""Decides how blocks go from one tier of a source to another because somebody ordered it: copied, read back, and moved
in one item, so that nobody ever sees them in both or in neither.

Unlike a demotion nothing leaves for it: what the new tier does not take stays where it is. In slices under the pool's
lock. Called through `transfer_desk`.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from kvcore.blocks import BlockState, Tier
from kvcore.moves import MovedDetail
from nodeagent.jobs import Done, Job
from nodeagent.pool import Pool
from nodeagent.positions import position
from nodeagent.runs import ALL, Copy, Only, Run
from nodeagent.targets import Targets
from nodeagent.tiers.base import BlockRefused, Bytes, LeaseOver, RunMeta, TierDown, TierFull, TierReset
from nodeagent.tiers.disk import DiskTier
from nodeagent.tiers.memory import MemoryTier
from nodeagent.transfer_pace import Pace

MEMORY_SLICE, MEDIUM_SLICE = 2**20, 32 * 2**20
"""Bytes of a slice: short where it is memory; where it is a medium its fsyncs are shared, and the last of them are
waited for without anything else to do."""
PATIENCE_SECONDS, WAIT_SECONDS, BREATH_SECONDS = 5.0, 0.05, 0.0002
TRIES = 3
_Ready = list[tuple[Run, Copy]]


class Moving:
    """One ordered move between two tiers."""

    def __init__(
        self, pool: Pool, tier: Tier, to: Tier, targets: Targets, job: Job, pace: Pace, rate: int | None,
        only: Only = ALL,
    ) -> None:  # fmt: skip
        self._pool, self._tier, self._to, self._targets, self._job = pool, tier, to, targets, job
        self._pace, self._rate, self._only = pace, rate, only
        self._from, self._into = pool.tiers[tier], pool.tiers[to]
        self.moved: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.pinned = 0

    def run(self) -> Done:
        """What the tier takes of the targets is there and not here.

        Raises:
            Stopped: each block is in one of the two.
        """
        patience = time.monotonic() + PATIENCE_SECONDS
        while True:
            busy = 0
            for part in self._slices(self._todo()):
                self._job.check()
                size = sum(r.meta.size_bytes for r in part)
                wait = self._pace.spend((f"tier {self._tier}", f"tier {self._to}"), size, self._rate)
                self._job.sleep(max(wait, BREATH_SECONDS))
                with self._pool.lock:
                    try:
                        busy += self._slice(part)
                    finally:
                        self._pool.teller.flush()
            if not busy or time.monotonic() >= patience:
                break
            self._job.sleep(WAIT_SECONDS)
        return self._done(busy)

    def _todo(self) -> list[Run]:
        """The runs that are here, parents before children; those that a pin keeps are counted."""
        pool = self._pool
        with pool.lock:
            found = [r for r in pool.runs.values() if self._tier in r.copies and self._meant(r)]
            kept = [r for r in found if pool.budget.pinned(r)]
        self.pinned, self.refused = sum(r.blocks for r in kept), Counter()
        stay = {id(r) for r in kept}
        return sorted((r for r in found if id(r) not in stay), key=lambda r: r.depth)

    def _meant(self, run: Run) -> bool:
        return self._targets.meant(run.meta) is not None and self._only.has(run)

    def _slices(self, runs: Sequence[Run]) -> Iterator[list[Run]]:
        most = MEDIUM_SLICE if self._into.persistent else MEMORY_SLICE
        part, size = list[Run](), 0
        for run in runs:
            if part and size + run.meta.size_bytes > most:
                yield part
                part, size = [], 0
            part.append(run)
            size += run.meta.size_bytes
        if part:
            yield part

    def _slice(self, runs: Sequence[Run]) -> int:
        """Moves these; blocks that are in use. Under the lock."""
        ready: _Ready = []
        busy, room = 0, self._room()
        for run in runs:
            copy = run.copies.get(self._tier)
            if copy is None:
                continue
            if copy.state is not BlockState.COMMITTED:
                busy += run.blocks
                self.refused["blocks-leased"] += run.blocks
            elif self._to in run.copies:
                self._pool.drop(run, self._tier, "hot_move")
                self._count(run)
            elif run.meta.size_bytes > room.get(run.space.tenant, room[""]):
                self.refused["target-full"] += run.blocks
            elif self._reserved(run):
                ready.append((run, copy))
                room = {tenant: left - run.meta.size_bytes for tenant, left in room.items()}
        if ready:
            self._carry(ready)
        return busy

    def _carry(self, ready: _Ready) -> None:
        """Reads and writes what has a place; to files from memory those who write read, several beside each other."""
        if isinstance(self._from, MemoryTier) and isinstance(self._into, DiskTier):
            lazy = [(run.meta, partial(self._from.lend, run.meta, copy.place)) for run, copy in ready]
            try:
                self._land(ready, self._into.write(lazy, look=True))
                return
            except (TierFull, LeaseOver) as e:
                self._stay(ready, e)
                return
            except BlockRefused:  # one of them: found below
                pass
        read = [(run, copy, raw) for run, copy in ready if (raw := self._copied(run, copy)) is not None]
        if read:
            self._store(read)

    def _room(self) -> dict[str, int]:
        """Bytes that may come to the tier without anybody's leaving, by tenant; "" = of everybody else."""
        pool, store = self._pool, self._into
        tenants = {"", *pool.budget.shares}
        return {t: pool.budget.most(t, self._to, store.capacity_bytes) - store.used_bytes for t in tenants}

    def _reserved(self, run: Run) -> bool:
        """Whether the run has a place."""
        pool = self._pool
        if pool.reserve(run.space, self._to, run.blocks, pool.clock()):
            return True
        why = pool.closed(run.space, self._to) or pool.budget.barred(run.space.ns, self._to) or "quota"
        self.refused[why] += run.blocks
        return False

    def _copied(self, run: Run, copy: Copy) -> Bytes | None:
        """The run's blocks, checked, between arenas where they lie; None if they stay, or are not what they were, and
        their place is given back."""
        pool, source = self._pool, self._from
        try:
            if isinstance(source, MemoryTier) and isinstance(self._into, MemoryTier):
                return source.lend(run.meta, copy.place)
            return source.read(run.meta, copy.place)
        except BlockRefused as e:
            pool.abort(run.space, self._to, run.blocks)
            pool.refused_blocks[e.code] += 1
            pool.teller.quarantine(run, self._tier)
            pool.drop(run, self._tier, "engine")
            self.refused[f"block-{e.code}"] += run.blocks
            return None
        except (LeaseOver, TierDown, TierReset) as e:
            pool.abort(run.space, self._to, run.blocks)
            self._failed(self._tier, e, [run])
            return None

    def _store(self, read: list[tuple[Run, Copy, Bytes]]) -> None:
        ready = [(run, copy) for run, copy, _ in read]
        try:
            places = self._written([(run.meta, raw) for run, _, raw in read])
        except (TierFull, LeaseOver, TierDown, TierReset, BlockRefused) as e:
            self._stay(ready, e)
            return
        good = [self._same(run, place, raw) for (run, _, raw), place in zip(read, places, strict=True)]
        bad = [(one, place) for one, place, same in zip(ready, places, good, strict=True) if not same]
        for (run, _), place in bad:
            self._pool.abort(run.space, self._to, run.blocks)
            self._into.free([(run.meta, place)])
            self.refused["readback-unclean"] += run.blocks
        self._land(
            [one for one, same in zip(ready, good, strict=True) if same],
            [place for place, same in zip(places, good, strict=True) if same],
        )

    def _stay(self, ready: _Ready, why: Exception) -> None:
        """They stay where they are; what was reserved for them is given back."""
        for run, _ in ready:
            self._pool.abort(run.space, self._to, run.blocks)
        self._failed(self._to, why, [run for run, _ in ready])

    def _land(self, ready: _Ready, places: Sequence[Any]) -> None:
        """What was written and read back is there now, and not where it was."""
        pool, now = self._pool, self._pool.clock()
        gone = []
        for (run, copy), place in zip(ready, places, strict=True):
            new = Copy(now)
            new.to(BlockState.TRANSFERRING)
            new.place = place
            new.to(BlockState.COMMITTED)
            copy.to(BlockState.EVICTING)
            pool.attach(run, self._to, new)
            pool.detach(run, self._tier)
            copy.to(BlockState.FREE)
            pool.teller.move(run, self._tier, self._to)
            gone.append((run.meta, copy.place))
            self._count(run)
        self._from.free(gone)

    def _written(self, runs: list[tuple[RunMeta, Bytes]]) -> list[Any]:
        """The places; of files, which are written beside each other, each was read back."""
        store = self._into
        return list(store.write(runs, look=True) if isinstance(store, DiskTier) else store.write(runs))

    def _same(self, run: Run, place: Any, raw: Bytes) -> bool:
        """Whether what was written is what was read: of memory it is compared, of a store it is read and checked."""
        store = self._into
        if isinstance(store, DiskTier):
            return True
        try:
            return store.same(place, raw) if isinstance(store, MemoryTier) else store.read(run.meta, place) == raw
        except (BlockRefused, LeaseOver, TierDown, TierReset):
            return False

    def _failed(self, tier: Tier, why: Exception, runs: Sequence[Run]) -> None:
        if isinstance(why, TierReset):
            self._pool.reset(tier, why.boot)
        elif isinstance(why, TierDown):
            self._pool.down(tier)
        codes: dict[type, str] = {TierFull: "target-full", LeaseOver: "lease-over", BlockRefused: "readback-unclean"}
        code = codes.get(type(why), "tier-down")
        self.refused[code] += sum(run.blocks for run in runs)

    def _count(self, run: Run) -> None:
        self.moved.update(runs=1, blocks=run.blocks, bytes=run.blocks * run.space.block_bytes)

    def _done(self, busy: int) -> Done:
        with self._pool.lock:
            at = position(self._pool, self._tier, self._targets.namespaces)
        detail = MovedDetail(
            runs=self.moved["runs"], blocks=self.moved["blocks"], bytes=self.moved["bytes"], refused=dict(self.refused),
            pinned=self.pinned, stream_pos=at,
        )  # fmt: skip
        code = "blocks-leased" if busy else next(iter(self.refused), "")
        return Done("partial" if self.refused else "done", code, msgspec.to_builtins(detail))
