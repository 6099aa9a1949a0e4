"""Decides what this node gives to others: offers that were ordered, who may fetch them, and when a copy is let go.

What is offered is held: it is not evicted, and nothing is said of it, until the order to release comes, the offer's
time is over, or an erase takes it. A fenced generation is given to nobody. Called through `transfer_desk`.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.blocks import BlockState, Tier
from kvcore.events import State
from kvcore.messages import Command
from kvcore.moves import MoveArgs, OfferedDetail, Party, ReleasedDetail, places_in
from kvcore.wire import UNREADABLE
from nodeagent.jobs import Done, Job
from nodeagent.pool import Pool
from nodeagent.positions import position
from nodeagent.runs import Copy, Only, Run
from nodeagent.targets import Targets
from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta, TierDown, TierReset
from nodeagent.transfer import HELLO, Ask, Denied, Hello, Page, Parcel, SealedBlob, Session, SignedBlob, proved, welcome

PAGE_RUNS = 512
PARCEL_BYTES = 4 * 2**20
"""Read and sent at once, whatever the credit."""
SLICE_RUNS = 128
PATIENCE_SECONDS, WAIT_SECONDS = 5.0, 0.05
SESSIONS_MOST, SESSION_SECONDS = 256, 300.0
_T = TypeVar("_T")


class Offer:
    """What is held for one destination."""

    def __init__(self, step: str, tier: Tier, party: Party, until: float) -> None:
        self.step, self.tier, self.party, self.until = step, tier, party, until
        self.held: dict[int, tuple[Run, Copy]] = {}
        self.manifest: list[RunMeta] = []
        self.births: list[float] = []
        """Of the manifest's runs, by this node's clock."""
        self.total_bytes = 0


class Offers:
    """The offers of one node, and the sessions in which they are fetched."""

    def __init__(
        self, pool: Pool, *, node: str, key: Ed25519PrivateKey, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool, self._node, self._key, self._clock = pool, node, key, clock
        self.open: dict[str, Offer] = {}
        self._sessions: dict[bytes, tuple[Session, str, float]] = {}
        self._lock = threading.Lock()
        self.sent_bytes = 0

    # Verbs

    def offer(self, command: Command, args: MoveArgs, tier: Tier, targets: Targets) -> Done:
        """The blocks of the targets are held for the destination; the same step again holds no more."""
        party, pool = args.party, self._pool
        if party is None or not args.until:
            return Done("refused", "args-malformed", {"error": "an offer needs a party and a time"})
        offer, pinned, only = Offer(command.step, tier, party, args.until), 0, Only(args.only)
        spare, spared = frozenset(args.spare), 0
        with pool.lock:
            pool.teller.flush()
            taken = {id(copy) for other in self.open.values() for _, copy in other.held.values()}
            for run in sorted(pool.runs.values(), key=lambda r: r.depth):
                copy = run.copies.get(tier)
                if copy is None or id(copy) in taken or pool.closed(run.space, tier):
                    continue
                if copy.state not in (BlockState.COMMITTED, BlockState.REFERENCED):
                    continue
                if targets.meant(run.meta) is None or not only.has(run):
                    continue
                if run.meta.ns.hex() in spare:
                    spared += run.blocks
                    continue
                if pool.budget.pinned(run) and not args.keep:
                    pinned += run.blocks
                    continue
                if args.most_bytes is not None and offer.total_bytes + run.meta.size_bytes > args.most_bytes:
                    continue
                copy.acquire()
                offer.held[run.meta.version] = run, copy
                offer.manifest.append(run.meta)
                offer.births.append(run.born)
                offer.total_bytes += run.meta.size_bytes
            if offer.held:
                self.open[command.step] = offer
            at = position(pool, tier, targets.namespaces)
        blocks = sum(m.blocks for m in offer.manifest)
        detail = OfferedDetail(
            runs=len(offer.manifest), blocks=blocks, bytes=sum(m.blocks * m.block_bytes for m in offer.manifest),
            pinned=pinned, stream_pos=at, spared=spared,
        )  # fmt: skip
        return Done("done", "", msgspec.to_builtins(detail))

    def release(self, args: MoveArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        """What was taken is gone from here, what was left is this node's own again.

        A copy that somebody reads is waited for; what is still read then is left held, and the receipt says so.
        """
        offer = self.open.get(args.offer)
        if offer is None:
            return Done("refused", "offer-unknown", {})
        try:
            named = places_in(args.left, len(offer.manifest))
        except ValueError:
            return Done("refused", "args-malformed", {"error": "left"})
        left = set(offer.held) if args.keep else {offer.manifest[place].version for place in named}
        spare = {m.version for m in offer.manifest if m.ns.hex() in args.spare}
        spared = self._let_go(offer, spare)
        left |= spare
        kept = self._let_go(offer, left) + spared
        counts = {"runs": 0, "blocks": 0, "bytes": 0}
        gone = sum(m.blocks for m in offer.manifest if m.version not in offer.held and m.version not in left)
        patience = time.monotonic() + PATIENCE_SECONDS
        while offer.held:
            if not self._release_some(offer, counts):
                if time.monotonic() >= patience:
                    break
                job.sleep(WAIT_SECONDS)
            job.check()
        leased = sum(run.blocks for run, _ in offer.held.values())
        if not leased:
            self.open.pop(offer.step, None)
        with self._pool.lock:
            at = position(self._pool, tier, targets.namespaces)
        detail = ReleasedDetail(**counts, gone=gone, kept=kept, leased=leased, stream_pos=at, spared=spared)
        outcome, code = ("partial", "blocks-leased") if leased else ("done", "")
        return Done(outcome, code, msgspec.to_builtins(detail))

    def _let_go(self, offer: Offer, versions: set[int]) -> int:
        """These runs are not held for the offer any more, and stay. Answers blocks."""
        blocks = 0
        with self._pool.lock:
            for version in versions & offer.held.keys():
                run, copy = offer.held.pop(version)
                if run.copies.get(offer.tier) is copy:
                    copy.release()
                    self._pool.queues[offer.tier].push(run, copy)
                    blocks += run.blocks
        return blocks

    def _release_some(self, offer: Offer, counts: dict[str, int]) -> bool:
        """One slice of copies that nobody reads is dropped; False if there was none."""
        pool, tier, went = self._pool, offer.tier, 0
        with pool.lock:
            for version, (run, copy) in list(offer.held.items()):
                if run.copies.get(tier) is not copy:
                    del offer.held[version]
                    continue
                if copy.refs > 1:
                    continue
                copy.release()
                copy.to(BlockState.EVICTING)
                pool.drop(run, tier, "hot_move")
                del offer.held[version]
                counts["runs"], counts["blocks"] = counts["runs"] + 1, counts["blocks"] + run.blocks
                counts["bytes"] += run.blocks * run.space.block_bytes
                went += 1
                if went >= SLICE_RUNS:
                    break
            pool.teller.flush()
        return bool(went)

    def expire(self, now: float) -> None:
        """Offers whose time is over hold nothing any more; that their blocks are this node's own is told."""
        for offer in [o for o in list(self.open.values()) if o.until <= now]:
            self._tell_own(offer)
            self._let_go(offer, set(offer.held))
            self.open.pop(offer.step, None)

    def _tell_own(self, offer: Offer) -> None:
        with self._pool.lock:
            self._pool.teller.flush()
            for run, copy in offer.held.values():
                if run.copies.get(offer.tier) is copy:
                    space = run.space
                    self._pool.outboxes[offer.tier].put(
                        State(
                            ns=space.ns, gen=space.gen, group=space.group, keys=run.keys, tier=offer.tier.value,
                            state=BlockState.COMMITTED.value,
                        )
                    )  # fmt: skip

    def holds(self, run: Run) -> bool:
        """Whether a copy of the run is held for somebody. Under the pool's lock."""
        return any(run.meta.version in offer.held for offer in self.open.values())

    def cancel(self, tier: Tier, targets: Targets) -> None:
        """What is to be erased is not held for anybody. Under the pool's lock."""
        for offer in list(self.open.values()):
            if offer.tier is tier:
                self._let_go(offer, {v for v, (r, _) in offer.held.items() if targets.meant(r.meta) is not None})

    # What the destination asks

    def answer(self, raw: bytes) -> bytes:
        """The answer to one body of a destination.

        Raises:
            Denied: nothing was given.
        """
        signed = _decoded(raw, SignedBlob)
        if signed is not None:
            return self._open(signed)
        sealed = _decoded(raw, SealedBlob)
        if sealed is not None:
            return self._asked(sealed)
        raise Denied("transfer-malformed")

    def _open(self, blob: SignedBlob) -> bytes:
        hello = _decoded(blob.body, Hello)
        if hello is None:
            raise Denied("transfer-malformed")
        offer = self._offer(hello.offer)
        proved(blob, HELLO, bytes.fromhex(offer.party.public_key), Hello)
        if hello.node != offer.party.node or hello.to != self._node:
            raise Denied("transfer-signature")
        session, said = welcome(self._key, self._node, hello, blob.body)
        now = self._clock()
        with self._lock:
            self._sessions = {k: v for k, v in self._sessions.items() if v[2] > now}
            while len(self._sessions) >= SESSIONS_MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[session.id] = session, offer.step, now + SESSION_SECONDS
        return msgspec.msgpack.encode(said)

    def _offer(self, step: str) -> Offer:
        offer = self.open.get(step)
        if offer is None or offer.until <= self._clock():
            raise Denied("offer-unknown")
        return offer

    def _asked(self, blob: SealedBlob) -> bytes:
        session, step, _ = self._sessions.get(blob.session, (None, "", 0.0))
        if session is None:
            raise Denied("transfer-session")
        with self._lock:
            body = session.open(blob)
        ask = _decoded(body, Ask)
        if ask is None:
            raise Denied("transfer-malformed")
        found: Any = self.page(step, ask.after) if ask.verb == "list" else self.read(step, ask.versions, ask.credit)
        with self._lock:
            return session.seal(found)

    def page(self, step: str, after: int) -> Page:
        """The manifest from there on.

        Raises:
            Denied: offer-unknown.
        """
        offer = self._offer(step)
        part, now = slice(max(after, 0), max(after, 0) + PAGE_RUNS), self._pool.clock()
        ages = [max(now - born, 0.0) for born in offer.births[part]]
        return Page(offer.manifest[part], len(offer.manifest), offer.total_bytes, ages)

    def read(self, step: str, versions: list[int], credit: int) -> Parcel:
        """These runs, each checked; as many as the credit and a parcel hold, at least the first if it fits the credit.

        Raises:
            Denied: offer-unknown.
        """
        offer, size = self._offer(step), 0
        parcel = Parcel([], [])
        most = min(credit, PARCEL_BYTES)
        for version in versions:
            with self._pool.lock:
                run, copy = offer.held.get(version, (None, None))
                if run is None or copy is None or run.copies.get(offer.tier) is not copy:
                    parcel.refused.append((version, "gone"))
                    continue
                if size + run.meta.size_bytes > (most if size else credit):
                    break
                code, raw = self._read(offer, run, copy)
            if code:
                parcel.refused.append((version, code))
            else:
                parcel.runs.append((version, raw))
                size += len(raw)
        self.sent_bytes += size
        return parcel

    def _read(self, offer: Offer, run: Run, copy: Copy) -> tuple[str, bytes]:
        pool, tier = self._pool, offer.tier
        if code := pool.closed(run.space, tier):
            return code, b""
        try:
            return "", pool.tiers[tier].read(run.meta, copy.place)
        except BlockRefused as e:
            pool.refused_blocks[e.code] += 1
            return e.code, b""
        except LeaseOver:
            return "lease-over", b""
        except TierDown:
            pool.down(tier)
        except TierReset as e:
            pool.reset(tier, e.boot)
        return "tier-down", b""


def _decoded(raw: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except UNREADABLE:
        return None
