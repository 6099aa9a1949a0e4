"""Decides which namespace generations this node may work on now: leases, fences, ticket keys. Keys in memory only.

Leases last five minutes and are renewed at half of their life; when one is over, nothing new of its namespace is
served, stored or published. Fences come on every answer and with commands; they are applied and durable before they are
acknowledged, and outlive the process: what returns clears what they cover before it serves or publishes.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime

import httpx
import msgspec

from kvcore.blocks import TIERS
from kvcore.messages import Fence
from kvcore.wire import UNREADABLE
from nodeagent.budget import Pin, Policy, policies_of
from nodeagent.journal import JournalFull
from nodeagent.tiers.base import LeaseOver

ASK_AGAIN_SECONDS = 1.0
"""Least time between two requests for leases, whoever asks."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Subkeys of one namespace generation, until `until` (Unix seconds)."""

    ns: bytes
    gen: int
    block_tokens: int
    blk: bytes
    enc: bytes
    salt_tag: bytes
    until: float
    tenant: str = ""
    barred: dict[str, str] = {}
    """Tiers that may not hold its blocks, and why."""
    metered: bool = False
    """Its tenant's bytes are limited: without an allowance nothing of it is kept."""
    pins: tuple[Pin, ...] = ()


class _PinLine(msgspec.Struct, frozen=True):
    until: str | float
    keys: list[str] | None = None


class _LeaseLine(msgspec.Struct, frozen=True):
    namespace: str
    generation: int
    subkeys: dict[str, str]
    until: str | float
    block_tokens: int = 16
    salt_tag: str = ""
    tenant: str = ""
    barred: dict[str, str] = {}
    metered: bool = False
    pins: list[_PinLine] = []


class _DeniedLine(msgspec.Struct, frozen=True):
    namespace: str
    tenant: str
    reason: str


class _FenceLine(msgspec.Struct, frozen=True):
    namespace: str
    min_gen: int | str


class _LeaseAnswer(msgspec.Struct, frozen=True):
    leases: list[_LeaseLine]
    fence_seq: int = 0
    fences_after: list[_FenceLine] = []
    ticket_key: str | None = None
    denied: list[_DeniedLine] = []


class KeyRing:
    """Leases and fences of this process. Methods are safe from any thread."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        known: Iterable[Fence] = (),
        keep: Callable[[list[Fence]], None] = lambda fences: None,
    ) -> None:
        """A ring without leases.

        Args:
            known: fences of earlier lives. What is acknowledged begins at 0 all the same, so that the console tells all
                of its own again: it may have been restored meanwhile, and would number new ones like old ones.
            keep: makes fences durable; raises `JournalFull` where it cannot.
        """
        self.heard = False
        """The console has answered this process, and what it answered of fences is applied."""
        self.unkept = 0
        """How often fences could not be made durable; they hold in memory, and are not acknowledged."""
        self.fence_seq = 0
        """What is applied; told with every frame."""
        self.ticket_keys: tuple[bytes, ...] = ()
        """Today's, and the one before it for tickets still on their way."""
        self.on_fence: Callable[[], None] = lambda: None
        """Called before new fences are acknowledged."""
        self.on_policies: Callable[[dict[bytes, Policy]], None] = lambda policies: None
        """Called with what leases say of their namespaces, before they can be used."""
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: dict[tuple[bytes, int], Lease] = {}
        self._ended = False
        """A lease was ended by a fence: its namespace has a new generation to be leased."""
        self._min_gen: dict[bytes, int] = {f.ns: f.min_gen for f in known}
        self._keep = keep
        self._keeping = threading.Lock()
        self._not_kept: dict[bytes, int] = {}
        """Fences that are not durable yet."""

    @property
    def fences(self) -> int:
        """Namespaces that have a fence here."""
        return len(self._min_gen)

    def lease(self, ns: bytes, gen: int) -> Lease:
        """The lease of a namespace generation.

        Raises:
            LeaseOver: there is none now, or the generation is fenced.
        """
        lease = self._leases.get((ns, gen))
        if lease is None or lease.until <= self._clock() or self.fenced(ns, gen):
            raise LeaseOver("no lease for this namespace generation")
        return lease

    def enc(self, ns: bytes, gen: int) -> bytes:
        """The `enc` subkey, see `lease`."""
        return self.lease(ns, gen).enc

    def live(self) -> list[Lease]:
        """All leases that are not over."""
        now = self._clock()
        with self._lock:
            return [x for x in self._leases.values() if x.until > now]

    def fenced(self, ns: bytes, gen: int) -> bool:
        """Whether the generation is below the namespace's `min_gen`."""
        return gen < self._min_gen.get(ns, 0)

    def grant(self, leases: Iterable[Lease]) -> None:
        """Takes new leases; those of fenced generations are not taken."""
        leases = list(leases)
        self.on_policies(policies_of((x.ns, x.tenant, x.barred, x.metered, x.pins) for x in leases))
        with self._lock:
            for lease in leases:
                self._ended = False
                if not self.fenced(lease.ns, lease.gen):
                    self._leases[lease.ns, lease.gen] = lease

    def deny(self, denied: Iterable[tuple[bytes, str, str]]) -> None:
        """Namespaces (with tenant and reason) of which nothing may be here: their leases end, what is here leaves."""
        lines = list(denied)
        shut = {ns for ns, _, _ in lines}
        with self._lock:
            self._leases = {k: x for k, x in self._leases.items() if k[0] not in shut}
        self.on_policies(policies_of((ns, tenant, dict.fromkeys(TIERS, why), False, ()) for ns, tenant, why in lines))

    def fence(self, fence_seq: int, fences: Iterable[Fence]) -> bool:
        """Raises `min_gen`s and drops the leases below them; acknowledged only when that is done and durable.

        False if they could not be made durable: they hold, and are not acknowledged, so that they come again.
        """
        raised = False
        with self._lock:
            for f in fences:
                if f.min_gen > self._min_gen.get(f.ns, 0):
                    self._min_gen[f.ns] = self._not_kept[f.ns] = f.min_gen
                    raised = True
                for key in [k for k in self._leases if k[0] == f.ns and k[1] < f.min_gen]:
                    del self._leases[key]
                    self._ended = True
        if raised:
            self.on_fence()
        if not self._kept():
            return False
        self.fence_seq = max(self.fence_seq, fence_seq)
        return True

    def _kept(self) -> bool:
        """Whether all fences are durable now."""
        with self._keeping:
            with self._lock:
                waiting = dict(self._not_kept)
            try:
                if waiting:
                    self._keep([Fence(ns=ns, min_gen=min_gen) for ns, min_gen in waiting.items()])
            except JournalFull:
                self.unkept += 1
                return False
            with self._lock:
                self._not_kept = {ns: m for ns, m in self._not_kept.items() if waiting.get(ns) != m}
            return True

    def drop(self, ns: bytes, gen_upto: int) -> bool:
        """Forgets the keys of the namespace's generations below; whether none of them is leased any more."""
        with self._lock:
            self._leases = {k: x for k, x in self._leases.items() if k[0] != ns or k[1] >= gen_upto}
            return not any(n == ns and gen < gen_upto for n, gen in self._leases)

    def expire(self) -> None:
        """Forgets leases that are over, so that their keys are not in memory longer than they may be used."""
        now = self._clock()
        with self._lock:
            self._leases = {k: x for k, x in self._leases.items() if x.until > now}

    def due(self) -> bool:
        """Whether half of the shortest lease's life is over, there is none, or a fence has ended one."""
        if self._ended:
            return True
        left = min((x.until - self._clock() for x in self.live()), default=0.0)
        return left < 150.0

    def clear(self) -> None:
        """Forgets all keys."""
        with self._lock:
            self._leases, self.ticket_keys = {}, ()


