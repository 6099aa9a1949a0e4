"""Decides what this node takes of what another offers: each run is fetched, checked, written, read back, and only then
committed and announced, inside the step that ordered it.

Tenant, namespace, generation, version, key and digest of every block are checked before it is accepted, the fence when
it is fetched and again when it is committed. Whoever was cut off goes on where it was. Called through `transfer_desk`.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kvcore.blocks import BlockState, Tier
from kvcore.events import Add
from kvcore.keys import KEY_BYTES
from kvcore.messages import Command
from kvcore.moves import LEFT_MOST, MoveArgs, TakenDetail, stretches
from nodeagent.jobs import Done, Job
from nodeagent.keys import KeyRing
from nodeagent.pool import Pool
from nodeagent.positions import position
from nodeagent.runs import Copy, Run, Space
from nodeagent.targets import Targets, pieces
from nodeagent.tiers.base import (
    BlockRefused,
    LeaseOver,
    RunMeta,
    TierDown,
    TierFull,
    TierReset,
    verify_run,
)
from nodeagent.tiers.memory import MemoryTier
from nodeagent.transfer import Cut, Denied
from nodeagent.transfer_pace import Credits, Pace
from nodeagent.transfer_staging import Dial, Landing, Source, Staging, resealed

WINDOW_BYTES = 4 * 2**20
"""Asked for at once; two are in flight, so that one is on its way while the other is written."""
CUT_PATIENCE_SECONDS, CUT_WAIT_SECONDS = 15.0, 0.2
"""How long a step goes on without a source that answers, and between two tries."""


LEASE_PATIENCE_SECONDS, LEASE_WAIT_SECONDS = 5.0, 0.1


class Taking:
    """One step of taking, from its first look at the manifest to its receipt."""

    def __init__(
        self, pool: Pool, ring: KeyRing, command: Command, args: MoveArgs, tier: Tier, targets: Targets, job: Job,
        *, staging: Staging, credit: Credits, pace: Pace, offered: Callable[[Run], bool],
        hurry: Callable[[], object],
    ) -> None:  # fmt: skip
        self._pool, self._ring, self._job, self._args, self._tier = pool, ring, job, args, tier
        self._step, self._targets, self._staging = command.step, targets, staging
        self._credits, self._pace, self._offered = credit, pace, offered
        self._hurry = hurry
        self._store = pool.tiers[tier]
        self._local = args.party is not None and args.party.node == command.node
        self.settled: set[int] = set()
        """Versions of the source's runs that are here now, or that will not come."""
        self.refused: dict[int, tuple[str, int]] = {}
        self.counts: Counter[str] = Counter()
        self.resumed = 0
        self._manifest: list[RunMeta] = []
        self._born: dict[int, float] = {}
        """When its runs were made, by this node's clock."""

    def run(self, dial: Dial) -> Done:
        """Everything that was offered is here and announced, but what the receipt says is left.

        Raises:
            Stopped: what came is here and announced; the rest is fetched when the step is ordered again.
        """
        assert self._args.party is not None
        heard, code = time.monotonic(), ""
        try:
            while True:
                before = len(self.settled)
                try:
                    self._pass(dial(self._args.party, self._args.offer))
                    break
                except Cut:
                    now = time.monotonic()
                    heard = now if len(self.settled) > before else heard
                    if now - heard > CUT_PATIENCE_SECONDS:
                        code = "source-unreachable"
                        break
                    self.resumed += 1
                    self._job.sleep(CUT_WAIT_SECONDS)
                except Denied as e:
                    code = e.code
                    break
        finally:
            with self._pool.lock:
                self._staging.clear(self._step)
        return self._done(code)

    def _pass(self, source: Source) -> None:
        """One connection, to the end of the manifest or of the connection."""
        if not self._manifest:
            manifest: list[RunMeta] = []
            while True:
                page, now = source.page(len(manifest)), self._pool.clock()
                manifest += page.runs
                self._born |= {m.version: now - age for m, age in zip(page.runs, page.ages, strict=False)}
                if not page.runs or len(manifest) >= page.total:
                    break
            self._manifest = manifest
        todo = [m for m in self._manifest if m.version not in self.settled]
        left = sum(m.size_bytes for m in todo)
        self._await_leases(todo)
        todo = self._checked(todo)
        while todo:
            self._job.check()
            window = self._window(todo)
            if full := self._without_room(window):
                todo = [m for m in todo if m.version not in full]
                continue
            size = sum(m.size_bytes for m in window)
            self._wait(size)
            granted = self._credits.take(size, left=left, check=self._job.check)
            try:
                self._fetch(source, {m.version: m for m in window}, granted)
            finally:
                self._credits.give(granted)
            todo = [m for m in todo if m.version not in self.settled]
            left = sum(m.size_bytes for m in todo)
            self._job.tell(self.counts["bytes"], self.counts["bytes"] + left)

    def _window(self, todo: list[RunMeta]) -> list[RunMeta]:
        """The next runs to ask for; of one that is larger than all credit nobody can ask."""
        out, size = list[RunMeta](), 0
        for meta in todo:
            if out and size + meta.size_bytes > min(WINDOW_BYTES, self._credits.most_bytes):
                break
            out.append(meta)
            size += meta.size_bytes
        return out

    def _without_room(self, window: list[RunMeta]) -> set[int]:
        """Those of the window that cannot come for want of room: refused before a byte of them is fetched."""
        pool, full = self._pool, set[int]()
        with pool.lock:
            used = self._store.used_bytes
            for meta in window:
                if meta.keys[:KEY_BYTES] in pool.index and meta.keys[-KEY_BYTES:] in pool.index:
                    continue  # it seems to be here
                used += meta.size_bytes
                if used > pool.budget.most(pool.budget.tenant(meta.ns), self._tier, self._store.capacity_bytes):
                    full.add(meta.version)
                    self._refuse(meta, "target-full")
        return full

    def _wait(self, size: int) -> None:
        party = self._args.party
        link = f"link {party.node}" if party else ""
        wait = self._pace.spend((f"tier {self._tier}", link), size, self._args.rate_bytes_per_s)
        if wait:
            self._job.sleep(wait)

    # What is accepted

    def _await_leases(self, todo: list[RunMeta]) -> None:
        """Keys of what was never here have to be asked for first; for a moment they are waited for."""
        spaces = {(m.ns, m.gen) for m in todo if not self._ring.fenced(m.ns, m.gen)}
        patience = time.monotonic() + LEASE_PATIENCE_SECONDS
        while spaces - {(x.ns, x.gen) for x in self._ring.live()} and time.monotonic() < patience:
            self._hurry()
            self._job.sleep(LEASE_WAIT_SECONDS)

    def _checked(self, todo: list[RunMeta]) -> list[RunMeta]:
        """Those that may come here at all; the others are refused before a byte of them is fetched."""
        out = []
        for meta in todo:
            with self._pool.lock:
                code = self._refusal(meta)
            if not code and meta.size_bytes > self._credits.most_bytes:
                code = "too-large"
            if code:
                self._refuse(meta, code)
            else:
                out.append(meta)
        return out

    def _refusal(self, meta: RunMeta) -> str:
        """Why the run may not be here, "" if it may."""
        pool = self._pool
        if self._targets.meant(meta) is None or not meta.keys or len(meta.keys) % KEY_BYTES:
            return "not-ordered"
        told = self._args.tenants.get(meta.ns.hex())
        if told is not None and told != pool.budget.tenant(meta.ns):
            return "tenant-mismatch"
        try:
            lease = self._ring.lease(meta.ns, meta.gen)
        except LeaseOver:
            return "stale-generation" if self._ring.fenced(meta.ns, meta.gen) else "lease-over"
        if lease.block_tokens != meta.block_tokens:
            return "block-size-mismatch"
        space = self._space(meta)
        if (space.block_tokens, space.block_bytes) != (meta.block_tokens, meta.block_bytes):
            return "block-size-mismatch"
        return pool.closed(space, self._tier) or pool.budget.barred(meta.ns, self._tier)

    def _space(self, meta: RunMeta) -> Space:
        tokens, size = meta.block_tokens, meta.block_bytes
        return self._pool.space(meta.ns, meta.gen, meta.group, block_tokens=tokens, block_bytes=size)

    def _refuse(self, meta: RunMeta, code: str) -> None:
        self.settled.add(meta.version)
        self.refused[meta.version] = code, meta.blocks

    # COPY and COMMIT

    def _fetch(self, source: Source, wanted: dict[int, RunMeta], credit: int) -> None:
        parcel = source.fetch(list(wanted), credit)
        if not parcel.runs and not parcel.refused:
            raise Cut("nothing came")
        came: list[RunMeta] = []
        for version, raw in parcel.runs:
            meta = wanted.get(version)
            if meta is None:  # nobody asked for it
                continue
            try:
                verify_run(meta, raw)
            except BlockRefused as e:
                self._pool.refused_blocks[e.code] += 1
                self._refuse(meta, f"block-{e.code}")
                continue
            with self._pool.lock:
                self._staging.put(self._step, self._tier, meta, raw)
            came.append(meta)
        for version, code in parcel.refused:
            if (meta := wanted.get(version)) is not None:
                self._refuse(meta, code)
        self._commit(came)

    def _commit(self, came: Sequence[RunMeta]) -> None:
        """What came is in the tier, read back, and announced in one go; the rest is refused."""
        pool = self._pool
        with pool.lock:
            ready = []
            for meta in came:
                raw = self._staging.take(self._step, meta.version)
                code = "erasing" if raw is None else self._refusal(meta)
                landing = code if raw is None or code else self._landing(meta, raw)
                if raw is not None:
                    raw[:] = bytes(len(raw))
                if isinstance(landing, str):
                    self._refuse(meta, landing)
                else:
                    ready.append(landing)
            self._store_all(ready)
            pool.teller.flush()

    def _landing(self, meta: RunMeta, raw: bytearray) -> Landing | str:
        """What of the run is missing here, as new runs, reserved; else the code of why it cannot be here."""
        pool, now = self._pool, self._pool.clock()
        space, size = self._space(meta), len(meta.keys) // KEY_BYTES
        own = pool.runs.get(meta.version) if self._local else None
        keys = [meta.keys[at : at + KEY_BYTES] for at in range(0, len(meta.keys), KEY_BYTES)]
        here = [(run := pool.index.get(key)) is not None and run.space is space for key in keys]
        if own is not None and own.keys == meta.keys:  # of another source of this node: the same run, once more
            here = [self._tier in own.copies] * size
        elif any(self._offered(pool.index[key]) for key, there in zip(keys, here, strict=True) if there):
            return "moving"  # what is here is on its way to somebody else
        missing, new = size - sum(here), list[tuple[Run, bytes]]()
        if missing:
            pending = self._store.used_bytes + missing * meta.slot_bytes
            if pending > pool.budget.most(space.tenant, self._tier, self._store.capacity_bytes):
                return "target-full"  # nobody's blocks leave for a move
            if not pool.reserve(space, self._tier, missing, now):
                return "quota"
        if own is not None and missing:
            return Landing(meta, space, [(own, bytes(raw))], size)
        for start, end in pieces(here) if missing else []:
            parent = keys[start - 1] if start else meta.parent
            made = pool.meta(space, depth=meta.depth + start, parent=parent, keys=b"".join(keys[start:end]))
            run = Run(space, made, now=now)
            run.born = self._born.get(meta.version, now)
            new.append((run, resealed(made, meta, bytes(raw), start)))
        return Landing(meta, space, new, size)

    def _store_all(self, ready: list[Landing]) -> None:
        pool, tier = self._pool, self._tier
        runs = [one for landing in ready for one in landing.new]
        try:
            places = self._store.write([(run.meta, raw) for run, raw in runs]) if runs else []
        except (TierFull, LeaseOver, TierDown, TierReset) as e:
            if isinstance(e, TierReset):
                pool.reset(tier, e.boot)
            elif isinstance(e, TierDown):
                pool.down(tier)
            code = {TierFull: "target-full", LeaseOver: "lease-over"}.get(type(e), "tier-down")
            for landing in ready:
                self._abort(landing)
                self._refuse(landing.meta, code)
            return
        where = iter(places)
        for landing in ready:
            mine = [next(where) for _ in landing.new]
            if self._read_back(landing, mine):
                self._land(landing, mine)
            else:
                self._abort(landing)
                self._store.free([(run.meta, place) for (run, _), place in zip(landing.new, mine, strict=True)])
                self._refuse(landing.meta, "readback-unclean")

    def _read_back(self, landing: Landing, places: Sequence[Any]) -> bool:
        try:
            for (run, raw), place in zip(landing.new, places, strict=True):
                store = self._store
                if not (
                    store.same(place, raw) if isinstance(store, MemoryTier) else store.read(run.meta, place) == raw
                ):
                    return False
        except (BlockRefused, LeaseOver, TierDown, TierReset):
            return False
        return True

    def _abort(self, landing: Landing) -> None:
        for run, _ in landing.new:
            self._pool.abort(run.space, self._tier, run.blocks)

    def _land(self, landing: Landing, places: Sequence[Any]) -> None:
        """The run is committed here and announced: with this item the catalog changes from the old place to the new."""
        pool, now, meta = self._pool, self._pool.clock(), landing.meta
        for (run, _), place in zip(landing.new, places, strict=True):
            copy = Copy(now)
            copy.to(BlockState.TRANSFERRING)
            copy.place = place
            copy.to(BlockState.COMMITTED)
            pool.attach(run, self._tier, copy)
        pool.teller.flush()
        for tier, start, end in self._spans(meta):
            parent = meta.keys[(start - 1) * KEY_BYTES : start * KEY_BYTES] if start else meta.parent
            pool.outboxes[tier].put(
                Add(
                    ns=meta.ns, gen=meta.gen, group=meta.group, keys=meta.keys[start * KEY_BYTES : end * KEY_BYTES],
                    parent=parent, tier=tier.value, tokens=meta.block_tokens, bytes=meta.block_bytes,
                    **self._moved(),
                )
            )  # fmt: skip
        self.settled.add(meta.version)
        new = sum(run.blocks for run, _ in landing.new)
        self.counts.update(runs=1, blocks=landing.blocks, bytes=landing.blocks * meta.block_bytes)
        self.counts["there"] += landing.blocks - new

    def _moved(self) -> dict[str, Any]:
        """What makes an announcement a move; of a copy the source keeps its own."""
        party = self._args.party
        return {} if party is None or self._args.keep else {"from_owner": party.owner, "step": self._step}

    def _spans(self, meta: RunMeta) -> list[tuple[Tier, int, int]]:
        """The tiers where the run's blocks are now, with the stretches that are there: the hottest of each."""
        out: list[tuple[Tier, int, int]] = []
        for at in range(meta.blocks):
            run = self._pool.index[meta.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES]]
            tier = self._tier if self._tier in run.copies else min(run.copies, key=self._pool.order.index)
            if out and out[-1][0] is tier:
                out[-1] = tier, out[-1][1], at + 1
            else:
                out.append((tier, at, at + 1))
        return out

    # What the receipt says

    def _done(self, code: str) -> Done:
        with self._pool.lock:
            at = position(self._pool, self._tier, self._targets.namespaces)
        missing = {m.version for m in self._manifest if m.version not in self.settled}
        gone = missing | self.refused.keys()
        left = stretches(at for at, meta in enumerate(self._manifest) if meta.version in gone)
        codes: Counter[str] = Counter()
        for why, blocks in self.refused.values():
            codes[why] += blocks
        detail = TakenDetail(
            runs=self.counts["runs"], blocks=self.counts["blocks"], bytes=self.counts["bytes"],
            there=self.counts["there"], left=left[:LEFT_MOST], refused=dict(codes),
            peak_bytes=self._credits.peak, resumed=self.resumed, stream_pos=at,
        )  # fmt: skip
        if len(left) > LEFT_MOST:
            return Done("failed", "too-many-left", msgspec.to_builtins(detail))
        if code and not self.counts["runs"]:
            return Done("failed", code, msgspec.to_builtins(detail))
        why = code or (min(codes, key=lambda c: (-codes[c], c)) if codes else "")
        return Done("partial" if left or code else "done", why, msgspec.to_builtins(detail))
