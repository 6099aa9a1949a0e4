"""Decides what an owner holds: bit masks over segments, states by exception, holdings and digests kept by difference.

The rules are those of `kvcore.fold` (the reference form); here they run on masks. Called by `Memory.apply` with the
runs of a batch. No Python object exists per key.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from catalog.index.owners import Owners
from catalog.index.steps import (
    ADD,
    ADDS,
    CLEAR,
    CONTROL,
    DROP,
    LIST,
    LOSE,
    MOVE,
    RESET,
    STATE,
    TAKEN,
    VACATE,
    Touched,
    Work,
)
from kvcore.blocks import TRANSITIONS, VOLATILE, Guard

FULL = 2**64 - 1
Mask = int
COMMITTED, EVICTING = "committed", "evicting"
PASSING = ("transferring", "evicting")
"""States that end when a block is announced again; `referenced` and `quarantined` outlive that."""
_STEPS = {(b, a) for (b, a), guard in TRANSITIONS.items() if b and guard in (Guard.ALWAYS, Guard.NOT_PURGED)}


def may_become(before: str, after: str) -> bool:
    """Whether a held block may be told to go from one state to the other (`kvcore.fold`)."""
    if after == "quarantined":
        return before in (COMMITTED, after)
    before = COMMITTED if before == "quarantined" else before
    return before == after or (before, after) in _STEPS


@dataclass(slots=True)
class Run:
    """Consecutive keys of one step in one segment, with the sums over them; `first` is the first one's number."""

    seg: int
    family: int
    keyspace: int
    mask: Mask
    count: int
    lo: int
    hi: int
    first: int


@dataclass(slots=True)
class Listing:
    """What an inventory has listed so far: owner's tier → segment → mask, and tier → keyspace → sums."""

    masks: dict[str, dict[int, Mask]] = field(default_factory=lambda: defaultdict(dict))
    sums: dict[str, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))


