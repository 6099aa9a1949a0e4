"""Decides what each verb of an operation does on this node: erase, verify, shred, fence.

Each gives the detail of a receipt. What it says was done is what was read back, never what was meant. Called by
`executor` through `agent`; the work of an erase is in `erasing`.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kvcore.blocks import TIERS, VOLATILE, Tier
from kvcore.messages import Command, Fence
from kvcore.receipts import EraseArgs, Medium, Readback, ShreddedDetail, StreamPos, VerifiedDetail
from nodeagent.engines.reference import ReferenceEngine
from nodeagent.erasing import Erasing
from nodeagent.jobs import Done, Job
from nodeagent.journal import Cleared, Journal, JournalFull
from nodeagent.keys import KeyRing
from nodeagent.media import Media
from nodeagent.targets import Malformed, Targets, arguments
from nodeagent.tiers.base import Look, RunMeta, Stored, TierDown, TierReset
from nodeagent.tiers.memory import MemoryTier

FENCES_MOST = 10_000
OPEN_SECONDS = 0.05
"""Between two looks whether the media are found again."""
UNSANITISED = "KEY_MEDIUM_UNSANITISED"
SAFE_MEDIA = ("memory", "tpm")
"""Where what was overwritten is gone."""
_BLOCKS = Path("/sys/dev/block")
_MEMORY_FILES = ("tmpfs", "ramfs")


class UnderWay(Protocol):
    """What is on its way to this node or from it; `nodeagent.transfer_desk.Desk`."""

    def erase(self, tier: Tier, targets: Targets) -> list[tuple[RunMeta, list[bool]]]:
        """Nothing of the targets is under way to the tier or held on it for others; answers what was staged."""
        ...


class Orders:
    """The verbs of one agent."""

    def __init__(self, media: Media, ring: KeyRing, engine: ReferenceEngine, journal: Journal) -> None:
        self._media, self._ring, self._engine, self._journal = media, ring, engine, journal
        self._pool = media.pool
        self._erased: dict[tuple[str, Tier], float] = {}
        """(operation, tier) → when its last erase ended, where it means keys: what is made after that is not meant."""
        self._pool.on_cleared = self._cleared
        self.transfers: UnderWay | None = None

    def _cleared(self, tier: Tier, fenced: list[Stored]) -> None:
        """Writes down what is erased on return, so that the order that comes for it has it in its receipt."""
        lines = [Cleared(x.place, x.meta.ns, x.meta.gen, x.meta.group, x.meta.keys, x.meta.block_bytes) for x in fenced]
        with contextlib.suppress(JournalFull):  # it goes all the same; then no receipt counts it
            self._journal.note_cleared(tier.value, lines, self._pool.clock())

    @property
    def long(self) -> dict[str, Callable[[Command, Job], Done]]:
        """Verbs that run beside others."""
        return {"erase": self.erase, "verify": self.verify, "shred": self.shred}

    # Erase

    def erase(self, command: Command, job: Job) -> Done:
        """Erases everything of the targets from one tier."""
        return self._on_tier(command, job, self._erase)

    def _on_tier(
        self, command: Command, job: Job, verb: Callable[[Command, EraseArgs, Tier, Targets, Job], Done]
    ) -> Done:
        try:
            args = arguments(command)
            targets = Targets(args.targets, args.keys)
        except Malformed as e:
            return Done("refused", "args-malformed", {"error": str(e)[:200]})
        tier = Tier(args.tier) if args.tier in TIERS else None
        if tier is None or tier not in self._pool.tiers or self._pool.outboxes[tier].source != args.source:
            return Done("refused", "owner-unknown", {"source": args.source, "tier": args.tier})
        while not self._media.opened:  # what an earlier life left is not known yet
            job.sleep(OPEN_SECONDS)
        return verb(command, args, tier, targets, job)

    def _erase(self, command: Command, args: EraseArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        started = self._pool.clock()
        fences = [Fence(ns=ns, min_gen=gen_upto) for ns, gen_upto in targets.upto()] if args.fencing else []
        if not self._ring.fence(0, fences):
            raise JournalFull("fences")
        work = self._work(command, args, tier, targets, job)
        work.run()
        if targets.finer:
            self._erased[args.operation, tier] = self._pool.clock()
        residual = [UNSANITISED] if tier not in VOLATILE and self._key_medium() not in SAFE_MEDIA else []
        return work.done(started, self._medium(tier), self._position(tier, targets), residual)

    def _work(self, command: Command, args: EraseArgs, tier: Tier, targets: Targets, job: Job) -> Erasing:
        until = self._engine.decoding.until
        return Erasing(
            self._pool, self._journal, command, args, tier, targets, job, until=until, under_way=self._under_way
        )

    def _under_way(self, tier: Tier, targets: Targets) -> list[tuple[RunMeta, list[bool]]]:
        return self.transfers.erase(tier, targets) if self.transfers else []

    def _position(self, tier: Tier, targets: Targets) -> StreamPos:
        """Where the tier's source stands behind everything that was told of the targets."""
        ns = next(iter(targets.namespaces), bytes(32))
        with self._pool.lock:
            at = self._pool.outboxes[tier].behind(ns)
        return StreamPos(boot=at.boot, stream=at.stream, seq=at.seq)

    # Verify

    def verify(self, command: Command, job: Job) -> Done:
        """Lists and reads anew what of the targets lies on one tier, whatever an erase remembers."""
        return self._on_tier(command, job, self._verify)

    def _verify(self, command: Command, args: EraseArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        store, pool, look = self._pool.tiers[tier], self._pool, Look()
        listed_at = pool.clock()
        found, size = 0, 0
        try:
            upto = self._erased.get((args.operation, tier), float("inf")) if targets.finer else float("inf")
            for blocks, bytes_ in self._seen(tier, targets, look, job, upto):
                found, size = found + blocks, size + bytes_
        except (TierDown, TierReset):
            return Done("failed", "tier-down", {})
        with pool.lock:  # the counters are exact at the position
            position = self._position(tier, targets)
            counters = {
                "used_bytes": store.used_bytes,
                "blocks": sum(s.totals.get(tier, (0, 0, 0))[0] for s in pool.spaces.values()),
            }
        detail = VerifiedDetail(
            found_blocks=found, found_bytes=size, listed_at_us=int(listed_at * 1e6), counters=counters,
            readback=Readback(
                method="readback" if tier in VOLATILE else "list", sampled=look.sampled, clean=look.clean,
                evidence=look.evidence,
            ),
            medium=self._medium(tier), stream_pos=position, targets_root=args.targets_root,
        )  # fmt: skip
        return Done("done", "", msgspec.to_builtins(detail))

    def _seen(self, tier: Tier, targets: Targets, look: Look, job: Job, upto: float) -> Iterator[tuple[int, int]]:
        """(blocks, bytes) of each thing of the targets on the tier, or that may be of them; made up to this time."""
        pool, store = self._pool, self._pool.tiers[tier]
        with pool.lock:
            targets.grow(run.meta for run in pool.runs.values())
            anew = {id(run.meta) for run in pool.runs.values() if run.born > upto}
        if not isinstance(store, MemoryTier):
            with pool.lock:
                new = {r.copies[tier].place for r in pool.runs.values() if tier in r.copies and id(r.meta) in anew}
            for x in store.lying():
                job.check()
                marks = None if x.meta is None or x.place in new else targets.meant(x.meta)
                look.saw(x.place if isinstance(x.place, bytes) else str(x.place).encode(), clean=marks is None)
                if x.meta is not None and marks is not None:
                    yield sum(marks), sum(marks) * x.meta.block_bytes
            return
        with pool.lock:
            runs = [r for r in pool.runs.values() if tier in r.copies]
            used = {slot for r in runs for slot in r.copies[tier].place}
            meant = [(r, m) for r in runs if r.born <= upto and (m := targets.meant(r.meta)) is not None]
            unused = store.unused
        for run, marks in meant:
            look.saw(run.keys, clean=False)
            yield sum(marks), sum(marks) * run.meta.block_bytes
        strays = [x.place for x in store.lying(used)]
        with pool.lock:  # some may have come or gone meanwhile
            now = {slot for r in pool.runs.values() if tier in r.copies for slot in r.copies[tier].place}
            dirty = store.remains([slot for slot in strays if slot not in now])
        look.passed(max(unused - len(dirty), 0))
        for slot in dirty:
            look.saw(slot.to_bytes(8, "big"), clean=False)
            yield 1, store.slot_bytes

    # Shred

    def shred(self, command: Command, job: Job) -> Done:
        """Destroys the targets' values in the key file, those of the tier, and the leases of their keys."""
        return self._on_tier(command, job, self._shred)

    def _shred(self, command: Command, args: EraseArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        clean = dropped = True
        if self._pool.tiers[tier].persistent:  # blocks in memory have no keys in the file
            work = self._work(command, args, tier, targets, job)
            work.run()
            if work.down:
                return Done("failed", "tier-down", {})
            clean = work.look.clean == work.look.sampled
        objects = len(self._journal.found(command.step))
        for ns, gen_upto in targets.upto():
            dropped = self._ring.drop(ns, gen_upto) and dropped
            self._engine.drop(ns, gen_upto)
        medium = self._key_medium()
        detail = ShreddedDetail(
            objects=objects, key_medium=medium, lease_dropped=dropped,
            flags=[] if medium in SAFE_MEDIA else [UNSANITISED], targets_root=args.targets_root,
        )  # fmt: skip
        return Done("done" if clean else "failed", "" if clean else "readback-unclean", msgspec.to_builtins(detail))

    # Fence

    def fence(self, command: Command) -> dict[str, Any] | Done:
        """Raises the fences of the order's targets. Durable before it is answered.

        Raises:
            JournalFull: they hold in memory, and are not answered for.
        """
        try:
            targets = Targets(arguments(command).targets)
        except Malformed as e:
            return Done("refused", "args-malformed", {"error": str(e)[:200]})
        fences = [Fence(ns=ns, min_gen=gen_upto) for ns, gen_upto in targets.upto()]
        if not self._ring.fence(0, fences):
            raise JournalFull("fences")
        return {"fences": len(fences), "known": self._ring.fences, "fence_seq": self._ring.fence_seq}

    def fences(self, command: Command) -> dict[str, Any] | Done:
        """What the journal knows of fences, in order, behind `after` (hex) and `limit` at most: for a console that lost
        some."""
        after, limit = command.args.get("after", ""), command.args.get("limit", 1)
        if not isinstance(after, str) or not isinstance(limit, int) or not 0 < limit <= FENCES_MOST:
            return Done("refused", "args-malformed", {})
        found = sorted(self._journal.fences(), key=lambda fence: fence.ns)
        rest = [fence for fence in found if fence.ns.hex() > after]
        lines = [{"ns": fence.ns.hex(), "min_gen": str(fence.min_gen)} for fence in rest[:limit]]
        return {"fences": lines, "more": len(rest) > limit}

    # Media

    def _medium(self, tier: Tier) -> Medium:
        store = self._pool.tiers[tier]
        kind = "memory" if tier in VOLATILE else "remote" if tier is Tier.REMOTE else medium_of(self._media.ssd_dir)
        return Medium(type=kind, encrypted=store.encrypted, emulated=store.emulated)

    def _key_medium(self) -> str:
        kind = medium_of(self._media.key_path)
        return kind if kind in ("flash", "memory") else "unknown"


def medium_of(path: Path) -> str:
    """What a file or directory lies on: memory, flash, disk, or unknown where the system does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        device = os.stat(path).st_dev
    except OSError:
        return "unknown"
    number = f"{os.major(device)}:{os.minor(device)}"
    if any(m[2] == number and m[m.index("-") + 1] in _MEMORY_FILES for m in mounts):
        return "memory"
    at = (_BLOCKS / number).resolve()
    for place in (at, at.parent):  # a partition has its disk's queue
        try:
            return "disk" if (place / "queue" / "rotational").read_text().strip() == "1" else "flash"
        except OSError:
            continue
    return "unknown"
