"""Decides which salts a gateway may give to engines now, and for which tenant a client speaks.

A salt is used only while the lease of its namespace generation lasts and no fence that was heard of is above it; fences
are applied before they are acknowledged. Keys live in memory and nowhere else. Called by `kvc gateway`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import httpx
import msgspec

from kvconsole.cli.gateway_config import Secrets, key_hash
from kvcore.keys import engine_salt

USED_SECONDS = 900.0
"""Leases of namespaces that nobody asked for in so long are left to end."""
NOBODYS = "0" * 64
"""Named where nothing is in use: to name nothing would ask for everything. Fences are acknowledged all the same."""
ASK_AGAIN_SECONDS = 0.1
LEASE_SECONDS = 300.0
KNOWN_SECONDS, UNKNOWN_SECONDS, CALLERS = 10.0, 2.0, 10_000
"""How long a client's token is taken for what the console said of it, and how many are remembered."""


class Lease(msgspec.Struct, frozen=True):
    """One namespace generation, until `until` of this process's steady clock."""

    digest: str
    generation: int
    until: float


class _Line(msgspec.Struct, frozen=True):
    namespace: str
    generation: int
    subkeys: dict[str, str]
    until: datetime


class _Fence(msgspec.Struct, frozen=True):
    namespace: str
    min_gen: int | str


class _Answer(msgspec.Struct, frozen=True):
    leases: list[_Line]
    fence_seq: int = 0
    fences_after: list[_Fence] = []


class Ring:
    """The salts that may be used."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.fence_seq = 0
        """What is applied here; told with every renewal."""
        self._clock, self._wall = clock, wall
        self._leases: dict[str, Lease] = {}
        self._min_gen: dict[str, int] = {}
        self._used: dict[str, float] = {}

    def may(self, salt: str) -> bool:
        """Whether the salt may go to an engine now."""
        lease = self._leases.get(salt)
        if lease is None or not self._good(lease):
            return False
        self._used[lease.digest] = self._clock()
        return True

    def has(self, digest: str) -> bool:
        """Whether some generation of the namespace is leased now."""
        return any(lease.digest == digest and self._good(lease) for lease in self._leases.values())

    def want(self, digest: str) -> None:
        """The namespace is in use: its lease is renewed with the others."""
        self._used[digest] = self._clock()

    def held(self) -> list[dict[str, Any]]:
        """What the next renewal asks for."""
        now = self._clock()
        self._used = {digest: at for digest, at in self._used.items() if now - at < USED_SECONDS}
        generations = {lease.digest: lease.generation for lease in self._leases.values() if self._good(lease)}
        named = sorted(self._used) or [NOBODYS]
        return [{"namespace": digest, "generation": generations.get(digest, 0)} for digest in named]

    def take(self, answer: _Answer, *, asked: float) -> None:
        """Fences are applied, then leases counted from when they were asked for, and only then acknowledged.

        Args:
            answer: of the console.
            asked: on the steady clock, before the console was asked: a lease never seems longer than it is.
        """
        for fence in answer.fences_after:
            self._min_gen[fence.namespace] = max(int(fence.min_gen), self._min_gen.get(fence.namespace, 0))
        passed = self._clock() - asked
        for line in answer.leases:
            lasts = min(line.until.timestamp() - self._wall() + passed, LEASE_SECONDS)
            salt = engine_salt(bytes.fromhex(line.subkeys["salt"]))
            self._leases[salt] = Lease(line.namespace, line.generation, asked + lasts)
        self._leases = {salt: lease for salt, lease in self._leases.items() if self._good(lease)}
        self.fence_seq = max(self.fence_seq, answer.fence_seq)

    def count(self) -> int:
        """How many leases last."""
        return sum(map(self._good, self._leases.values()))

    def _good(self, lease: Lease) -> bool:
        return lease.until > self._clock() and lease.generation >= self._min_gen.get(lease.digest, 0)


class Keeper:
    """Asks the console for leases of the namespaces that are in use, and acknowledges fences with it."""

    def __init__(self, ring: Ring, client: httpx.AsyncClient, url: str, token: str) -> None:
        self.ring, self.failures = ring, 0
        self._client, self._url = client, f"{url.rstrip('/')}/api/v1/key-leases"
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._turn, self._asked = asyncio.Lock(), -ASK_AGAIN_SECONDS

    async def renew(self) -> bool:
        """Leases and fences that were asked for after this call began are applied; False: the console did not say."""
        came = time.monotonic()
        async with self._turn:
            if self._asked > came:
                return not self.failures  # another caller's question covers this one
            await asyncio.sleep(max(0.0, self._asked + ASK_AGAIN_SECONDS - time.monotonic()))
            self._asked = time.monotonic()
            return await self._ask(self._asked)

    async def _ask(self, asked: float) -> bool:
        body = {"held": self.ring.held(), "fence_seq": self.ring.fence_seq}
        try:
            answer = await self._client.post(self._url, json=body, headers=self._headers, timeout=10.0)
            answer.raise_for_status()
            self.ring.take(msgspec.json.decode(answer.content, type=_Answer), asked=asked)
        except (httpx.HTTPError, msgspec.MsgspecError, ValueError, KeyError):
            self.failures += 1
            return False
        self.failures = 0
        return True

    async def keep(self, seconds: float) -> None:
        """Renews every so many seconds, and at once again what was heard of as fenced: acknowledging it; for ever."""
        while True:
            told = self.ring.fence_seq
            came = await self.renew()
            if came and self.ring.fence_seq > told:
                continue
            await asyncio.sleep(seconds if came else min(seconds, 1.0))


class Callers:
    """For which tenant a client speaks: by its API key, or by a tenant's token of the console."""

    def __init__(
        self, secrets: Secrets, client: httpx.AsyncClient, url: str, *, tokens: bool, most: int = CALLERS
    ) -> None:
        self._tenants, self._client, self._url = dict(secrets.tenants), client, f"{url.rstrip('/')}/api/v1/me"
        self._tokens, self._most = tokens, most
        self._known: OrderedDict[str, tuple[float, str | None]] = OrderedDict()
        self._asking = asyncio.Semaphore(8)

    async def tenant(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The tenant's slug; None: the client is not known.

        Raises:
            httpx.HTTPError: it shows a token, and the console does not say whose it is.
        """
        kind, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        key = key.strip()
        if kind.casefold() != "bearer" or not key or len(key) > 512:
            return None
        digest = key_hash(key)
        if (slug := self._tenants.get(digest)) is not None:
            return slug
        if not self._tokens or not key.startswith("kvc_"):
            return None
        return await self._asked(key, digest)

    async def _asked(self, key: str, digest: str) -> str | None:
        until, slug = self._known.get(digest, (0.0, None))
        if until > time.monotonic():
            return slug
        async with self._asking:
            answer = await self._client.get(self._url, headers={"Authorization": f"Bearer {key}"}, timeout=5.0)
        if answer.status_code in (401, 403):
            slug = None
        else:
            answer.raise_for_status()
            said = msgspec.json.decode(answer.content, type=_Me)
            good = said.kind != "user" and not {"tenant-admin", "tenant-member", "gateway"}.isdisjoint(said.roles)
            slug = said.tenant if good else None
        self._known[digest] = (time.monotonic() + (KNOWN_SECONDS if slug else UNKNOWN_SECONDS), slug)
        self._known.move_to_end(digest)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return slug


class _Me(msgspec.Struct, frozen=True):
    kind: str
    tenant: str | None = None
    roles: Iterable[str] = ()
