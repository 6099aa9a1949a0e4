"""Decides how the tier `remote` keeps runs: as encrypted objects in a Valkey or Redis that does not persist.

Each batch asks for the server's run id in the same round trip: a new one means that everything was lost, which is a
reset of this owner alone. Several agents may share a server; each has its own prefix and its own cap.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import valkey
from valkey.exceptions import ResponseError, ValkeyError

from kvcore.blocks import Tier
from nodeagent.tiers.base import (
    BlockRefused,
    Bytes,
    EncKey,
    Look,
    Lying,
    RunMeta,
    Stored,
    TierDown,
    TierFull,
    TierReset,
)
from nodeagent.tiers.objects import BLANK, ID_BYTES, KeyFile, object_parse, open_with, seal_with

_HEAD_BYTES = 16 * 1024
_SCAN = 1000
_HEADS = 500
"""Objects whose heads are read in one round trip."""


class ValkeyTier:
    """Objects under `kvc:<node>:`. A place is the object's name (16 bytes)."""

    name = Tier.REMOTE
    persistent = True  # it outlives the agent, not its own server
    encrypted = True
    emulated = False

    def __init__(
        self, url: str, *, node: str, capacity_bytes: int, keys: KeyFile, enc_key: EncKey, timeout_seconds: float = 2.0
    ) -> None:
        self._client = _connect(url, timeout_seconds)
        self._prefix = prefix_of(node)
        self._keys, self._enc_key = keys, enc_key
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.boot = ""
        """Names the server's present life; empty until it was reached."""

    def probe(self) -> None:
        """Passes if the server answers and is still the same life.

        Raises:
            TierDown, TierReset.
        """
        self._run([])

    def _run(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The answers, if the server's life is the one we know."""
        try:
            with self._client.pipeline(transaction=False) as pipe:
                pipe.info("server")
                for command in commands:
                    pipe.execute_command(*command)  # type: ignore[no-untyped-call]
                info, *answers = pipe.execute(raise_on_error=False)  # type: ignore[no-untyped-call]
        except (ValkeyError, OSError) as e:
            raise TierDown(f"{self.name}: {type(e).__name__}") from None
        if not isinstance(info, dict):
            raise TierDown(f"{self.name}: {type(info).__name__}")
        boot = str(uuid.UUID(info["run_id"][:32]))
        if boot != self.boot:
            raise TierReset(boot)
        return list(answers)

    def adopt(self, boot: str) -> None:
        """Takes a life of the server as the present one; what was held in an earlier one is forgotten."""
        self.boot = boot
        self.used_bytes = 0

    def write(self, runs: Sequence[tuple[RunMeta, Bytes]]) -> list[bytes]:
        """Stores one object per run in one round trip."""
        size = sum(meta.size_bytes for meta, _ in runs)
        if self.used_bytes + size > self.capacity_bytes:
            raise TierFull(f"{self.name}: the batch does not fit")
        objects = seal_with(self._enc_key, self._keys, runs)
        names = [name for name, _ in objects]
        try:
            answers = self._run([("SET", self._prefix + name, blob) for name, blob in objects])
        except (TierDown, TierReset):
            self._keys.destroy(names)
            raise
        if any(isinstance(a, ResponseError) for a in answers):  # out of memory, read only, no rights
            self._run([("DEL", *[self._prefix + n for n in names])])
            self._keys.destroy(names)
            raise TierFull(f"{self.name}: refused by the server")
        self.used_bytes += size
        return names

    def read(self, meta: RunMeta, place: bytes) -> bytes:
        """The run, opened and checked."""
        (blob,) = self._run([("GET", self._prefix + place)])
        if not isinstance(blob, bytes):
            raise BlockRefused("missing")
        return open_with(self._enc_key, self._keys, meta, place, blob)

    def free(self, runs: Sequence[tuple[RunMeta, bytes]]) -> None:
        """Destroys the objects' values, then deletes the objects; without an answer they stay there unreadable."""
        if not runs:
            return
        self._keys.destroy([place for _, place in runs])
        self.used_bytes -= sum(meta.size_bytes for meta, _ in runs)
        self._run([("DEL", *[self._prefix + place for _, place in runs])])

    def erase(self, runs: Sequence[tuple[RunMeta, bytes]], look: Look) -> None:
        """Destroys values and objects, then asks for each object again."""
        self.used_bytes -= sum(meta.size_bytes for meta, _ in runs)
        self.scour([place for _, place in runs], look)

    def scour(self, places: Sequence[bytes], look: Look) -> None:
        """Destroys objects by name, of whichever life of the agent, and asks for each again."""
        if not places:
            return
        read = self._keys.destroy([p for p in places if len(p) == ID_BYTES])
        names = [self._prefix + place for place in places]
        _, *answers = self._run([("DEL", *names), *[("GET", name) for name in names]])
        blank = all(value in (b"", BLANK) for value in read)
        for name, answer in zip(names, answers, strict=True):
            seen = answer if isinstance(answer, bytes) else repr(answer).encode()
            look.saw(name + b"=" + seen, clean=answer is None and blank)

    def remains(self, places: Sequence[bytes]) -> list[bytes]:
        """Objects that are there now."""
        answers = self._run([("EXISTS", self._prefix + place) for place in places])
        return [place for place, there in zip(places, answers, strict=True) if there]

    def lying(self, without: Collection[object] = ()) -> Iterator[Lying]:
        """Each object under our prefix, also of earlier lives of the agent, and what its header says."""
        return self.lying_of(self._prefix, without)

    def lying_of(self, prefix: bytes, without: Collection[object] = ()) -> Iterator[Lying]:
        """The same for a prefix that may be another node's."""
        names = [name for k in _scan(self._client, prefix) if (name := k[len(prefix) :]) not in without]
        for at in range(0, len(names), _HEADS):
            part = names[at : at + _HEADS]
            heads = self._run([("GETRANGE", prefix + n, 0, _HEAD_BYTES) for n in part])
            for name, head in zip(part, heads, strict=True):
                if head == b"":  # it went while we looked
                    continue
                try:
                    meta = object_parse(head).meta
                except (BlockRefused, TypeError):  # or the server answered something else than bytes
                    meta = None
                yield Lying(meta, name)

    def stored(self) -> Iterable[Stored]:
        """What an earlier agent process left here and can still be opened; the rest is deleted."""
        lying, known = list(self.lying()), self._keys.names()
        found = [Stored(x.meta, x.place) for x in lying if x.meta is not None and x.place in known]
        dead = {x.place for x in lying} - {x.place for x in found}
        if dead:
            self._run([("DEL", *[self._prefix + n for n in dead])])
        self.used_bytes = sum(x.meta.size_bytes for x in found)
        return sorted(found, key=lambda x: x.meta.depth)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()  # type: ignore[no-untyped-call]


def prefix_of(node: str) -> bytes:
    """What the names of a node's objects begin with."""
    return f"kvc:{node}:".encode()


def raw_of(url: str, node: str, *, timeout_seconds: float = 2.0) -> Iterator[bytes]:
    """Name and content of each object of a node, as they lie in the server.

    Raises:
        TierDown.
    """
    client = _connect(url, timeout_seconds)
    try:
        for name in _scan(client, prefix_of(node)):
            content = client.get(name)
            yield name + b"=" + (content if isinstance(content, bytes) else b"")
    except (ValkeyError, OSError) as e:
        raise TierDown(f"remote: {type(e).__name__}") from None
    finally:
        client.close()  # type: ignore[no-untyped-call]


def _connect(url: str, timeout_seconds: float) -> valkey.Valkey:
    return valkey.Valkey.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)


def _scan(client: valkey.Valkey, prefix: bytes) -> list[bytes]:
    try:
        return list(client.scan_iter(match=prefix + b"*", count=_SCAN))
    except (ValkeyError, OSError) as e:
        raise TierDown(f"remote: {type(e).__name__}") from None
