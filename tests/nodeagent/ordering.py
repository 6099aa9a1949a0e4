"""A rig whose media obey orders, and raw looks at them."""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from kvcore.blocks import VOLATILE, Tier
from kvcore.erasure import object_ref, objects_root
from kvcore.keys import unpack
from kvcore.messages import Command
from kvcore.receipts import EraseArgs, ErasedDetail, EraseTarget, VerifiedDetail
from nodeagent.jobs import Done, Job
from nodeagent.journal import Found, Journal, JournalFull
from nodeagent.orders import Orders
from tests.nodeagent.rig import Rig

ORDER = "ab" * 32


class Ordered(Rig):
    """Erases and verifies like an agent, without HTTP."""

    def __init__(self, path: Path, tiers, **more) -> None:
        super().__init__(path, tiers, **more)
        self.journal = Journal(path / "journal.sqlite3")
        self.ring._keep = self.journal.keep
        self.orders = Orders(self.media, self.ring, self.engine, self.journal)

        def fenced() -> None:
            self.pool.fence()
            self.engine.forget()

        self.ring.on_fence = fenced

    def command(self, kind: str, tier: Tier, *targets: EraseTarget, step: str = "s", **more) -> Command:
        args = EraseArgs(
            operation=more.pop("operation", "o"), generation=1, source=self.pool.outboxes[tier].source, dp_rank=0,
            tier=tier.value, owner=1,
            targets=list(targets), **more,
        )  # fmt: skip
        return Command(
            v=1, step=step, kind=kind, node="n1", order_hash=ORDER, issued_at=0.0, expires_at=2e10,
            args=msgspec.to_builtins(args),
        )  # fmt: skip

    def do(self, kind: str, tier: Tier, *targets: EraseTarget, **more) -> Done:
        command = self.command(kind, tier, *targets, **more)
        return self.orders.long[kind](command, Job(command, time.time))

    def erase(self, tier: Tier, *targets: EraseTarget, **more) -> tuple[Done, ErasedDetail]:
        done = self.do("erase", tier, *targets, **more)
        return done, msgspec.convert(done.detail, ErasedDetail)

    def verify(self, tier: Tier, *targets: EraseTarget) -> VerifiedDetail:
        done = self.do("verify", tier, *targets)
        assert done.outcome == "done"
        return msgspec.convert(done.detail, VerifiedDetail)

    def keys(self, tier: Tier, ns: bytes) -> list[bytes]:
        """Keys of the namespace's blocks on the tier."""
        return [k for r in self.pool.runs.values() if tier in r.copies and r.space.ns == ns for k in unpack(r.keys)]

    def raw(self, tier: Tier) -> bytes:
        """Everything that lies on the tier's medium, read past the agent's own ways."""
        store = self.pool.tiers[tier]
        if tier in VOLATILE:
            return os.pread(os.open(f"/proc/self/fd/{store._fd}", os.O_RDONLY), store.capacity_bytes, 0)
        return b"".join(p.read_bytes() for p in sorted(self.media.ssd_dir.iterdir()))

    def close(self) -> None:
        super().close()
        self.journal.close()


def everything(key, upto: int | None = None) -> EraseTarget:
    """All generations of a lease's namespace, up to and with its own."""
    return EraseTarget(ns=key.ns.hex(), gen_upto=str(key.gen + 1 if upto is None else upto))


def fill_up(journal: Journal) -> None:
    """Its disk is full: not a single object can be noted any more."""
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count={pages}")
    with contextlib.suppress(JournalFull):
        for number in range(10_000):
            journal.note("filler", [Found(number.to_bytes(4, "big"), 0, b"")])


def root_of(keys) -> str:
    return objects_root(object_ref(ORDER, k) for k in keys)


def fill(rig, keys, rounds=0):
    """Blocks of all these namespaces on every tier."""
    for i in range(rounds or 20 // len(keys)):
        for key in keys:
            rig.ask(key, [i, 1000 + i])
            rig.ask(key, [i, 1000 + i])
        rig.settle()
    return keys


def canaries(rig, key):
    """What only a block of the namespace can contain: the first 32 bytes of each, as it was made."""
    stream = rig.engine.keystream(key)
    return {stream.content(k)[:32] for r in rig.pool.runs.values() if r.space.ns == key.ns for k in unpack(r.keys)}


def down(rig, to):
    """Everything that is in `hbm` goes down to a tier."""
    for tier in rig.pool.order[: rig.pool.order.index(to)]:
        rig.relief.evict(tier, [(r, r.copies[tier]) for r in list(rig.pool.runs.values()) if tier in r.copies], rig.now)
    rig.pool.teller.flush()