class Placements(Owners):
    """Who holds what of which segment."""

    def __init__(self) -> None:
        super().__init__()
        self._listing: dict[int, Listing] = {}
        self.vacated: dict[tuple[int, int], Mask] = {}
        """(owner, segment) → what moved to another owner and was not let go yet."""
        self._offs = np.zeros(0, np.int64)
        self._keys = np.zeros((0, 2), np.uint64)

    # ------------------------------------------------------------------ runs
    def fold(self, steps: list[Work], runs: list[list[int]], masks: bytes, sums: list[list[int]], t: Touched) -> None:
        """Each run changes its owner's mask, in the order of the steps.

        The loop holds the common case only, blocks that come to an owner that held none of them: it is the price of
        every event. All else is a `Run`.
        """
        controls = deque(i for i, w in enumerate(steps) if w.kind in CONTROL)
        control = controls[0] if controls else len(steps)
        refs, unused, states, resident = self.refs, self.unused, self.states, self.resident
        fresh, placed, added = t.fresh, t.placed, t.added
        last = -1
        for r, (e, seg, i, ln, fam) in enumerate(runs):
            if e != last:
                last = e
                while control < e:
                    self._control(steps[controls.popleft()], t)
                    control = controls[0] if controls else len(steps)
                w = steps[e]
                ks = w.keyspace
                adding = (w.kind == ADD or w.kind == ADDS) and w.source not in self._listing
                if adding:
                    o = self.owner(w.source, w.tier, t)
                    d, h = self.place[o], self._holding(o, ks)
                    t.held.add((ks, o))
            mask = int.from_bytes(masks[32 * r : 32 * r + 32], "little")
            lo, hi = sums[r]
            if adding and mask.bit_count() == ln:
                at = (o, seg)
                before = d.get(seg)
                if before is None:
                    d[seg] = mask
                    refs[seg] += 1
                    if refs[seg] == 1:
                        unused.discard(seg)
                    fresh.add(at)
                elif before & mask or (states and at in states):
                    self._run(w, Run(seg, fam, ks, mask, ln, lo, hi, i), t)
                    continue
                else:
                    d[seg] = before | mask
                placed.add(at)
                h[0] += ln
                h[1] = (h[1] + lo) & FULL
                h[2] = (h[2] + hi) & FULL
                resident[fam] = resident.get(fam, 0) + ln
                added[w.source, w.tier, ks, fam] += ln
            else:
                self._run(w, Run(seg, fam, ks, mask, ln, lo, hi, i), t)
        while controls:
            self._control(steps[controls.popleft()], t)

    def _run(self, w: Work, run: Run, t: Touched) -> None:
        if w.kind == ADD or w.kind == ADDS:
            if w.source in self._listing:
                self._listed(w, run)
            elif new := self._add(self.owner(w.source, w.tier, t), run, t, announced=w.reason != TAKEN):
                t.added[w.source, w.tier, run.keyspace, run.family] += new
        elif w.kind == DROP:
            if gone := self._drop(w, run, t):
                t.dropped[w.source, w.tier, w.reason, run.keyspace, run.family] += gone
        elif w.kind == MOVE:
            self._move(w, run, t)
        elif w.kind == STATE:
            self._state(w, run, t)
        elif w.kind == VACATE:
            self._vacate(w, run, t)

    def _add(self, o: int, run: Run, t: Touched, announced: bool = True) -> int:
        """Blocks that were not held before; a repeated announcement ends passing states only, a move all of them."""
        d, seg, mask = self.place[o], run.seg, run.mask
        before = d.get(seg)
        if before is None:
            new = d[seg] = mask
            self._ref(seg)
            t.fresh.add((o, seg))
        else:
            new = mask & ~before
            if new:
                d[seg] = before | mask
            if self.states and (o, seg) in self.states:
                self._forget_states(o, seg, mask, PASSING if announced else None, t)
        if not new:
            return 0
        n = new.bit_count()
        t.placed.add((o, seg))
        self._resident(run.family, n)
        self._count(o, run, new, n, 1, t)
        return n

    def _drop(self, w: Work, run: Run, t: Touched) -> int:
        """Blocks that were held and are not any more; the others of the run are noted."""
        o = self.owner_of.get((w.source, w.tier))
        held = self.place[o].get(run.seg, 0) if o is not None else 0
        gone = held & run.mask
        n = gone.bit_count()
        if n != run.count:
            t.unheld[w.source, w.tag] += run.count - n
        if not n or o is None or w.tier == w.to:  # a move onto itself says only that the blocks are there
            return 0
        left = held & ~gone
        if left:
            self.place[o][run.seg] = left
            if self.states and (o, run.seg) in self.states:
                self._forget_states(o, run.seg, gone, None, t)
        else:
            del self.place[o][run.seg]
            self.states.pop((o, run.seg), None)
            self._unref(run.seg)
        t.placed.add((o, run.seg))
        self._resident(run.family, -n)
        self._count(o, run, gone, n, -1, t)
        return n

    def _move(self, w: Work, run: Run, t: Touched) -> None:
        gone = self._drop(w, run, t)
        if w.tier == w.to:
            return
        if gone:
            t.moved[w.source, w.tier, w.to, w.keyspace, run.family] += gone
        o = self.owner(w.source, w.to, t)
        new = self._add(o, run, t, announced=False)
        if new and gone:
            t.heirs.add((o, run.seg, self.owner_of[w.source, w.tier]))
        if new > gone:
            t.added[w.source, w.to, w.keyspace, run.family] += new - gone

    def _holding(self, o: int, ks: int) -> list[int]:
        """The owner's [blocks, lo, hi] of the keyspace; one of no blocks is taken for none."""
        by_ks = self.holding[o]
        h = by_ks.get(ks)
        if h is None:
            h = by_ks[ks] = [0, 0, 0]
        return h

    def _count(self, o: int, run: Run, flipped: Mask, n: int, sign: int, t: Touched) -> None:
        """The holding follows `n` blocks that came (+1) or went (−1)."""
        lo, hi = (run.lo, run.hi) if n == run.count else self._sums(run.first, run.count, flipped)
        h = self._holding(o, run.keyspace)
        h[0] += sign * n
        h[1] = (h[1] + sign * lo) & FULL
        h[2] = (h[2] + sign * hi) & FULL
        t.held.add((run.keyspace, o))

    def _sums(self, first: int, count: int, part: Mask) -> tuple[int, int]:
        """Sums over those of `count` keys from `first` on whose offsets are in `part`, each once."""
        at = slice(first, first + count)
        lo = hi = 0
        for off, (a, b) in zip(self._offs[at].tolist(), self._keys[at].tolist(), strict=True):
            if part >> off & 1:
                part ^= 1 << off
                lo, hi = lo + a, hi + b
        return lo, hi

    # ---------------------------------------------------------------- states
    def _state(self, w: Work, run: Run, t: Touched) -> None:
        o = self.owner_of.get((w.source, w.tier))
        held = (self.place[o].get(run.seg, 0) if o is not None else 0) & run.mask
        if held.bit_count() != run.count:
            t.unheld[w.source, w.tag] += run.count - held.bit_count()
        if o is None or not held:
            return
        by_state = dict(self.states.get((o, run.seg), {}))
        changing = 0
        rest = held
        for state, mask in (*by_state.items(), (COMMITTED, -1)):
            part = rest & mask
            rest &= ~part
            if not part or state == w.state:
                continue
            if may_become(state, w.state):
                changing |= part
            else:
                t.illegal[w.source, w.tag] += part.bit_count()
        if not changing:
            return
        by_state = {s: m & ~changing for s, m in by_state.items()}
        if w.state != COMMITTED:
            by_state[w.state] = by_state.get(w.state, 0) | changing
        self._keep_states(o, run.seg, by_state)
        t.placed.add((o, run.seg))

    def _vacate(self, w: Work, run: Run, t: Touched) -> None:
        """The owner's blocks belong to another owner now: not routable from this commit on."""
        o = self.owner_of.get((w.source, w.tier))
        held = (self.place[o].get(run.seg, 0) if o is not None else 0) & run.mask
        if o is None or not held:
            return
        taker = self.owner_of.get(w.taker) if w.taker else None
        if taker is not None and (taker, run.seg) in t.placed:
            t.heirs.add((taker, run.seg, o))
        by_state = {s: m & ~held for s, m in self.states.get((o, run.seg), {}).items()}
        by_state[EVICTING] = by_state.get(EVICTING, 0) | held
        self._keep_states(o, run.seg, by_state)
        self.vacated[o, run.seg] = self.vacated.get((o, run.seg), 0) | held
        t.placed.add((o, run.seg))

    def _forget_states(self, o: int, seg: int, mask: Mask, which: tuple[str, ...] | None, t: Touched) -> None:
        """Those of `mask` are committed now: out of every exception, or out of `which` (not what was vacated)."""
        before = self.states[o, seg]
        if which is not None and self.vacated:
            mask &= ~self.vacated.get((o, seg), 0)
        after = {s: m & ~mask if which is None or s in which else m for s, m in before.items()}
        if after != before:
            self._keep_states(o, seg, after)
            t.placed.add((o, seg))

    def _keep_states(self, o: int, seg: int, by_state: dict[str, Mask]) -> None:
        by_state = {s: m for s, m in by_state.items() if m}
        if self.vacated and (left := self.vacated.pop((o, seg), 0) & by_state.get(EVICTING, 0)):
            self.vacated[o, seg] = left
        if by_state:
            self.states[o, seg] = by_state
        else:
            self.states.pop((o, seg), None)

    # -------------------------------------------------------------- controls
    def _control(self, w: Work, t: Touched) -> None:
        if w.kind == LIST:
            self._listing[w.source] = Listing()
        elif w.kind == CLEAR and w.keyspaces is not None:
            for tier in w.tiers or self.tiers(w.source):
                self._clear_keyspaces(w, tier, t)
        elif w.kind in (CLEAR, RESET, LOSE):
            tiers = tuple(VOLATILE) if w.kind == RESET else w.tiers if w.kind == CLEAR else ()
            for tier in tiers or self.tiers(w.source):
                self.retire(w.source, tier, w.reason or w.kind, t)
        else:
            self._replace(w, t)

    def _clear_keyspaces(self, w: Work, tier: str, t: Touched) -> None:
        o = self.owner_of.get((w.source, tier))
        if o is None or w.keyspaces is None:
            return
        for seg in self.segments(o, w.keyspaces):
            mask = self.place[o].pop(seg)
            fam, ks = int(self.seg_fam[seg]), int(self.seg_ks[seg])
            self._released(o, seg, mask)
            t.placed.add((o, seg))
            t.dropped[w.source, tier, w.reason or w.kind, ks, fam] += mask.bit_count()
        for ks in w.keyspaces:
            if self.holding[o].pop(ks, None):
                t.held.add((ks, o))

    def segments(self, o: int, keyspaces: tuple[int, ...]) -> list[int]:
        """Segments of the keyspaces of which the owner holds something."""
        segs = np.fromiter(self.place[o], np.int64, len(self.place[o]))
        return [int(s) for s in segs[np.isin(self.seg_ks[segs], keyspaces)]]

    def _listed(self, w: Work, run: Run) -> None:
        listing = self._listing[w.source]
        masks, by_ks = listing.masks[w.tier], listing.sums[w.tier]
        before = masks.get(run.seg, 0)
        new = run.mask & ~before
        masks[run.seg] = before | run.mask
        n = new.bit_count()
        lo, hi = (run.lo, run.hi) if n == run.count else self._sums(run.first, run.count, new)
        h = by_ks.setdefault(w.keyspace, [0, 0, 0])
        h[0], h[1], h[2] = h[0] + n, (h[1] + lo) & FULL, (h[2] + hi) & FULL

    def _replace(self, w: Work, t: Touched) -> None:
        """The inventory's end: each tier holds exactly what was listed; the sums are those of the list."""
        listing = self._listing.pop(w.source, None) or Listing()
        for tier in w.tiers or {*self.tiers(w.source), *listing.masks}:
            masks, sums = listing.masks.get(tier, {}), listing.sums.get(tier, {})
            if not masks and (w.source, tier) not in self.owner_of:
                continue
            o = self.owner(w.source, tier, t)
            for seg in [*(s for s in self.place[o] if s not in masks), *masks]:
                self._settle(o, tier, seg, masks.get(seg, 0), w, t)
            before, self.holding[o] = self.holding[o], sums
            t.held.update((ks, o) for ks in {*before, *sums} if before.get(ks) != sums.get(ks))

    def _settle(self, o: int, tier: str, seg: int, after: Mask, w: Work, t: Touched) -> None:
        """The owner holds exactly `after` of the segment."""
        before = self.place[o].get(seg, 0)
        ks, fam = int(self.seg_ks[seg]), int(self.seg_fam[seg])
        came, gone = after & ~before, before & ~after
        if (o, seg) in self.states:
            self._forget_states(o, seg, gone, None, t)
        if (o, seg) in self.states:
            self._forget_states(o, seg, after, PASSING, t)
        if came:
            t.added[w.source, tier, ks, fam] += came.bit_count()
        if gone:
            t.dropped[w.source, tier, "inventory", ks, fam] += gone.bit_count()
        if not came and not gone:
            return
        t.placed.add((o, seg))
        self._resident(fam, came.bit_count() - gone.bit_count())
        if not before:
            self._ref(seg)
            t.fresh.add((o, seg))
        if after:
            self.place[o][seg] = after
        else:
            del self.place[o][seg]
            self._unref(seg)
