"""Decides how an ordered erase is done on one tier: everything of the targets, read back, and told like any drop.

Looks three times: what the index knows, what lies on the medium and no index knows, and what is in use. What is in use
is waited for; after the order's deadline `force` may break in. What is found is written down before it is destroyed, so
that an erase that is killed ends with the same receipt. Works in slices under the pool's lock.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from kvcore.blocks import VOLATILE, BlockState, Tier
from kvcore.erasure import object_ref, objects_root
from kvcore.keys import KEY_BYTES
from kvcore.messages import Command
from kvcore.receipts import EraseArgs, ErasedDetail, Medium, Readback, Remaining, StreamPos
from nodeagent.jobs import Done, Job
from nodeagent.journal import REF_BYTES, Found, Journal
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run, Space
from nodeagent.targets import Targets, pieces
from nodeagent.tiers.base import BlockRefused, LeaseOver, Look, RunMeta, TierDown, TierFull, TierReset, content, seal
from nodeagent.tiers.memory import MemoryTier, give_back

SLICE_BYTES, SLICE_RUNS = 2**20, 128
"""Erased at once while the lock is held: bytes where it is memory, objects where it is a medium."""
RATE_SECONDS = 0.25
"""What goes within this time is one slice where a rate is given."""
PATIENCE_SECONDS = 5.0
"""How long one step waits for what is in use or does not answer: then its receipt says so, and another step comes."""
WAIT_SECONDS, DOWN_SECONDS, BREATH_SECONDS = 0.05, 0.5, 0.0005
"""Between two looks for leases, between two tries of a medium that does not answer, between two slices."""


class Erasing:
    """One erase of one tier, from its first look to its receipt."""

    def __init__(
        self, pool: Pool, journal: Journal, command: Command, args: EraseArgs, tier: Tier, targets: Targets, job: Job,
        *, until: Callable[[Collection[Copy]], float | None],
        under_way: Callable[[Tier, Targets], list[tuple[RunMeta, list[bool]]]] = lambda tier, targets: [],
    ) -> None:  # fmt: skip
        self._pool, self._journal, self._step, self._job = pool, journal, command.step, job
        self._family = f"{command.kind} {args.operation} {tier}"
        self._order, self._args, self._tier, self._targets = command.order_hash, args, tier, targets
        self._store, self._until, self._under_way = pool.tiers[tier], until, under_way
        self._slots = self._store if isinstance(self._store, MemoryTier) else None
        self.look = Look()
        self._leased: list[Run] = []
        self._broken = 0
        """Blocks that were in use when they went."""
        self._force = args.force and pool.clock() >= args.deadline
        self._patience = time.monotonic() + PATIENCE_SECONDS
        self._here: list[Found] = []
        """What was found in memory, which no journal could bring back."""
        self._done = self._total = 0
        self.down = False

    def run(self) -> None:
        """Nothing of the targets is left here but what `leased` says, unless the medium is `down`.

        Raises:
            Stopped, JournalFull: what was destroyed is written down.
        """
        self._journal.continues(self._step, self._family)
        cleared = self._cleared() if self._store.persistent else []
        with self._closed():
            while True:
                before = self.look.sampled, self.look.clean
                try:
                    found = self._staged() | self._indexed() | self._strays()
                except TierReset as e:
                    with self._pool.lock:
                        self._pool.reset(self._tier, e.boot)
                        self._pool.teller.flush()
                    found = True
                except TierDown:
                    self._pool.down(self._tier)
                    if time.monotonic() >= self._patience:
                        self.down = True
                        return
                    self._job.sleep(DOWN_SECONDS)
                    found = True
                stuck = self.look.sampled > before[0] and self.look.clean == before[1]
                stuck = stuck or (self._targets.finer and time.monotonic() >= self._patience)  # they come anew
                if stuck or (not found and not self._wait()):
                    break
        if self._slots is not None:
            self.look.passed(self._slots.unused)
        elif cleared:
            self._look_for(cleared)
        give_back()

    def _cleared(self) -> list[bytes]:
        """What was erased when this node returned, because the fence was there before the order, is this step's."""
        going = []
        for x in self._journal.cleared(self._tier.value):
            meta = RunMeta(x.ns, x.gen, x.group, 0, None, x.keys, 0, 0, x.block_bytes)
            if (marks := self._targets.meant(meta)) is not None:
                going.append((x.place, meta, marks))
        self._note(going)
        places = [place for place, _, _ in going]
        if places:
            self._journal.forget_cleared(self._tier.value, places)
        return places

    def _look_for(self, places: list[bytes]) -> None:
        try:
            there = set(self._store.remains(places))
        except (TierDown, TierReset):  # nothing is said of what was not seen
            return
        for place in places:
            self.look.saw(place, clean=place not in there)

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Meanwhile nothing of what is meant as a whole comes to the tier: puts and moves are refused."""
        pool, targets = self._pool, self._targets

        def covers(space: Space) -> bool:
            return targets.whole(space.ns, space.gen, space.group)

        entry = self._tier, covers
        with pool.lock:
            pool.erasing.append(entry)
        try:
            yield
        finally:
            with pool.lock:
                pool.erasing.remove(entry)

    # What is under way to or from other nodes

    def _staged(self) -> bool:
        """What is staged for the tier is overwritten, and what is held there for others is held no more."""
        with self._pool.lock:
            staged = self._under_way(self._tier, self._targets)
            self._note([(b"staged %d" % meta.version, meta, marks) for meta, marks in staged])
        return bool(staged)

    # What the index knows

    def _indexed(self) -> bool:
        """Erases every copy in the index that nobody uses; True if there was one."""
        tier, pool, erased = self._tier, self._pool, 0
        with pool.lock:
            self._targets.grow(r.meta for r in pool.runs.values())
            todo = [r for r in pool.runs.values() if tier in r.copies and self._targets.meant(r.meta) is not None]
        self._leased = []
        self._total = self._done + sum(r.meta.size_bytes for r in todo)
        for part in self._slices(todo):
            self._job.check()
            began = time.monotonic()
            with pool.lock:
                try:
                    size = self._slice(part)
                finally:
                    pool.teller.flush()
            erased += size
            self._done += size
            self._job.tell(self._done, self._total)
            self._job.pace(size, began, BREATH_SECONDS)
        return bool(erased)

    def _slices(self, runs: Sequence[Run]) -> Iterator[list[Run]]:
        rate, part, size = self._job.rate, list[Run](), 0
        most = SLICE_BYTES if self._slots is not None else SLICE_RUNS * SLICE_BYTES
        most = min(most, int(rate * RATE_SECONDS)) if rate else most
        for run in runs:
            part.append(run)
            size += run.meta.size_bytes
            if len(part) >= SLICE_RUNS or size >= most:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _slice(self, runs: Sequence[Run]) -> int:
        """Erases these copies; bytes with headers. Under the lock."""
        pool, tier = self._pool, self._tier
        going: list[tuple[Run, Copy, list[bool]]] = []
        for run in runs:
            copy, marks = run.copies.get(tier), self._targets.meant(run.meta)
            if copy is None or marks is None:  # it went meanwhile
                continue
            if copy.state is BlockState.REFERENCED and not self._force:
                self._leased.append(run)
            else:
                going.append((run, copy, marks))
        if not going:
            return 0
        rests = [self._rest(run, copy, marks) for run, copy, marks in going]
        self._note([(copy.place, run.meta, marks) for run, copy, marks in going])
        for run, copy, marks in going:
            self._broken += sum(marks) if copy.state is BlockState.REFERENCED else 0
            copy.to(BlockState.EVICTING, force=self._force)
            pool.detach(run, tier)
            copy.to(BlockState.FREE)
        kept = [False] * len(going)
        try:
            self._store.erase([(run.meta, copy.place) for run, copy, _ in going], self.look)
            kept = [bool(rest) and self._rewrite(run, rest) for (run, _, _), rest in zip(going, rests, strict=True)]
        finally:
            for (run, _, marks), stays in zip(going, kept, strict=True):
                self._tell(run, marks, kept=stays)
        return sum(run.meta.size_bytes for run, _, _ in going)

    def _tell(self, run: Run, marks: list[bool], *, kept: bool) -> None:
        """The drops: of the blocks that are meant, or of all where the others went with them."""
        keys = b"".join(_keys(run.meta, marks)) if kept else run.keys
        self._pool.teller.drop(run, self._tier, "delete", keys=keys)
        self._pool.dropped[self._tier, "delete"] += len(keys) // KEY_BYTES

    def _rest(self, run: Run, copy: Copy, marks: list[bool]) -> list[tuple[Run, bytes]]:
        """The blocks of a run that are not meant, as new runs; none if they are elsewhere too or cannot be read.

        A run is one object: what stays has to be written anew. Where the node has the run on another tier, too, its
        copy here goes as a whole, since nothing is lost by it.
        """
        if all(marks) or len(run.copies) > 1 or self._pool.closed(run.space, self._tier):
            return []
        try:
            raw = self._store.read(run.meta, copy.place)
        except (BlockRefused, LeaseOver):
            return []
        out = []
        for start, end in pieces(marks):
            keys = run.keys[start * KEY_BYTES : end * KEY_BYTES]
            parent = run.keys[(start - 1) * KEY_BYTES : start * KEY_BYTES] if start else run.meta.parent
            meta = self._pool.meta(run.space, depth=run.depth + start, parent=parent, keys=keys)
            new = Run(run.space, meta, now=run.born)
            new.last, new.hits, new.heat = run.last, run.hits, run.heat
            out.append((new, _sealed(meta, [content(run.meta, raw, at) for at in range(start, end)])))
        return out

    def _rewrite(self, run: Run, rest: list[tuple[Run, bytes]]) -> bool:
        """Whether the rest of a run is stored anew. Its blocks were told before and stay told."""
        pool, now = self._pool, self._pool.clock()
        try:
            places = self._store.write([(new.meta, raw) for new, raw in rest])
        except (TierFull, LeaseOver, TierDown, TierReset):
            return False
        for (new, _), place in zip(rest, places, strict=True):
            copy = Copy(now)
            copy.place = place
            copy.to(BlockState.COMMITTED)
            pool.budget.charge(run.space, self._tier, new.blocks)
            pool.attach(new, self._tier, copy)
        return True

    def _note(self, going: Iterable[tuple[object, RunMeta, list[bool]]]) -> None:
        """Writes down what is about to be destroyed.

        Raises:
            JournalFull: nothing of it may be destroyed.
        """
        found = []
        for place, meta, marks in going:
            name = place if isinstance(place, bytes) else str(place).encode()
            refs = b"".join(object_ref(self._order, key) for key in _keys(meta, marks))
            found.append(Found(name, sum(marks) * meta.block_bytes, refs))
        if found and self._store.persistent:
            self._journal.note(self._step, found, family=self._family)
        else:
            self._here += found

    # What only the medium knows

    def _strays(self) -> bool:
        """Erases what lies there without being in the index; True if there was anything."""
        with self._pool.lock:
            placed = self._placed()
        found = [x for x in self._store.lying(placed) if x.meta is None or self._targets.meant(x.meta) is not None]
        scoured = 0
        for at in range(0, len(found), SLICE_RUNS):
            self._job.check()
            with self._pool.lock:  # some may have come or gone meanwhile
                placed = self._placed()
                part = [x for x in found[at : at + SLICE_RUNS] if x.place not in placed]
                there = set(self._store.remains([x.place for x in part]))
                part = [x for x in part if x.place in there]
                known = [(x.place, x.meta, self._targets.meant(x.meta)) for x in part if x.meta is not None]
                self._note([(place, meta, marks) for place, meta, marks in known if marks is not None])
                self._store.scour([x.place for x in part], self.look)
                scoured += len(part)
            self._job.sleep(BREATH_SECONDS)
        return bool(scoured)

    def _placed(self) -> set[object]:
        """Places of the tier that the index knows; of memory slot by slot. Under the lock."""
        places = [r.copies[self._tier].place for r in self._pool.runs.values() if self._tier in r.copies]
        return {slot for place in places for slot in place} if self._slots is not None else set(places)

    # What is in use

    def _wait(self) -> bool:
        """Waits for what is in use, as long as a step waits; True if another look is due."""
        while self._leased:
            with self._pool.lock:
                copies = [r.copies.get(self._tier) for r in self._leased]
            if any(c is None or c.state is not BlockState.REFERENCED for c in copies):
                return True
            if self._args.force and self._pool.clock() >= self._args.deadline:
                self._force = True
                return True
            if time.monotonic() >= self._patience:
                return False
            self._job.sleep(WAIT_SECONDS)
        return False

    # What the receipt says

    def done(self, started: float, medium: Medium, position: StreamPos, residual: list[str]) -> Done:
        """The receipt's outcome and detail."""
        found = self._journal.found(self._step) + self._here
        refs = (x.refs[at : at + REF_BYTES] for x in found for at in range(0, len(x.refs), REF_BYTES))
        blocks = sum(sum(self._targets.meant(r.meta) or ()) for r in self._leased)
        copies = [c for r in self._leased if (c := r.copies.get(self._tier)) is not None]
        memory, look = self._tier in VOLATILE, self.look
        outcome, code = "done", ""
        if self.down:
            outcome, code = "failed", "tier-down"
        elif look.clean < look.sampled:
            outcome, code = "failed", "readback-unclean"
        elif blocks:
            outcome, code = "partial", "blocks-leased"
        read = Readback(
            method="readback" if memory else "list", sampled=look.sampled, clean=look.clean, evidence=look.evidence
        )
        detail = ErasedDetail(
            objects_root=objects_root(refs), objects=len(found), blocks=sum(x.blocks for x in found),
            bytes=sum(x.size_bytes for x in found), technique="memset" if memory else "key_destroy", readback=read,
            medium=medium, class_claimed=0 if outcome == "failed" else 3 if memory else 2, stream_pos=position,
            started_us=int(started * 1e6), finished_us=int(self._pool.clock() * 1e6),
            residual=[*residual, *(["FORCED"] if self._broken else [])],
            remaining=Remaining(blocks=blocks, leased_until=self._until(copies)), targets_root=self._args.targets_root,
        )  # fmt: skip
        return Done(outcome, code, msgspec.to_builtins(detail))


def _keys(meta: RunMeta, marks: list[bool]) -> list[bytes]:
    return [meta.keys[i * KEY_BYTES : (i + 1) * KEY_BYTES] for i, meant in enumerate(marks) if meant]


def _sealed(meta: RunMeta, contents: list[bytes]) -> bytes:
    parts = iter(contents)
    return seal(meta, lambda key: next(parts))
