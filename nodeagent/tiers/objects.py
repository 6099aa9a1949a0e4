"""Decides how a run is kept outside memory: as one encrypted object, and where the half of its key lies.

An object is one run under one data key, AES-256-GCM. The data key is derived from the generation's `enc` subkey and a
random value in the agent's key file; the value is not in the object, so destroying it makes this one object
unreadable, and destroying `enc` makes all of the generation's unreadable. Used by `disk` and `valkey`.
"""

import hashlib
import hmac
import os
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kvcore.keys import framed
from kvcore.wire import UNREADABLE
from nodeagent.tiers.base import RUN_BLOCKS_MAX, BlockRefused, Bytes, EncKey, RunMeta, verify_run

MAGIC = b"KVO1"
_FRONT = struct.Struct("<4sI16s")
"""magic, bytes of the header, first 16 bytes of the header's SHA-256."""
FRONT_BYTES = _FRONT.size
_NONCE, _TAG = 12, 16
ID_BYTES = 16
VALUE_BYTES = 32
_RECORD = ID_BYTES + VALUE_BYTES
BLANK = bytes(_RECORD)
"""What is in the key file where a value was destroyed."""


class Parsed(NamedTuple):
    """An object whose front and header are whole; its content is still sealed."""

    meta: RunMeta
    body_at: int
    size: int


def data_key(enc: bytes, value: bytes, name: bytes) -> bytes:
    """The key of one object."""
    return hmac.digest(enc, framed(b"kvconsole/object/v1", value, name), "sha256")


def object_seal(meta: RunMeta, raw: Bytes, *, enc: bytes, value: bytes, name: bytes) -> bytes:
    """The object: front, header (authenticated, not secret: it names blocks by their keyed names), sealed content."""
    room = Room()
    size = object_into(room, meta, raw, enc=enc, value=value, name=name)
    return bytes(room.view(size))


