"""A log, its proof files and its bundles, made from `docs/bundle.md` alone: nothing of the code under test is used."""

import base64
import hashlib
import hmac
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Change = Callable[[dict[str, Any]], None]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def jcs(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def tree(hashes: list[bytes]) -> bytes:
    """The definition of RFC 6962."""
    if len(hashes) < 2:
        return hashes[0] if hashes else sha(b"")
    k = 1 << ((len(hashes) - 1).bit_length() - 1)
    return sha(b"\x01" + tree(hashes[:k]) + tree(hashes[k:]))


def path(m: int, hashes: list[bytes]) -> list[bytes]:
    if len(hashes) == 1:
        return []
    k = 1 << ((len(hashes) - 1).bit_length() - 1)
    if m < k:
        return [*path(m, hashes[:k]), tree(hashes[k:])]
    return [*path(m - k, hashes[k:]), tree(hashes[:k])]


def growth(m: int, hashes: list[bytes], whole: bool = True) -> list[bytes]:
    if m in (0, len(hashes)):
        return [] if whole or not m else [tree(hashes)]
    k = 1 << ((len(hashes) - 1).bit_length() - 1)
    if m <= k:
        return [*growth(m, hashes[:k], whole), tree(hashes[k:])]
    return [*growth(m - k, hashes[k:], False), tree(hashes[:k])]


def covers(low: int, high: int, hashes: list[bytes]) -> list[bytes]:
    """The largest perfect subtrees that are [low, high), left to right."""
    found = []
    while low < high:
        width = 1
        while low % (2 * width) == 0 and low + 2 * width <= high:
            width *= 2
        found.append(tree(hashes[low : low + width]))
        low += width
    return found


class Signer:
    """An Ed25519 key with a name, of a kind."""

    def __init__(self, name: str, seed: int, kind: int = 1) -> None:
        self.name, self.kind = name, kind
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.blob = bytes([kind]) + self.key.public_key().public_bytes_raw()
        self.id = sha(name.encode() + b"\n" + self.blob)[:4]
        self.vkey = f"{name}+{self.id.hex()}+{b64(self.blob)}"

    def line(self, text: str, time: int = 0) -> str:
        if self.kind == 4:
            signature = struct.pack(">Q", time) + self.key.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
        else:
            signature = self.key.sign(text.encode())
        return f"— {self.name} {b64(self.id + signature)}\n"


@dataclass
class Event:
    """One event, as a builder wants it."""

    body: dict[str, Any]
    person: dict[str, Any] | None = None
    shown: str = "disclosed"
    producer: int = 1
    seq: int | None = None
    time_us: int | None = None
    flags: int = 0
    kind: int = 0x0101


@dataclass
class Log:
    """Events, the leaves made of them, and the keys."""

    events: list[Event]
    origin: str = "kvconsole.example/log/test/1"
    seed: int = 1
    leaves: list[bytes] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    salts: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = Signer(self.origin, self.seed)
        self.export = Signer(f"{self.origin}/export", self.seed + 50)
        self.witness = Signer("witness.example/w1", self.seed + 100, 4)
        seqs: dict[int, int] = {}
        for index, event in enumerate(self.events):
            seq = event.seq or seqs.get(event.producer, 0) + 1
            seqs[event.producer] = seq
            salt = sha(b"salt" + struct.pack(">Q", index))
            commit = bytes(32)
            if event.person is not None:
                commit = hmac.digest(salt, b"kvconsole/audit-pii/v1\0" + jcs(event.person), "sha256")
            self.leaves.append(struct.pack(
                ">4sHHQQ16s16s16sBBHQ32s32s", b"KVAL", 1, event.kind, index,
                event.time_us or 1_790_000_000_000_000 + 1000 * index, sha(b"id%d" % index)[:16], sha(b"tenant")[:16],
                sha(b"actor")[:16], 1, event.flags | (event.person is not None), event.producer, seq,
                sha(b"kvconsole/audit-body/v1\0" + jcs(event.body)), commit))  # fmt: skip
            self.salts.append(salt)
            self.hashes.append(sha(b"\0" + self.leaves[-1]))

    def head(self, size: int | None = None, cosign: bool = True) -> str:
        size = len(self.leaves) if size is None else size
        text = f"{self.origin}\n{size}\n{b64(tree(self.hashes[:size]))}\n"
        return f"{text}\n{self.log.line(text)}" + (self.witness.line(text, 1_790_000_100) if cosign else "")

    def keys(self) -> str:
        return "".join(f"{one.vkey}\n" for one in (self.log, self.export, self.witness))

    def proof(self, index: int) -> str:
        lines = ["c2sp.org/tlog-proof@v1", f"extra {b64(self.leaves[index])}", f"index {index}"]
        return "\n".join([*lines, *map(b64, path(index, self.hashes))]) + f"\n\n{self.head(cosign=False)}"

    def person(self, index: int) -> bytes:
        return jcs({"data": self.events[index].person, "salt": b64(self.salts[index])})

    def record(self, index: int, inclusion: bool) -> bytes:
        event = self.events[index]
        line: dict[str, Any] = {"body": event.body, "index": index, "leaf": b64(self.leaves[index])}
        if event.person is not None:
            line["pii"] = json.loads(self.person(index)) if event.shown == "disclosed" else event.shown
        if inclusion:
            line["proof"] = [b64(one) for one in path(index, self.hashes)]
        return jcs(line) + b"\n"


def files_of(log: Log, *, first: int = 0, last: int | None = None, proof: str = "range",
             chosen: Iterable[int] | None = None, previous: int | None = None) -> dict[str, bytes]:  # fmt: skip
    """The files of a bundle but manifest and signature."""
    last = len(log.leaves) - 1 if last is None else last
    chosen = range(first, last + 1) if chosen is None else chosen
    files = {"events.jsonl": b"".join(log.record(i, proof == "inclusion") for i in chosen),
             "checkpoint": log.head().encode(), "keys.txt": log.keys().encode()}  # fmt: skip
    if proof == "range":
        sides = {"left": covers(0, first, log.hashes), "right": covers(last + 1, len(log.hashes), log.hashes)}
        files["edges.json"] = jcs({side: [b64(h) for h in hashes] for side, hashes in sides.items()})
        files["hashes.bin"] = b"".join(log.hashes[first : last + 1])
    if previous is not None:
        files["checkpoint.prev"] = log.head(previous).encode()
        files["consistency.txt"] = "".join(f"{b64(h)}\n" for h in growth(previous, log.hashes)).encode()
    files["renderings/events.csv"] = b"index\r\n" + b"".join(b"%d\r\n" % i for i in chosen)
    files["README.md"] = b"# Read docs/bundle.md\n"
    return files


def packed(data: bytes) -> bytes:
    press = zlib.compressobj(6, zlib.DEFLATED, -15)
    return press.compress(data) + press.flush()


def build(log: Log, *, first: int = 0, last: int | None = None, proof: str = "range",
          chosen: Iterable[int] | None = None, previous: int | None = None, deflate: Iterable[str] = ("events.jsonl",),
          files: dict[str, bytes] | None = None, change: Change | None = None) -> dict[str, Any]:  # fmt: skip
    """A bundle in parts: the files, in order, with manifest and signature, and which of them are to be deflated.

    `files` replaces what was made; `change` changes the manifest before it is signed.
    """
    last = len(log.leaves) - 1 if last is None else last
    chosen = None if chosen is None else list(chosen)
    made = files_of(log, first=first, last=last, proof=proof, chosen=chosen, previous=previous) | (files or {})
    records = last + 1 - first if chosen is None else len(chosen)
    listed = []
    for name, data in made.items():
        one: dict[str, Any] = {"path": name, "sha256": sha(data).hex(), "bytes": len(data)}
        if name in deflate:
            one["packed"] = {"bytes": len(packed(data)), "sha256": sha(packed(data)).hex()}
        if name == "events.jsonl":
            one["rows"] = records
        listed.append(one)
    manifest: dict[str, Any] = {
        "v": 1, "kind": "kv-console-bundle", "origin": log.origin, "proof": proof, "records": records, "filters": {},
        "range": {"first": first, "last": last}, "gaps": [], "schemas": {"leaf": 1},
        "full": proof == "range" and chosen is None,
        "generator": "the test", "files": listed,
        "previous": None if previous is None else {"manifest_sha256": "0" * 64, "size": previous},
    }  # fmt: skip
    if change:
        change(manifest)
    made["manifest.json"] = jcs(manifest)
    text = f"kvconsole/bundle/v1\n{log.origin}\n{sha(made['manifest.json']).hex()}\n"
    made["manifest.sig"] = f"{text}\n{log.export.line(text)}".encode()
    return {"files": made, "deflate": set(deflate)}


def zipped(bundle: dict[str, Any]) -> bytes:
    """The zip, as Python's own module writes it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as out:
        for name, data in bundle["files"].items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            kind = zipfile.ZIP_DEFLATED if name in bundle["deflate"] else zipfile.ZIP_STORED
            out.writestr(info, data, kind, 6 if kind else None)
    return held.getvalue()


def sample(count: int, seed: int = 1, origin: str = "kvconsole.example/log/test/1") -> Log:
    """A log of ordinary events: three producers, personal data in each form."""
    shown = ("disclosed", "sealed", "shredded")
    return Log([
        Event(
            body={"action": "tenant.changed", "actor": {"kind": "user", "roles": ["operator"]},
                  "data": {"note": f"größer “{n}”", "ratio": 0.5}, "object": {"id": f"t-{n}", "kind": "tenant"},
                  "outcome": "success", "request_id": f"r-{n}"},
            person={"email": f"{n}@example.org"} if n % 5 == 0 else None,
            shown=shown[n // 5 % 3],
            producer=n % 3,
        )
        for n in range(count)
    ], seed=seed, origin=origin)  # fmt: skip