class LeaseKeeper:
    """Asks the console for leases of all namespaces placed on this node."""

    def __init__(self, ring: KeyRing, client: httpx.AsyncClient, url: str, *, clock: Callable[[], float] = time.time):
        self._ring, self._client, self._url, self._clock = ring, client, url, clock
        self._asked, self._turn = 0.0, asyncio.Lock()
        self.failures = 0
        """Requests in a row that brought nothing."""
        self._hurry = False

    async def renew(self) -> bool:
        """Leases asked for after this call began, at most one request a second; True if they came.

        A console that is away is no error: what is leased stays leased.
        """
        came = self._clock()
        async with self._turn:
            if self._asked >= came:
                return not self.failures  # another caller has asked meanwhile
            await asyncio.sleep(max(0.0, self._asked + ASK_AGAIN_SECONDS - self._clock()))
            self._asked = self._clock()
            return await self._ask()

    async def _ask(self) -> bool:
        held = [{"namespace": x.ns.hex(), "generation": x.gen} for x in self._ring.live()]
        body = {"held": held, "fence_seq": self._ring.fence_seq, "all": True}
        try:
            answer = await self._client.post(self._url, json=body)
            answer.raise_for_status()
            parsed = msgspec.json.decode(answer.content, type=_LeaseAnswer)
            leases = [_lease(line) for line in parsed.leases]
            fences = [Fence(ns=bytes.fromhex(f.namespace), min_gen=int(f.min_gen)) for f in parsed.fences_after]
            denied = [(bytes.fromhex(d.namespace), d.tenant, d.reason) for d in parsed.denied]
        except (httpx.HTTPError, *UNREADABLE, ValueError, KeyError):
            self.failures += 1
            return False
        self.failures = 0
        await asyncio.to_thread(self._ring.fence, parsed.fence_seq, fences)
        await asyncio.to_thread(self._ring.deny, denied)
        await asyncio.to_thread(self._ring.grant, leases)
        if parsed.ticket_key is not None:
            key = bytes.fromhex(parsed.ticket_key)
            self._ring.ticket_keys = (key, *[k for k in self._ring.ticket_keys if k != key][:1])
        self._ring.heard = True
        return True

    def hurry(self) -> None:
        """What leases say of their namespaces is out of date: they are renewed now."""
        self._hurry = True

    async def keep(self) -> None:
        """Renews when it is due; for ever."""
        while True:
            self._ring.expire()
            if self._ring.due() or self._hurry:
                self._hurry = not await self.renew() and self._hurry
            await asyncio.sleep(ASK_AGAIN_SECONDS if self.failures < 5 else 5.0)


def _lease(line: _LeaseLine) -> Lease:
    return Lease(
        ns=bytes.fromhex(line.namespace), gen=line.generation, block_tokens=line.block_tokens,
        blk=bytes.fromhex(line.subkeys["blk"]), enc=bytes.fromhex(line.subkeys["enc"]),
        salt_tag=bytes.fromhex(line.salt_tag), until=_seconds(line.until),
        tenant=line.tenant, barred=line.barred, metered=line.metered, pins=tuple(map(_pin, line.pins)),
    )  # fmt: skip


def _pin(line: _PinLine) -> Pin:
    keys = None if line.keys is None else frozenset(map(bytes.fromhex, line.keys))
    return Pin(_seconds(line.until), keys)


def _seconds(value: str | float) -> float:
    """Unix seconds of an RFC 3339 time or a number."""
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value
