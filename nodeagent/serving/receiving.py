"""Decides what this node promises to take for a request, and what of what comes is committed.

A reservation charges the tenant for the blocks that are missing, for a few seconds that each committed range renews.
Every run that comes is checked against the chain, its head and its digest, is written, read back, and only then
committed; whatever was not is free again when the reservation ends, however it ends.
"""

import time
from collections.abc import Callable

from kvcore.blocks import BlockState
from kvcore.keys import KEY_BYTES
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run
from nodeagent.serving.computing import Prompt
from nodeagent.serving.words import Refused
from nodeagent.targets import pieces
from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta, TierDown, TierFull, TierReset, verify_run
from nodeagent.tiers.memory import MemoryTier
from nodeagent.transfer_staging import resealed

LEASE_SECONDS = 10.0
"""A reservation that got nothing for so long is over."""


class Reservation:
    """Room for the blocks of one prompt. Under the pool's lock."""

    def __init__(self, name: str, prompt: Prompt, until: float) -> None:
        self.name, self.prompt, self.until = name, prompt, until
        self.charged = 0
        """Blocks that are charged and not committed."""
        self.coming: dict[int, Copy] = {}
        """Of runs on their way, by their giver's version: TRANSFERRING until they are committed or free."""
        self.refused: dict[str, int] = {}
        """Blocks that came and were not taken, by code."""
        self.closed = False

    def refuse(self, code: str, blocks: int) -> None:
        """So many more were not taken."""
        self.refused[code] = self.refused.get(code, 0) + blocks


