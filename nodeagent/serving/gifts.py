"""Decides what this node gives of its blocks within one request, to whom, and for how long.

A gift belongs to one decision and grows while its prompt is computed. Only the node that the ticket names may fetch it,
and it proves itself as in moves; only blocks of the ticket's chain are in it. What is given is held, not given away:
the copy here stays. A fenced generation is given to nobody. Called by `road` and, for other nodes, by `server`.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.blocks import Tier
from kvcore.keys import KEY_BYTES
from kvcore.tickets import Peer, Ticket
from kvcore.wire import UNREADABLE
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run
from nodeagent.targets import Targets
from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta, TierDown, TierReset
from nodeagent.transfer import HELLO, Ask, Denied, Hello, Page, Parcel, SealedBlob, Session, SignedBlob, proved, welcome

GIFT_SECONDS = 30.0
SESSIONS_MOST = 1024
PARCEL_BYTES = 4 * 2**20
PAGE_RUNS = 512
_T = TypeVar("_T")


class Knock(msgspec.Struct, frozen=True):
    """Who wants what a ticket for this node says; the gift is open afterwards."""

    ticket: Ticket


class Part:
    """Some consecutive blocks of a run, where they lie, and as what they are given."""

    __slots__ = ("copy", "first", "meta", "run", "tier")

    def __init__(self, run: Run, tier: Tier, copy: Copy, meta: RunMeta, first: int) -> None:
        self.run, self.tier, self.copy, self.meta, self.first = run, tier, copy, meta, first


class Gift:
    """What is held for one request."""

    def __init__(self, name: str, takers: tuple[Peer, ...], until: float) -> None:
        self.name, self.takers, self.until = name, takers, until
        self.parts: list[Part] = []
        self.blocks = 0
        """Leading blocks of the chain that are in it, from `start` on."""
        self.start = 0
        self.total_bytes = 0


class Gifts:
    """The gifts of one node."""

    def __init__(
        self, pool: Pool, *, node: str, key: Ed25519PrivateKey, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool, self._node, self._key, self._clock = pool, node, key, clock
        self.open: dict[str, Gift] = {}
        self._sessions: dict[bytes, tuple[Session, str]] = {}
        self._lock = threading.Lock()
        self.sent_bytes = 0
        self.refused = 0
        """Fetches that were denied."""

    def begin(self, name: str, takers: tuple[Peer, ...]) -> Gift:
        """A gift with nothing in it yet; one of this name that is open goes on."""
        with self._pool.lock:
            if name in self.open:
                self.open[name].takers = tuple({p.node: p for p in (*self.open[name].takers, *takers)}.values())
            else:
                self.open[name] = Gift(name, takers, self._clock() + GIFT_SECONDS)
            return self.open[name]

    def grow(self, gift: Gift, chain: bytes, upto: int) -> int:
        """Blocks of the chain up to there are in the gift, as far as they are here; answers how far that is."""
        pool = self._pool
        with pool.lock:
            at = gift.start + gift.blocks
            while at < upto:
                run = pool.index.get(chain[at * KEY_BYTES : (at + 1) * KEY_BYTES])
                if run is None or pool.closed(run.space, pool.order[0]):
                    break
                agree = min(run.agrees(chain, at), upto - at)
                parent = chain[(at - 1) * KEY_BYTES : at * KEY_BYTES] if at else None
                if not self._add(gift, run, at, agree, parent):
                    break
                at += agree
            return at

    def _add(self, gift: Gift, run: Run, at: int, blocks: int, parent: bytes | None) -> bool:
        tier = next((t for t in self._pool.order if t in run.copies), None)
        if tier is None:
            return False
        copy, first = run.copies[tier], at - run.depth
        copy.acquire()
        m = run.meta
        keys = run.keys[first * KEY_BYTES : (first + blocks) * KEY_BYTES]
        meta = RunMeta(m.ns, m.gen, m.group, at, parent, keys, m.version, m.block_tokens, m.block_bytes)
        gift.parts.append(Part(run, tier, copy, meta, first))
        gift.blocks += blocks
        gift.total_bytes += meta.size_bytes
        return True

    def walk_back(self, gift: Gift, upto: bytes, blocks: int) -> int:
        """The chain that ends with the key `upto`, as far back as it is here without a hole; answers its first block.

        The key names the chain: each run names the block before it, so nothing of another chain can be in it.
        """
        pool, parts = self._pool, list[tuple[Run, int, int]]()
        at, key = blocks, upto
        with pool.lock:
            while at > 0 and (run := pool.index.get(key)) is not None:
                end = run.keys.index(key) // KEY_BYTES + 1 if key in run.keys else 0
                if not end or run.depth + end != at or pool.closed(run.space, pool.order[0]):
                    break
                parts.append((run, run.depth, end))
                at, key = run.depth, run.meta.parent or b""
            gift.start = at
            for run, start, count in reversed(parts):
                if not self._add(gift, run, start, count, run.meta.parent):
                    break
        return at

    def end(self, name: str) -> None:
        """Nothing is held for it any more; the copies stay this node's."""
        with self._pool.lock:
            gift = self.open.pop(name, None)
            for part in gift.parts if gift else ():
                self._free(part)

    def _free(self, part: Part) -> None:
        if part.run.copies.get(part.tier) is part.copy:
            part.copy.release()
            self._pool.queues[part.tier].push(part.run, part.copy)

    def expire(self, now: float) -> None:
        """Gifts whose time is over hold nothing."""
        for gift in [g for g in list(self.open.values()) if g.until <= now]:
            self.end(gift.name)

    def cancel(self, tier: Tier, targets: Targets) -> None:
        """What is to be erased is not held for anybody. Under the pool's lock."""
        for gift in list(self.open.values()):
            gone = [p for p in gift.parts if p.tier is tier and targets.meant(p.run.meta) is not None]
            for part in gone:
                self._free(part)
            gift.parts = [p for p in gift.parts if p not in gone]

    @property
    def held(self) -> int:
        """Runs that are held."""
        return sum(len(g.parts) for g in self.open.values())

    # What the taker asks

    def answer(self, raw: bytes, admit: Callable[[Ticket], None]) -> bytes:
        """The answer to one body of a taker.

        Args:
            raw: the body.
            admit: raises Denied for a ticket that is not good for this node now.

        Raises:
            Denied: nothing was given.
        """
        try:
            if (signed := _decoded(raw, SignedBlob)) is not None:
                return self._hello(signed)
            if (sealed := _decoded(raw, SealedBlob)) is not None:
                return self._asked(sealed)
            if (knock := _decoded(raw, Knock)) is not None:
                return self._knock(knock, admit)
            raise Denied("transfer-malformed")
        except Denied:
            self.refused += 1
            raise

    def _knock(self, knock: Knock, admit: Callable[[Ticket], None]) -> bytes:
        ticket, scope = knock.ticket, knock.ticket.scope
        admit(ticket)
        takers = tuple(p for p in scope.peers if p.role == "taker") if scope else ()
        if scope is None or not takers or scope.blocks <= 0 or len(scope.upto) != KEY_BYTES:
            raise Denied("ticket-scope")
        with self._pool.lock:
            run = self._pool.index.get(scope.upto)
            if run is None or (run.space.ns, run.space.gen) != (ticket.ns, ticket.gen):
                raise Denied("offer-unknown")  # the directory was wrong, or it left meanwhile
        gift = self.begin(scope.decision, takers)
        if not gift.parts:
            self.walk_back(gift, scope.upto, scope.blocks)
        return msgspec.msgpack.encode({"start": gift.start, "blocks": gift.blocks})

    def _gift(self, name: str) -> Gift:
        gift = self.open.get(name)
        if gift is None or gift.until <= self._clock():
            raise Denied("offer-unknown")
        return gift

    def _hello(self, blob: SignedBlob) -> bytes:
        hello = _decoded(blob.body, Hello)
        if hello is None:
            raise Denied("transfer-malformed")
        gift = self._gift(hello.offer)
        peer = next((p for p in gift.takers if p.node == hello.node), None)
        if peer is None or hello.to != self._node:
            raise Denied("transfer-signature")
        proved(blob, HELLO, peer.public_key, Hello)
        session, said = welcome(self._key, self._node, hello, blob.body)
        with self._lock:
            while len(self._sessions) >= SESSIONS_MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[session.id] = session, gift.name
        return msgspec.msgpack.encode(said)

    def _asked(self, blob: SealedBlob) -> bytes:
        session, name = self._sessions.get(blob.session, (None, ""))
        if session is None:
            raise Denied("transfer-session")
        with self._lock:
            body = session.open(blob)
        ask = _decoded(body, Ask)
        if ask is None:
            raise Denied("transfer-malformed")
        gift = self._gift(name)
        found: Any = self._page(gift, ask.after) if ask.verb == "list" else self._read(gift, ask.versions, ask.credit)
        with self._lock:
            return session.seal(found)

    def _page(self, gift: Gift, after: int) -> Page:
        parts = gift.parts[max(after, 0) : max(after, 0) + PAGE_RUNS]
        now = self._pool.clock()
        ages = [max(now - p.run.born, 0.0) for p in parts]
        return Page([p.meta for p in parts], len(gift.parts), gift.total_bytes, ages)

    def _read(self, gift: Gift, versions: list[int], credit: int) -> Parcel:
        parcel, size, most = Parcel([], []), 0, min(credit, PARCEL_BYTES)
        by = {p.meta.version: p for p in gift.parts}
        for version in versions:
            part = by.get(version)
            with self._pool.lock:
                if part is None or not part.run.copies:
                    parcel.refused.append((version, "gone"))
                    continue
                if size + part.meta.size_bytes > (most if size else credit):
                    break
                code, raw = self._bytes(part)
            if code:
                parcel.refused.append((version, code))
            else:
                parcel.runs.append((version, raw))
                size += len(raw)
        self.sent_bytes += size
        return parcel

    def _bytes(self, part: Part) -> tuple[str, bytes]:
        pool, slot = self._pool, part.meta.slot_bytes
        tier = next(t for t in pool.order if t in part.run.copies)  # it may have been brought up meanwhile
        if code := pool.closed(part.run.space, tier):
            return code, b""
        try:
            raw = pool.tiers[tier].read(part.run.meta, part.run.copies[tier].place)
            return "", raw[part.first * slot : (part.first + part.meta.blocks) * slot]
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