class Room:
    """Bytes that are used again, so that nobody waits for pages of new ones. They grow, and hold what is sealed."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def view(self, size: int) -> memoryview:
        """The first `size` bytes; what was there before stays, if they need not grow for it."""
        if len(self._bytes) < size:
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]

    def same(self, size: int, as_: memoryview) -> bool:
        """Whether the first `size` bytes are these."""
        return size == len(as_) and self._bytes.startswith(as_)


def object_into(room: Room, meta: RunMeta, raw: Bytes, *, enc: bytes, value: bytes, name: bytes) -> int:
    """Puts the object at the start of the room and answers its size: sealed there, and never copied."""
    if meta.blocks > RUN_BLOCKS_MAX:
        raise ValueError(f"an object has at most {RUN_BLOCKS_MAX} blocks")
    header = msgspec.msgpack.encode(meta)
    front = _FRONT.pack(MAGIC, len(header), hashlib.sha256(header).digest()[:16]) + header
    nonce = secrets.token_bytes(_NONCE)
    at = len(front) + _NONCE
    size = at + len(raw) + _TAG
    view = room.view(size)
    view[:at] = front + nonce
    AESGCM(data_key(enc, value, name)).encrypt_into(nonce, raw, front + name, view[at:])
    return size


def object_parse(head: bytes) -> Parsed:
    """What the first bytes of an object say.

    Raises:
        BlockRefused: it is not an object of ours, or its header was damaged.
    """
    if len(head) < FRONT_BYTES:
        raise BlockRefused("length")
    magic, length, digest = _FRONT.unpack_from(head)
    header = head[FRONT_BYTES : FRONT_BYTES + length]
    if magic != MAGIC:
        raise BlockRefused("magic")
    if len(header) != length or hashlib.sha256(header).digest()[:16] != digest:
        raise BlockRefused("header")
    try:
        meta = msgspec.msgpack.decode(header, type=RunMeta)
    except UNREADABLE:
        raise BlockRefused("header") from None
    at = FRONT_BYTES + length
    return Parsed(meta, at, at + _NONCE + meta.size_bytes + _TAG)


def object_open(meta: RunMeta, blob: bytes, *, enc: bytes, value: bytes, name: bytes) -> bytes:
    """The run's sealed blocks, all checked.

    Raises:
        BlockRefused: any bit of the object differs from what was written, or it is another run's.
    """
    parsed = object_parse(blob)
    if len(blob) != parsed.size:
        raise BlockRefused("length")
    front, nonce = blob[: parsed.body_at], blob[parsed.body_at : parsed.body_at + _NONCE]
    sealed = memoryview(blob)[parsed.body_at + _NONCE :]
    try:
        raw = AESGCM(data_key(enc, value, name)).decrypt(nonce, sealed, front + name)
    except InvalidTag:
        raise BlockRefused("seal") from None
    return verify_run(meta, raw)


class KeyFile:
    """One random value per object, in fixed records of one private file; a destroyed one is overwritten with zeros.

    Values are on the medium before the object they belong to has its name, and are gone from it before the object is.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._values: dict[bytes, tuple[int, bytes]] = {}
        self._free: list[int] = []
        size = os.fstat(self._fd).st_size
        blob = os.pread(self._fd, size, 0)
        for number in range(size // _RECORD):
            record = blob[number * _RECORD : (number + 1) * _RECORD]
            if any(record[:ID_BYTES]):
                self._values[record[:ID_BYTES]] = (number, record[ID_BYTES:])
            else:
                self._free.append(number)
        self._next = size // _RECORD

    def create(self, count: int, *, durable: bool = True) -> list[tuple[bytes, bytes]]:
        """New (object name, value) pairs; they are durable when this returns, or else after `sync`."""
        made = []
        for _ in range(count):
            name, value = secrets.token_bytes(ID_BYTES), secrets.token_bytes(VALUE_BYTES)
            number = self._free.pop() if self._free else self._next
            self._next = max(self._next, number + 1)
            os.pwrite(self._fd, name + value, number * _RECORD)
            self._values[name] = (number, value)
            made.append((name, value))
        if durable:
            self.sync()
        return made

    def sync(self) -> None:
        """What was made is durable when this returns. May be called from any thread."""
        os.fsync(self._fd)

    def value(self, name: bytes) -> bytes:
        """The value of an object.

        Raises:
            BlockRefused: it was destroyed; the object can never be read again.
        """
        if name not in self._values:
            raise BlockRefused("destroyed")
        return self._values[name][1]

    def destroy(self, names: list[bytes]) -> list[bytes]:
        """Overwrites the values; durable when this returns. Answers what is read back of each, from the file.

        An unknown name is no error: nothing (b"") is read of it. What is read is `BLANK` where the value is gone.
        """
        numbers = [self._values.pop(name, (None, b""))[0] for name in names]
        for number in numbers:
            if number is not None:
                os.pwrite(self._fd, BLANK, number * _RECORD)
                self._free.append(number)
        os.fsync(self._fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)  # so that the medium is read, not the cache
        return [b"" if n is None else os.pread(self._fd, _RECORD, n * _RECORD) for n in numbers]

    def names(self) -> set[bytes]:
        """All objects that have a value."""
        return set(self._values)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def open_with(enc_key: EncKey, keys: KeyFile, meta: RunMeta, name: bytes, blob: bytes) -> bytes:
    """The run in `blob`, opened with the leased key and the object's value.

    Raises:
        LeaseOver: the generation's keys are not leased.
        BlockRefused: the object is not what was written.
    """
    return object_open(meta, blob, enc=enc_key(meta.ns, meta.gen), value=keys.value(name), name=name)


class NewObject(NamedTuple):
    """What an object that is about to be made is sealed with."""

    name: bytes
    value: bytes
    enc: bytes


def names_with(enc_key: EncKey, keys: KeyFile, metas: list[RunMeta], *, durable: bool = True) -> list[NewObject]:
    """Name and keys of an object for each run; the values are durable, or else after the key file's `sync`.

    Raises:
        LeaseOver: nothing was made.
    """
    encs = [enc_key(meta.ns, meta.gen) for meta in metas]
    made = keys.create(len(metas), durable=durable)
    return [NewObject(name, value, enc) for enc, (name, value) in zip(encs, made, strict=True)]


def seal_with(enc_key: EncKey, keys: KeyFile, runs: Sequence[tuple[RunMeta, Bytes]]) -> list[tuple[bytes, bytes]]:
    """(name, object) of each run; the values are durable.

    Raises:
        LeaseOver: nothing was made.
    """
    made = names_with(enc_key, keys, [meta for meta, _ in runs])
    return [
        (new.name, object_seal(meta, raw, enc=new.enc, value=new.value, name=new.name))
        for (meta, raw), new in zip(runs, made, strict=True)
    ]