class Receiver:
    """The reservations of one node."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.time, seconds: float = LEASE_SECONDS) -> None:
        self._pool, self._clock, self._seconds = pool, clock, seconds
        self.open: dict[str, Reservation] = {}
        self.committed_blocks = self.expired = 0

    @property
    def transferring(self) -> int:
        """Runs that are on their way."""
        return sum(len(r.coming) for r in list(self.open.values()))

    @property
    def reserved_blocks(self) -> int:
        """Blocks that are charged and not here."""
        return sum(r.charged for r in list(self.open.values()))

    def reserve(self, name: str, prompt: Prompt, blocks: int) -> Reservation:
        """Room for so many blocks is promised.

        Raises:
            Refused: no-room: the tenant may not have them here, or the tier is too small for them.
        """
        pool, top = self._pool, self._pool.order[0]
        with pool.lock:
            size = blocks * _slot(prompt)
            if size > pool.budget.most(prompt.space.tenant, top, pool.tiers[top].capacity_bytes):
                raise Refused("no-room")
            if blocks and not pool.reserve(prompt.space, top, blocks, self._clock()):
                raise Refused("no-room")
            made = Reservation(name, prompt, self._clock() + self._seconds)
            made.charged = blocks
            self.open[name] = made
            return made

    def end(self, reservation: Reservation) -> None:
        """What was not committed is free, and nothing is charged for it. Ending twice is no error."""
        pool = self._pool
        with pool.lock:
            if reservation.closed:
                return
            reservation.closed = True
            for copy in reservation.coming.values():
                copy.to(BlockState.FREE)
            reservation.coming.clear()
            if reservation.charged:
                pool.abort(reservation.prompt.space, pool.order[0], reservation.charged)
                reservation.charged = 0
            if self.open.get(reservation.name) is reservation:
                del self.open[reservation.name]

    def expire(self, now: float) -> None:
        """Reservations that got nothing for too long are over."""
        for one in [r for r in list(self.open.values()) if r.until <= now]:
            self.expired += 1
            self.end(one)

    def cancel(self, ended: Callable[[bytes, int], bool]) -> None:
        """Reservations of these namespace generations are over."""
        for one in list(self.open.values()):
            if ended(one.prompt.lease.ns, one.prompt.lease.gen):
                self.end(one)

    def begin(self, reservation: Reservation, metas: list[RunMeta]) -> list[RunMeta]:
        """Those of the runs that may come: blocks of the asked chain and nothing else. They are TRANSFERRING."""
        out = []
        with self._pool.lock:
            for meta in metas:
                if reservation.closed:
                    break
                if not _asked(reservation.prompt, meta):
                    reservation.refuse("not-asked", meta.blocks)
                    continue
                if self._here(reservation.prompt, meta):
                    continue
                copy = Copy(self._clock())
                copy.to(BlockState.ALLOCATED)
                copy.to(BlockState.TRANSFERRING)
                reservation.coming[meta.version] = copy
                out.append(meta)
        return out

    def _here(self, prompt: Prompt, meta: RunMeta) -> bool:
        index = self._pool.index
        keys = (meta.keys[at : at + KEY_BYTES] for at in range(0, len(meta.keys), KEY_BYTES))
        return all((run := index.get(key)) is not None and run.space is prompt.space for key in keys)

    def missed(self, reservation: Reservation, meta: RunMeta, code: str) -> None:
        """A run will not come."""
        with self._pool.lock:
            copy = reservation.coming.pop(meta.version, None)
            if copy is not None:
                copy.to(BlockState.FREE)
                reservation.refuse(code, meta.blocks)

    def land(self, reservation: Reservation, meta: RunMeta, raw: bytes) -> bool:
        """The run came: whether it is committed. Nothing of it is here if not."""
        try:
            verify_run(meta, raw)
        except BlockRefused as e:
            self._pool.refused_blocks[e.code] += 1
            self.missed(reservation, meta, f"block-{e.code}")
            return False
        with self._pool.lock:
            copy = reservation.coming.get(meta.version)
            if copy is None or reservation.closed:
                return False
            code = self._commit(reservation, meta, raw, copy)
            if code:
                self.missed(reservation, meta, code)
            else:
                reservation.coming.pop(meta.version)
                reservation.until = self._clock() + self._seconds
            self._pool.teller.flush()
            return not code

    def _commit(self, reservation: Reservation, meta: RunMeta, raw: bytes, copy: Copy) -> str:
        """Writes what of the run is missing here; "" or the code of why it cannot be here."""
        pool, top, space = self._pool, self._pool.order[0], reservation.prompt.space
        if code := pool.closed(space, top):
            return code
        keys = [meta.keys[at : at + KEY_BYTES] for at in range(0, len(meta.keys), KEY_BYTES)]
        here = [(run := pool.index.get(key)) is not None and run.space is space for key in keys]
        for start, end in pieces(here) if not all(here) else []:
            parent = keys[start - 1] if start else meta.parent
            made = pool.meta(space, depth=meta.depth + start, parent=parent, keys=b"".join(keys[start:end]))
            run = Run(space, made, now=self._clock())
            if code := self._write(reservation, run, resealed(made, meta, raw, start), copy):
                return code
            copy = Copy(self._clock())  # a second piece of the same run
            copy.to(BlockState.TRANSFERRING)
        return ""

    def _write(self, reservation: Reservation, run: Run, sealed: bytes, copy: Copy) -> str:
        pool, top = self._pool, self._pool.order[0]
        store = pool.tiers[top]
        paid = min(run.blocks, reservation.charged)
        if run.blocks > paid and not pool.reserve(run.space, top, run.blocks - paid, self._clock()):
            return "quota"
        extra = run.blocks - paid
        try:
            if not pool.relief.make_room(top, run.meta.size_bytes, self._clock(), run.space.tenant):
                raise TierFull("no room")
            (place,) = store.write([(run.meta, sealed)])
        except (TierFull, LeaseOver, TierDown, TierReset) as e:
            pool.abort(run.space, top, extra)
            return {TierFull: "target-full", LeaseOver: "lease-over"}.get(type(e), "tier-down")
        if isinstance(store, MemoryTier) and not store.same(place, sealed):
            store.free([(run.meta, place)])
            pool.abort(run.space, top, extra)
            return "readback-unclean"
        reservation.charged -= paid
        copy.place = place
        copy.to(BlockState.COMMITTED)
        pool.attach(run, top, copy)
        pool.teller.add(run, top)
        self.committed_blocks += run.blocks
        return ""


def _slot(prompt: Prompt) -> int:
    return RunMeta(
        prompt.lease.ns, prompt.lease.gen, 0, 0, None, b"", 0, prompt.space.block_tokens, prompt.space.block_bytes
    ).slot_bytes


def _asked(prompt: Prompt, meta: RunMeta) -> bool:
    """Whether the run is a part of the prompt's chain, and its blocks are of the size they must have."""
    space = prompt.space
    same = (meta.ns, meta.gen, meta.group) == (space.ns, space.gen, space.group)
    sizes = (meta.block_tokens, meta.block_bytes) == (space.block_tokens, space.block_bytes)
    start = meta.depth * KEY_BYTES
    chain = prompt.chain[start : start + len(meta.keys)]
    return same and sizes and meta.depth >= 0 and bool(meta.keys) and chain == meta.keys
