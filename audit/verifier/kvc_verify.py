#!/usr/bin/env python3
# fmt: off
"""Checks, offline and without trusting the console, what KV Console says its audit log holds.

Standard library only (`cryptography` is used where it is there); Python 3.9 or later. Formats and the order of checks:
docs/bundle.md. Nothing is written, unpacked or asked of a network.
    kvc_verify.py bundle FILE|DIR --keys keys.txt
    kvc_verify.py proof FILE --body BODY --key VKEY
    kvc_verify.py consistency OLD NEW --proof FILE --key VKEY
Exit: 0 valid, 1 invalid, 2 malformed or wrong usage, 3 incomplete (nothing is wrong, something is missing).
"""
from __future__ import annotations

import argparse
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import re
import struct
import sys
import zlib
from array import array
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any

EXITS = {"valid": 0, "invalid": 1, "malformed": 2, "incomplete": 3}
MOST_SMALL, MOST_LINE, MOST_FILES, MOST_UNPACKED = 4 << 20, 4 << 20, 64, 64 << 30
CLOCK_BACK_US, CHUNK = 5_000_000, 1 << 18
class Wrong(Exception):
    """Something is not as it was signed; `code` says what, `place` where."""
    def __init__(self, code: str, detail: str = "", **place: Any) -> None:
        self.code, self.detail, self.place = code, detail, place
class Malformed(Wrong):
    """It is nothing this verifier knows."""
@contextlib.contextmanager
def at(**place: Any) -> Iterator[None]:
    """What goes wrong in here went wrong at this place, where nobody knows better."""
    try:
        yield
    except Wrong as e:
        e.place = {**place, **e.place}
        raise
def need(true: Any, code: str, detail: str = "", wrong: type[Wrong] = Wrong, **place: Any) -> None:
    """Else something is wrong."""
    if not true:
        raise wrong(code, detail, **place)
# --- plain forms -----------------------------------------------------------------------------------------------------
NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
def number(text: str) -> int:
    """A decimal number below 10^18, written in the one way there is."""
    need(NUMBER.fullmatch(text), "number", "a decimal number is wanted")
    return int(text)
def unb64(text: str, length: int = -1) -> bytes:
    """Bytes of base64, written in the one way there is."""
    try:
        data = binascii.a2b_base64(text)
    except (binascii.Error, ValueError):
        raise Wrong("base64") from None
    need(binascii.b2a_base64(data, newline=False).decode() == text, "base64", "it can be written in another way")
    need(length in (-1, len(data)), "length", f"{len(data)} bytes, not {length}")
    return data
def hashes_of(found: Any) -> list[bytes]:
    """Hashes of 32 bytes out of a list of base64."""
    good = isinstance(found, list) and len(found) <= 64 and all(isinstance(one, str) for one in found)
    need(good, "hashes", "a list of at most 64 hashes is wanted")
    return [unb64(one, 32) for one in found]
def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) == len(pairs):
        return found
    raise Wrong("json", "a key stands twice")
def _integer(text: str) -> int:
    if len(text) > 15 and (len(text) > 17 or abs(int(text)) >= 1 << 53):
        raise ValueError("a number is too large")
    return int(text)
def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
DECODER: Any = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
def json_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at a place, and where it ends."""
    try:
        return DECODER.scan_once(text, start)  # type: ignore[no-any-return]
    except (ValueError, RecursionError, StopIteration) as e:
        raise Wrong("json", str(e) or "a value is wanted") from None
def json_of(data: bytes) -> Any:
    """The JSON value that is the whole of the bytes."""
    text = utf8(data)
    found, end = json_at(text, 0)
    need(end == len(text), "json", f"something follows after character {end}")
    return found
def utf8(data: bytes) -> str:
    """The text of the bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise Wrong("utf-8", f"byte {e.start}") from None
def printable(value: Any) -> str:
    """Text of somebody else, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "�" for c in str(value))[:300]
# --- Ed25519 (RFC 8032), verifying only: no secrets, so nothing to keep from a clock ----------------------------------
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT_M1 = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]
def _x_of(y: int, sign: int) -> int | None:
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * ROOT_M1 % P
    return None if x * x % P != square or (x == 0 and sign) else P - x if x & 1 != sign else x
def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P
BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = _x_of(BASE_Y, 0) or 0
BASE: Point = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)
def ed25519_slow(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is good; a few milliseconds."""
    y, s = int.from_bytes(public, "little"), int.from_bytes(signature[32:], "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if len(public) != 32 or len(signature) != 64 or s >= L or y >= P or (x := _x_of(y, sign)) is None:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % L
    minus: Point = (P - x, y, 1, (P - x) * y % P)
    steps, sum_ = (None, minus, BASE, _add(BASE, minus)), (0, 1, 1, 0)
    for bit in range(252, -1, -1):  # s·B − k·A in one pass
        sum_ = _add(sum_, sum_)
        if step := steps[(s >> bit & 1) * 2 + (k >> bit & 1)]:
            sum_ = _add(sum_, step)
    inverse = pow(sum_[2], P - 2, P)
    return (sum_[1] * inverse % P | (sum_[0] * inverse % P & 1) << 255).to_bytes(32, "little") == signature[:32]
def ed25519(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is good."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        return Ed25519PublicKey.from_public_bytes(public).verify(signature, message) is None
    except ImportError:
        return ed25519_slow(public, signature, message)
    except Exception:  # InvalidSignature, or what cannot be a key: nothing but a good signature is good
        return False
# --- the tree (RFC 6962) and the leaf ---------------------------------------------------------------------------------
EMPTY_ROOT = hashlib.sha256(b"").digest()
def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()
def included(leaf_hash: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """Whether the path shows the leaf at this place of the tree with this root (RFC 9162 §2.1.3)."""
    inner = (index ^ (size - 1)).bit_length()  # so many steps are taken inside the tree, the rest at its right edge
    if not 0 <= index < size or len(path) != inner + bin(index >> inner).count("1"):
        return False
    for n, step in enumerate(path):
        leaf_hash = node_hash(step, leaf_hash) if n >= inner or index >> n & 1 else node_hash(leaf_hash, step)
    return leaf_hash == root
def consistent(old: int, new: int, path: list[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the path shows that the new tree begins with the old one (RFC 9162 §2.1.4)."""
    if old == new or old == 0:
        return not path and old_root == (new_root if old == new else EMPTY_ROOT)
    low = (old & -old).bit_length() - 1  # the old tree ends with a perfect subtree of this height
    inner, mask = ((old - 1) ^ (new - 1)).bit_length() - low, (old - 1) >> low
    steps = [old_root, *path] if old == 1 << low else path
    if old > new or len(steps) != 1 + inner + bin(mask >> inner).count("1"):
        return False
    before = after = steps[0]
    for n, step in enumerate(steps[1:]):
        if n >= inner or mask >> n & 1:
            before, after = node_hash(step, before), node_hash(step, after)
        else:
            after = node_hash(after, step)
    return before == old_root and after == new_root
class Run:
    """The tree from its left edge on: what a run of leaf hashes makes of it."""
    def __init__(self, first: int, left: list[bytes]) -> None:
        levels = [level for level in range(63, -1, -1) if first >> level & 1]
        need(len(levels) == len(left), "edges", f"{len(levels)} subtrees stand left, not {len(left)}", field="left")
        self.size, self.stack = first, [(level, left[n]) for n, level in enumerate(levels)]
    def append(self, found: bytes, level: int = 0) -> None:
        """The next subtree stands in the tree."""
        self.size += 1 << level
        stack, sha256 = self.stack, hashlib.sha256
        while stack and stack[-1][0] == level:
            found = sha256(b"\x01" + stack.pop()[1] + found).digest()
            level += 1
        stack.append((level, found))
    def root(self, size: int, right: list[bytes]) -> bytes:
        """The root of the whole tree, with what stands right of the run."""
        for one in right:
            need(self.size < size, "edges", "too many subtrees stand right of the range", field="right")
            level = (size - self.size).bit_length() - 1
            self.append(one, min(level, (self.size & -self.size).bit_length() - 1) if self.size else level)
        need(self.size == size, "edges", "too few subtrees stand right of the range", field="right")
        found = self.stack[-1][1] if self.stack else EMPTY_ROOT
        for _, one in reversed(self.stack[:-1]):
            found = node_hash(one, found)
        return found
LEAF = struct.Struct(">6sHQQ16s32xBBHQ32s32s")  # tenant and actor are passed over: only who has their keys knows them
Leaf = namedtuple("Leaf", "head event_type log_index time_us event_id outcome flags producer_id producer_seq body_hash"
                          " pii_commit")
OUTCOMES = ("unknown", "success", "failure", "denied")
FLAG_PII, FLAG_LATE, NO_PII, BODY = 1, 8, bytes(32), b"kvconsole/audit-body/v1\0"
def leaf_of(data: bytes) -> Leaf:
    """What the 148 bytes of a leaf say."""
    if len(data) != LEAF.size:
        raise Wrong("length", f"{len(data)} bytes, not {LEAF.size}", field="leaf")
    found = Leaf._make(LEAF.unpack(data))
    flagged = found.flags & FLAG_PII == (found.pii_commit != NO_PII)
    if found.head != b"KVAL\0\1" or found.outcome > 3 or found.flags > 63 or not flagged:
        raise Wrong("leaf", "magic, version, outcome or flags", field="leaf")
    return found
def pii_state(text: str, leaf: Leaf) -> str:
    """disclosed (and as committed to), sealed or shredded."""
    if not leaf.flags & FLAG_PII or not (text in ('"sealed"', '"shredded"') or text.startswith('{"data":{')):
        raise Wrong("pii", "the leaf commits to none, or data and salt, sealed or shredded is wanted", field="pii")
    if text[0] == '"':
        return text[1:-1]
    with at(field="pii"):
        end = json_at(text, 8)[1]
        found = re.fullmatch(r',"salt":"([A-Za-z0-9+/=]*)"\}', text[end:])
        salt = unb64(found[1], 32) if found else b""
        said = hmac.digest(salt, b"kvconsole/audit-pii/v1\0" + text[8:end].encode("utf-8"), "sha256")
        need(found and said == leaf.pii_commit, "pii", "it is not what the leaf commits to")
        return "disclosed"
# --- keys, notes and checkpoints (C2SP) -------------------------------------------------------------------------------
Key = namedtuple("Key", "name kind public key_id")  # kind 1: Ed25519; 4: Ed25519 with a time, of a witness
Note = namedtuple("Note", "text signatures first")  # signatures: (name, key id, the rest); first: their first line
Head = namedtuple("Head", "origin size root note")
KEY_NAME = re.compile(r"[^+\s\x00-\x1f]+")
def key_of(text: str) -> Key:
    """The key of a vkey."""
    name, _, rest = text.partition("+")
    key_id, _, blob = rest.partition("+")
    data = unb64(blob, 33)
    found = hashlib.sha256(name.encode() + b"\n" + data).digest()[:4]
    need(KEY_NAME.fullmatch(name) and data[0] in (1, 4) and key_id == found.hex(), "key", "no vkey of an Ed25519 key")
    return Key(name, data[0], data[1:], found)
def keys_of(text: str) -> list[Key]:
    """The keys of a file, one a line."""
    found = []
    for line, one in enumerate(text.splitlines(), 1):
        if one.strip() and not one.startswith("#"):
            with at(line=line):
                found.append(key_of(one.strip()))
    return found
def note_of(data: bytes) -> Note:
    """A signed note, unchecked."""
    text, found, tail = utf8(data).rpartition("\n\n")
    need(found and tail.endswith("\n"), "note", "text, an empty line and signatures are wanted")
    lines, first, signatures = tail[:-1].split("\n"), text.count("\n") + 3, []
    need(not any(ord(c) < 32 and c != "\n" for c in text), "note", "control characters")
    need(len(lines) <= 64, "note", "too many signatures")
    for line, one in enumerate(lines, first):
        with at(line=line, field="signature"):
            name, _, blob = one[2:].partition(" ")
            raw = unb64(blob)
            need(one.startswith("— ") and KEY_NAME.fullmatch(name) and len(raw) >= 68, "note", "no signature line")
            signatures.append((name, raw[:4], raw[4:]))
    return Note(text + "\n", signatures, first)
def signers(note: Note, keys: Iterable[Key]) -> tuple[list[str], list[dict[str, Any]]]:
    """Who of the known signed the note, and which witnesses when. One bad signature of a known key refuses it."""
    known, by, witnesses = {(key.name, key.key_id): key for key in keys}, [], []
    for line, (name, key_id, blob) in enumerate(note.signatures, note.first):
        if not (key := known.get((name, key_id))):
            continue
        message = note.text
        if key.kind == 4:
            time, blob = int.from_bytes(blob[:8], "big"), blob[8:]
            message = f"cosignature/v1\ntime {time}\n{note.text}"
            witnesses.append({"name": name, "time": time})
        else:
            by.append(name)
        twice = [one[:2] for one in note.signatures].count((name, key_id)) > 1
        good = not twice and len(blob) == 64 and ed25519(key.public, blob, message.encode())
        need(good, "signature", f"of {name}" + ", twice" * twice, line=line, field="signature")
    return by, witnesses
def head_of(data: bytes) -> Head:
    """A checkpoint (what the log says of itself), unchecked."""
    note = note_of(data)
    lines = note.text.split("\n")
    need(len(lines) == 4 and KEY_NAME.fullmatch(lines[0]), "checkpoint", "origin, size and root are wanted", line=1)
    with at(line=2, field="size"):
        size = number(lines[1])
    with at(line=3, field="root"):
        return Head(lines[0], size, unb64(lines[2], 32), note)
EPOCH = re.compile(
    rf"kvconsole/epoch/v1\nold (\S+) ({NUMBER.pattern}) ([0-9a-f]{{64}})\nkept ({NUMBER.pattern}) ([0-9a-f]{{64}})\n"
    r"new (\S+)\nexport (\S+)\napproval [0-9a-f-]{36}\napprovers ([0-9a-f]{32}) (?!\8)[0-9a-f]{32}\nat \S{20}\n"
    r"reason [a-z-]+\n", re.ASCII)
Epoch = namedtuple("Epoch", "old size root kept kept_root new export note")  # a log ended, another goes on after it
def epoch_of(text: str) -> Epoch:
    """The record by which a log goes on after another one, signed by the keys of both."""
    note = note_of(text.encode())
    if not (m := EPOCH.fullmatch(note.text)):
        raise Wrong("epoch", "it is no record of a log that goes on after another one")
    old, new, export = key_of(m[1]), key_of(m[6]), key_of(m[7])
    both = sorted(signers(note, [old, new])[0]) == sorted([old.name, new.name]) and len(note.signatures) == 2
    need(both and int(m[4]) <= int(m[2]) and export.name == f"{new.name}/export", "epoch", "signatures, sizes or names")
    return Epoch(old, int(m[2]), bytes.fromhex(m[3]), int(m[4]), bytes.fromhex(m[5]), new, export, text)
class Trust:
    """The keys the caller named, or, where none were, those of the bundle itself."""
    def __init__(self, given: list[Key], report: Report) -> None:
        self.given, self.report, self.own = given, report, list[Key]()
    def learn(self, epochs: list[Epoch]) -> None:
        """The keys of logs that go on after one whose key was given."""
        for n, one in enumerate(epochs):
            need(n == 0 or epochs[n - 1].new == one.old, "epoch", "the logs do not go on after each other")
            known = one.old in self.given
            need(known or one.old[:2] not in {key[:2] for key in self.given}, "epoch", "not by the key that was given")
            self.given = self.given + [one.new, one.export] * (known and "\nreason key-stolen\n" not in one.note)
            what = f"{one.new.name} goes on after {one.old.name}: of {one.size} leaves {one.kept} were kept"
            self.report.add("remarks", "new-epoch", what)
    def of(self, origin: str, role: str) -> list[Key]:
        """The keys that may sign for a log in a role: log or export, or witness."""
        if role == "witness":
            return [key for key in self.given or self.own if key.kind == 4 and key.name != origin]
        wanted = (origin + ("/export" if role == "export" else ""), 1)
        keys = [key for key in self.given if key[:2] == wanted]
        need(keys or not self.given or role == "export", "another-log", f"no key that was given is of {origin}")
        if not keys:
            keys = [key for key in self.own if key[:2] == wanted]
            self.report.facts["keys"] = "bundle" if keys else "none"
            self.report.add("reasons", "keys-not-given", f"no key for {role} was given, so " + (
                "the bundle's own was used: that proves only that it agrees with itself" if keys
                else "no signature was checked"))
        return keys
    def head(self, data: bytes, file: str, quorum: int = 0, told: str = "log") -> Head:
        """A checkpoint that the log signed; what it says is told in the report."""
        with at(file=file):
            found = head_of(data)
            keys = self.of(found.origin, "log")
            by, witnesses = signers(found.note, keys + self.of(found.origin, "witness"))
            need(by or not keys, "unsigned", f"no known key of {found.origin} signed it")
        if len(witnesses) < quorum:
            self.report.add("reasons", "quorum", f"{len(witnesses)} known witnesses cosigned, not {quorum}", file=file)
        root = binascii.b2a_base64(found.root, newline=False).decode()
        self.report.facts[told] = {
            "origin": found.origin, "size": found.size, "root": root, "signed_by": by, "witnesses": witnesses}
        return found
# --- the files of a bundle --------------------------------------------------------------------------------------------
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)
LOCAL, CENTRAL, END = struct.Struct("<4sHHHHHIIIHH"), struct.Struct("<4sHHHHHHIIIHHHHHII"), struct.Struct("<4sHHHHIIH")
ATTRIBUTES, ELSEWHERE = 0o100644 << 16, (1 << 32) - 1
BIG = ELSEWHERE  # sizes and places from here on stand in fields of 64 bits (zip64), and smaller ones never do
Entry = namedtuple("Entry", "start method crc packed size")
def checked_name(name: str, others: Iterable[str]) -> str:
    """A name no file system does anything unexpected with, and no other file has."""
    need(len(name) <= 200 and NAME.fullmatch(name), "name", "it is no name of a bundle's file", file=printable(name))
    need(name.lower() not in {other.lower() for other in others}, "name", "it stands twice", file=name)
    return name
def headers(name: bytes, method: int, crc: int, packed: int, size: int, here: int) -> tuple[bytes, bytes]:
    """Both headers of a file, in the one form there is."""
    big, far = max(packed, size) >= BIG, max(packed, size, here) >= BIG
    def fixed(wide: bool, extra: int) -> tuple[int, ...]:
        sizes = (ELSEWHERE, ELSEWHERE) if wide else (packed, size)
        return 45 if wide else 20, 0, method, 0, 33, crc, *sizes, len(name), extra * wide
    local = LOCAL.pack(b"PK\3\4", *fixed(big, 20)) + name + struct.pack("<HHQQ", 1, 16, size, packed) * big
    central = CENTRAL.pack(b"PK\1\2", 0x314, *fixed(far, 28), 0, 0, 0, ATTRIBUTES, ELSEWHERE if far else here) + name
    return local, central + struct.pack("<HHQQQ", 1, 24, size, packed, here) * far
def _piece(path: str, start: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)
class Zip:
    """A zip in the one form a bundle has; whatever differs from it is refused, byte by byte."""
    def __init__(self, path: str) -> None:
        self.path, self.bytes, self.entries = path, os.stat(path).st_size, dict[str, Entry]()
        self._read: Callable[[int, int], bytes] = lambda start, length: _piece(path, start, length)
        zipped = self._read(0, 4) == b"PK\3\4" or self._read(max(0, self.bytes - END.size), 4) == b"PK\5\6"
        need(zipped, "not-a-bundle", "it is no zip", Malformed)
        need(self.bytes < MOST_UNPACKED, "too-large", "a bundle has less than 64 GiB", Malformed)
        self._walk()
    def _walk(self) -> None:
        here, directory = 0, []
        while (head := self._read(here, LOCAL.size))[:4] == b"PK\3\4" and len(head) == LOCAL.size:
            _, _, _, method, _, _, crc, packed, size, length, extra = LOCAL.unpack(head)
            with at(byte=here):
                name = self._read(here + LOCAL.size, min(length, 201)).decode("ascii", "replace")
                checked_name(name, self.entries)
                start = here + LOCAL.size + length + extra
                if extra == 20 and len(more := self._read(start - 16, 16)) == 16:
                    size, packed = struct.unpack("<QQ", more)
                local, central = headers(name.encode(), method, crc, packed, size, here)
                self._same(here, local, name)
                fits = method in (0, 8) and (method or packed == size) and start + packed <= self.bytes
                need(fits and len(self.entries) < MOST_FILES + 2, "zip", "method, sizes or count", file=name)
            self.entries[name] = Entry(start, method, crc, packed, size)
            directory.append(central)
            here = start + packed
        begin, whole, end = here, b"".join(directory), b""
        count, length, here = len(directory), len(whole), here + len(whole)
        if begin >= BIG:
            end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0x314, 45, 0, 0, count, count, length, begin)
            end += struct.pack("<4sIQI", b"PK\6\7", 0, here, 1)
        end += END.pack(b"PK\5\6", 0, 0, count, count, length, ELSEWHERE if begin >= BIG else begin, 0)
        self._same(begin, whole + end, "")
        need(here + len(end) == self.bytes, "zip", "something follows after its end", byte=here + len(end))
    def _same(self, start: int, wanted: bytes, name: str) -> None:
        found = self._read(start, len(wanted))
        if found != wanted:
            bad = next((n for n, byte in enumerate(found) if byte != wanted[n]), len(found))
            raise Wrong("zip", f"it is not in the one form a bundle has, near {name or 'its end'}", byte=start + bad)
    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file as the zip holds them."""
        here, left = self.entries[name].start, self.entries[name].packed
        while left and (piece := self._read(here, min(left, CHUNK))):
            here, left = here + len(piece), left - len(piece)
            yield piece
class Directory:
    """A bundle that was unpacked."""
    def __init__(self, path: str) -> None:
        self.path, self.entries = path, dict[str, Entry]()
        for folder, folders, names in os.walk(path):
            for name in sorted(names + [one for one in folders if os.path.islink(os.path.join(folder, one))]):
                whole = os.path.join(folder, name)
                short, plain = os.path.relpath(whole, path).replace(os.sep, "/"), not os.path.islink(whole)
                plain = plain and os.path.isfile(whole) and len(self.entries) < MOST_FILES + 2
                need(plain, "directory", "no plain file, or too many of them", file=short)
                self.entries[checked_name(short, self.entries)] = Entry(0, 0, 0, *[os.path.getsize(whole)] * 2)
        need("manifest.json" in self.entries, "not-a-bundle", "no manifest.json in it", Malformed)
    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        return (_piece(os.path.join(self.path, name), here, CHUNK) for here in range(0, self.entries[name].size, CHUNK))
class Content:
    """The unpacked bytes of one file, and at the end whether they were those of zip and manifest."""
    def __init__(self, source: Zip | Directory, name: str) -> None:
        need(name in source.entries, "missing", "the file is not there", file=name)
        self.source, self.name, self.entry = source, name, source.entries[name]
        self.whole, self.packed, self.size, self.crc, self.fault = hashlib.sha256(), hashlib.sha256(), 0, 0, ""
        self.stream = self._unpacked() if self.entry.method else map(self._seen, source.pieces(name))
    def _unpacked(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj(-15)
        try:
            for piece in self.source.pieces(self.name):
                self.packed.update(piece)
                while piece and not self.fault:
                    yield self._seen(unpack.decompress(piece, CHUNK))
                    piece = unpack.unconsumed_tail
                    if unpack.unused_data or self.size > self.entry.size:
                        self.fault = "the packed bytes hold more than the file"
            while not self.fault and not unpack.eof and (out := unpack.decompress(b"", CHUNK)):
                yield self._seen(out)
            self.fault = self.fault or ("" if unpack.eof else "the packed bytes end too soon")
        except zlib.error:
            self.fault = "the packed bytes cannot be unpacked"
    def _seen(self, data: bytes) -> bytes:
        self.whole.update(data)
        self.size, self.crc = self.size + len(data), zlib.crc32(data, self.crc)
        return data
    def lines(self) -> Iterator[bytes]:
        """The lines, without their ends."""
        rest, count = b"", 0
        for piece in self.stream:
            found = (rest + piece).split(b"\n")
            rest, count = found.pop(), count + len(found)
            need(len(rest) <= MOST_LINE, "line", "it is too long", line=count + 1)
            yield from found
        need(not rest, "line", "it does not end", line=count + 1)
    def hashes(self) -> Iterator[bytes]:
        """The file as hashes of 32 bytes."""
        rest = b""
        for piece in self.stream:
            rest += piece
            yield from [rest[here : here + 32] for here in range(0, len(rest) - 31, 32)]
            rest = rest[len(rest) - len(rest) % 32 :]
    def small(self) -> bytes:
        """All of it, if it is as small as it should be."""
        need(self.entry.size <= MOST_SMALL, "too-large", f"{self.entry.size} bytes", file=self.name)
        return b"".join(self.stream)
    def finish(self, said: dict[str, Any] | None = None) -> None:
        """The rest is read, and all of it is what zip and manifest say."""
        deque(self.stream, 0)
        zipped, now = isinstance(self.source, Zip), (self.size, self.whole.hexdigest())
        packed = {"bytes": self.entry.packed, "sha256": self.packed.hexdigest()} if self.entry.method else None
        with at(file=self.name):
            need(not self.fault and self.size == self.entry.size, "zip", self.fault or "the size of its content")
            need(not zipped or self.crc == self.entry.crc, "zip", "CRC-32 of its content")
            said = said or {"bytes": now[0], "sha256": now[1]}  # of the manifest and its signature, which are stored
            need(now == (said["bytes"], said["sha256"]), "sha256", "the content is not what the manifest says")
            need(not zipped or packed == said.get("packed"), "sha256", "packed, it is not what the manifest says")
# --- the bundle -------------------------------------------------------------------------------------------------------
SHA256 = {"bytes": int, "sha256": str}
SHAPE = {  # `?`: may be absent; a tuple: one of these
    "files": [{**SHA256, "packed?": SHA256, "path": str, "rows?": int}], "filters": dict, "full": bool,
    "gaps": [{"first": int, "index": (int, None), "last": int, "producer": int}], "generator": str, "kind": str,
    "origin": str, "previous": ({"manifest_sha256": str, "size": int}, None), "proof": str,
    "range": {"first": int, "last": int}, "records": int, "schemas": dict, "v": int}
EPOCHS = {"first": {"body": str, "leaf": str, "proof": list}, "records": [str]}
TAIL = re.compile(r',"index":(0|[1-9][0-9]{0,17}),"leaf":"([A-Za-z0-9+/]{197}[AQgw]==)"', re.ASCII)
def fits(value: Any, shape: Any) -> bool:
    """Whether a value has exactly this form; no number is below -1."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, dict):
        known = {name.rstrip("?"): one for name, one in shape.items()}
        there = isinstance(value, dict) and {n for n in shape if not n.endswith("?")} <= set(value) <= set(known)
        return there and all(fits(one, known[name]) for name, one in value.items())
    return value is None if shape is None else type(value) is shape and (shape is not int or value >= -1)
def manifest_form(found: Any) -> dict[str, dict[str, Any]]:
    """The files of a manifest that has its form: by name, in its order."""
    need(fits(found, SHAPE), "manifest", "it has not the form of one")
    files: dict[str, dict[str, Any]] = {}
    for one in found["files"]:
        files[checked_name(one["path"], files)] = one
    limits, full, ranged = found["range"], found["full"], found["proof"] == "range"
    need(ranged or (found["proof"] == "inclusion" and not full), "manifest", "no such proof", field="proof")
    count = limits["last"] - limits["first"] + 1
    good = limits["first"] >= 0 and count >= 0 and (found["records"] == count if full else found["records"] <= count)
    need(good, "manifest", "range and records do not fit", field="range")
    wanted = {"checkpoint", "events.jsonl", "keys.txt"} | ({"edges.json", "hashes.bin"} if ranged else set())
    wanted |= {"checkpoint.prev", "consistency.txt"} if found["previous"] else set()
    closed = {"checkpoint.prev", "consistency.txt", "edges.json", "hashes.bin", "manifest.json", "manifest.sig"}
    odd = (wanted - set(files)) | ((closed - wanted) & set(files))
    need(not odd and len(files) <= MOST_FILES, "manifest", f"files: {', '.join(sorted(odd))}", field="files")
    need(files["events.jsonl"].get("rows") == found["records"], "manifest", "rows of events.jsonl", field="files")
    return files
class Flow:
    """Numbers of producers and times, where every leaf of a range is there."""
    def __init__(self) -> None:
        self.seen: dict[int, array[int]] = defaultdict(lambda: array("Q"))
        self.newest, self.back, self.back_at = 0, 0, dict[str, int]()
    def take(self, leaf: Leaf, line: int) -> None:
        """One more leaf."""
        self.seen[leaf.producer_id].append(leaf.producer_seq)
        if leaf.time_us > self.newest:
            self.newest = 0 if leaf.flags & 32 else leaf.time_us  # what was not kept before is sealed behind it
        elif leaf.time_us < self.newest - CLOCK_BACK_US and not leaf.flags & FLAG_LATE:
            self.back_at = self.back_at or {"line": line, "index": leaf.log_index}
            self.back += 1
    def gaps(self, begins: dict[str, int] | None) -> list[dict[str, int]]:
        """What is missing; `begins`: the bundle begins where the log does, and each producer after this number (0)."""
        found = []
        for producer, numbers in sorted(self.seen.items()):
            base = begins.get(str(producer), 0) if begins is not None else min(numbers) - 1
            before = min(base, min(numbers) - 1)
            for one in sorted(numbers):
                if one == before:
                    raise Wrong("producer-twice", f"number {one} of producer {producer} stands twice")
                if one > (after := max(before, base) + 1):
                    found.append({"producer": producer, "first": after, "last": one - 1})
                before = one
        return found
class Bundle:
    """The check of one bundle."""
    def __init__(self, path: str, trust: Trust, quorum: int = 0) -> None:
        self.trust, self.report, self.quorum, self.flow = trust, trust.report, quorum, Flow()
        self.source: Zip | Directory = Directory(path) if os.path.isdir(path) else Zip(path)
        self.small: Callable[[str], bytes] = lambda name: Content(self.source, name).small()
        self.personal, self.gone, self.done = {"disclosed": 0, "sealed": 0, "shredded": 0}, 0, set[str]()
        with at(file="keys.txt"):  # for when none were named
            trust.own = trust.own or keys_of(utf8(self.small("keys.txt")))
        self.epochs, self.first, self.before = list[Epoch](), dict[str, Any](), dict[str, int]()
        if "epochs.json" in self.source.entries:
            with at(file="epochs.json"):
                found = json_of(self.small("epochs.json"))
                need(fits(found, EPOCHS) and found["records"], "epoch", "first leaf and records are wanted")
                self.epochs, self.first = [epoch_of(one) for one in found["records"]], found["first"]
                trust.learn(self.epochs)
    def manifest(self) -> Any:
        """The manifest, signed by the export key."""
        raw, data = self.small("manifest.json"), self.small("manifest.sig")
        with at(file="manifest.json"):
            found = json_of(raw)
            need(isinstance(found, dict) and type(found.get("origin")) is str, "manifest", "an origin is wanted")
            origin = found["origin"]
            self.trust.of(origin, "log")
        with at(file="manifest.sig"):
            note = note_of(data)
            lines = note.text.split("\n")
            whole = (lines[0], len(lines), len(note.signatures)) == ("kvconsole/bundle/v1", 4, 1)
            need(whole, "note", "it is no signature of a bundle")
            keys = self.trust.of(origin, "export")
            need(signers(note, keys)[0] or not keys, "unsigned", "no known export key signed it")
            said = [origin, hashlib.sha256(raw).hexdigest()]
            need(lines[1:3] == said, "sha256", "it is not what was signed", file="manifest.json")
        for name in ("manifest.json", "manifest.sig"):
            Content(self.source, name).finish()
        known = found.get("v") == 1 and found.get("kind") == "kv-console-bundle"
        need(known, "version", "a newer verifier is wanted", Malformed, file="manifest.json")
        return found
    def check(self) -> None:
        """All of it, in the order of docs/bundle.md."""
        found = self.manifest()
        with at(file="manifest.json"):
            files = manifest_form(found)
        order = sorted if isinstance(self.source, Directory) else list
        names, there = order([*files, "manifest.json", "manifest.sig"]), order(self.source.entries)
        odd = sorted(set(names) ^ set(there))
        need(names == there, "files", "not the manifest's, or in another order", file=[*odd, "manifest.json"][0])
        fits = sum(entry.size for entry in self.source.entries.values()) <= MOST_UNPACKED
        need(fits, "too-large", "unpacked it would be more than 64 GiB")
        self.report.facts["range"] = {**found["range"], "full": found["full"], "proof": found["proof"]}
        try:
            self.log(found, files)
        except Wrong as e:
            self.report.problem(e)
        for name, said in files.items():
            try:
                if name not in self.done:
                    Content(self.source, name).finish(said)
            except Wrong as e:
                self.report.problem(e)
    def log(self, found: Any, files: dict[str, dict[str, Any]]) -> None:
        """Checkpoint, the one before, and the records."""
        head = self.trust.head(self.small("checkpoint"), "checkpoint", self.quorum)
        fits = head.origin == found["origin"] and head.size > found["range"]["last"]
        need(fits, "checkpoint", "of another log, or of one that is shorter than the range", file="checkpoint")
        self.begins(head)
        if found["previous"] is not None:
            before = self.trust.head(self.small("checkpoint.prev"), "checkpoint.prev", told="previous")
            if after := across(before, head, self.epochs, self.report):
                grown(before, after, self.small("consistency.txt"), "consistency.txt")
            need(before.size == found["previous"]["size"], "checkpoint", "not the manifest's", file="checkpoint.prev")
        content = Content(self.source, "events.jsonl")
        with at(file="events.jsonl"):
            (self.by_range if found["proof"] == "range" else self.by_paths)(found, head, content, files)
            self.done.add("events.jsonl")
            content.finish(files["events.jsonl"])
            self.conclude(found)
    def begins(self, head: Head) -> None:
        """A log that goes on after another one begins with the record that says so."""
        with at(file="epochs.json", index=0):
            for last in self.epochs[-1:]:
                data, body = unb64(self.first["leaf"]), self.first["body"].encode()
                leaf, path = leaf_of(data), hashes_of(self.first["proof"])
                good = included(hashlib.sha256(b"\0" + data).digest(), 0, head.size, path, head.root)
                good = good and (leaf.log_index, leaf.event_type, leaf.flags & 32) == (0, 0x0F09, 32)
                need(good and hashlib.sha256(BODY + body).digest() == leaf.body_hash, "epoch", "it does not begin so")
                told: Any = said.get("data") if isinstance(said := json_of(body), dict) else None
                good = isinstance(told, dict) and told.get("record") == last.note and last.new.name == head.origin
                need(good and isinstance(told.get("producers"), dict), "epoch", "its first leaf says something else")
                self.before = {name: n for name, n in told["producers"].items() if type(n) is int}
    def by_range(self, found: Any, head: Head, content: Content, files: dict[str, dict[str, Any]]) -> None:
        """The records against the hashes of the range, and these against the root."""
        first, count, hashes = found["range"]["first"], 1 + found["range"]["last"], Content(self.source, "hashes.bin")
        with at(file="edges.json"):
            edges = json_of(self.small("edges.json"))
            need(isinstance(edges, dict) and set(edges) == {"left", "right"}, "edges", "left and right are wanted")
            left, right = hashes_of(edges["left"]), hashes_of(edges["right"])
            run = Run(first, left)
        need(hashes.entry.size == 32 * (count - first), "length", "one hash for each leaf", file="hashes.bin")
        feed, append = hashes.hashes(), run.append
        for line, index, leaf_hash, rest in self.records(found, content):
            one = b""
            while run.size <= index:
                append(one := next(feed, b""))
            if leaf_hash != one or rest:
                raise Wrong("leaf", "not the one of hashes.bin, or more follows", line=line, index=index, field="leaf")
        deque(map(append, feed), 0)
        need(run.size == count, "length", "one hash for each leaf", file="hashes.bin")
        with at(file="edges.json"):
            root = run.root(head.size, right)
        need(root == head.root, "root", "hashes.bin and edges.json do not make the checkpoint's", file="hashes.bin")
        self.done.add("hashes.bin")
        hashes.finish(files["hashes.bin"])
    def by_paths(self, found: Any, head: Head, content: Content, files: dict[str, dict[str, Any]]) -> None:
        """Each record against the root, by its own path."""
        for line, index, leaf_hash, rest in self.records(found, content):
            with at(line=line, index=index, field="proof"):
                match = re.fullmatch(r',"proof":(\[[A-Za-z0-9+/=",]*\])', rest, re.ASCII)
                path = hashes_of(json_of(match[1].encode())) if match else []
                good = match and included(leaf_hash, index, head.size, path, head.root)
                need(good, "inclusion", "the path does not lead to the root of the checkpoint")
    def records(self, found: Any, content: Content) -> Iterator[tuple[int, int, bytes, str]]:
        """The records that are as they say: line, index, hash of the leaf, and what stands after it."""
        first, last, full = found["range"]["first"], found["range"]["last"], found["full"]
        before, line, sha256, scan = first - 1, 0, hashlib.sha256, DECODER.scan_once
        for raw in content.lines():
            line, index = line + 1, -1
            try:
                text = raw.decode()
                body, end = scan(text, 8)
                match = TAIL.match(text, end)
                if not match or text[:8] != '{"body":' or text[-1] != "}":
                    raise Wrong("record", "body, index and leaf are wanted")
                index, data = int(match[1]), binascii.a2b_base64(match[2])
                leaf = leaf_of(data)
                if leaf.log_index != index or index <= before or index > last or (full and index != before + 1):
                    raise Wrong("index", f"the leaf says {leaf.log_index}; after {before} of {last}", field="index")
                if body is None:
                    self.gone += 1
                elif sha256(BODY + text[8:end].encode()).digest() != leaf.body_hash or type(body) is not dict:
                    raise Wrong("body", "it is not what the leaf commits to", field="body")
                here = match.end()
                if text.startswith(',"pii":', here):
                    end = json_at(text, here + 7)[1]
                    self.personal[pii_state(text[here + 7 : end], leaf)] += 1
                    here = end
                elif leaf.flags & FLAG_PII:
                    raise Wrong("pii", "the leaf has a commitment, the record says nothing of it", field="pii")
            except (Wrong, ValueError, RecursionError, StopIteration) as e:
                found_ = e if isinstance(e, Wrong) else Wrong("json", str(e) or "a value is wanted", field="body")
                found_.place = {"line": line, **({} if index < 0 else {"index": index}), **found_.place}
                raise found_ from None
            before = index
            if full:
                self.flow.take(leaf, line)
            yield line, index, sha256(b"\0" + data).digest(), text[here:-1]
        self.report.facts["records"] = line
        need(line == found["records"], "records", f"{line}, not {found['records']}", line=line + 1)
    def conclude(self, found: Any) -> None:
        """What is missing, and what is worth a remark."""
        gaps = self.flow.gaps(self.before if found["range"]["first"] == 0 else None)
        for gap in gaps:
            told = [one["index"] for one in found["gaps"] if gap.items() <= one.items() and one["index"] is not None]
            more = f"; event {told[0]} tells of it" if told else ""
            detail = f"of producer {gap['producer']}, numbers {gap['first']} to {gap['last']}{more}"
            self.report.add("reasons", "producer-gap", detail)
        if self.gone:
            self.report.add("reasons", "body-not-kept", f"{self.gone} bodies were retired; their leaves are proven")
        if self.flow.back:
            detail = f"{self.flow.back} events are more than 5 s older than one before them, the first here"
            self.report.add("remarks", "clock-back", detail, file="events.jsonl", **self.flow.back_at)
        self.report.facts.update(personal_data=self.personal, gaps=gaps, retired=self.gone)
# --- proof and consistency --------------------------------------------------------------------------------------------
PROOF = "c2sp.org/tlog-proof@v1"
Proof = namedtuple("Proof", "leaf index path checkpoint")
def proof_of(data: bytes) -> Proof:
    """A proof file, as it was read."""
    need(data.startswith(PROOF.encode()) or b"\nindex " in data, "not-a-proof", f"it is no {PROOF}", Malformed)
    head, found, note = utf8(data).partition("\n\n")
    lines, path = head.split("\n"), []
    need(found and lines[0] == PROOF and 3 <= len(lines) <= 67, "proof", "it is not in the form of one", line=1)
    for line, field in ((2, "extra"), (3, "index")):
        need(lines[line - 1].startswith(f"{field} "), "proof", f"{field} is wanted", line=line, field=field)
    with at(line=2, field="extra"):
        leaf = unb64(lines[1][6:])
    with at(line=3, field="index"):
        index = number(lines[2][6:])
    for line, one in enumerate(lines[3:], 4):
        with at(line=line, field="path"):
            path.append(unb64(one, 32))
    return Proof(leaf, index, path, note.encode())
def check_proof(options: argparse.Namespace, trust: Trust) -> None:
    """One event is in the log."""
    report, found = trust.report, proof_of(small_file(options.file))
    with at(line=2, index=found.index, field="extra"):
        leaf = leaf_of(found.leaf)
    need(leaf.log_index == found.index, "index", f"the leaf says {leaf.log_index}", line=3, field="index")
    head = trust.head(found.checkpoint, "checkpoint", options.quorum)
    good = included(hashlib.sha256(b"\0" + found.leaf).digest(), found.index, head.size, found.path, head.root)
    need(good, "inclusion", "the path does not lead to the root of the checkpoint", index=found.index, field="path")
    report.facts["event"] = {"index": found.index, "event_type": leaf.event_type, "event_id": leaf.event_id.hex(),
                             "time_us": leaf.time_us, "outcome": OUTCOMES[leaf.outcome]}
    if options.body:
        body = small_file(options.body)
        more = "; it ends with a line feed that may not be the event's" * body.endswith(b"\n")
        with at(file=options.body, field="body"):
            need(hashlib.sha256(BODY + body).digest() == leaf.body_hash, "body", f"not what the leaf commits to{more}")
    else:
        report.add("remarks", "body-not-given", "only the leaf is proven: give its body with --body")
    if options.pii:
        with at(file=options.pii):
            report.facts["personal_data"] = {pii_state(utf8(small_file(options.pii)).strip(), leaf): 1}
def across(old: Head, new: Head, epochs: list[Epoch], report: Report) -> Head | None:
    """What the old log has to be a part of: the new one, or what was kept; None: something of it was not."""
    for one in epochs:
        if one.old.name == old.origin != new.origin:
            same = old.size < one.size or (old.size, old.root) == (one.size, one.root)
            need(same, "fork", f"of {old.origin} other leaves were signed than {one.new.name} says")
            if old.size <= one.kept:
                return Head(old.origin, one.kept, one.kept_root, old.note)
            report.add("reasons", "lost", f"{old.size - one.kept} leaves of {old.origin} were signed, and not kept")
            return None
    return new
def grown(old: Head, new: Head, proof: bytes, file: str) -> None:
    """The new tree begins with the old one."""
    path = []
    with at(file=file):
        need(old.origin == new.origin, "another-log", f"{old.origin} and {new.origin}")
        need(old.size <= new.size, "shrunk", f"{new.size} leaves after {old.size}")
        need(old.size != new.size or old.root == new.root, "fork", f"two trees of {old.size} leaves were signed")
        lines = utf8(proof).split("\n")
        need(lines.pop() == "", "line", "it does not end", line=len(lines) + 1)
        for line, one in enumerate(lines, 1):
            with at(line=line):
                path.append(unb64(one, 32))
        good = len(path) <= 64 and consistent(old.size, new.size, path, old.root, new.root)
        need(good, "consistency", f"the tree of {new.size} leaves does not begin with that of {old.size}")
def head_in(path: str, trust: Trust) -> tuple[bytes, Bundle | None]:
    """The checkpoint of a file of any kind, and the bundle it is from."""
    with contextlib.suppress(Malformed):
        return (bundle := Bundle(path, trust)).small("checkpoint"), bundle
    data = small_file(path)
    if data.startswith(PROOF.encode()):
        return proof_of(data).checkpoint, None
    need(b"\n\n" in data, "not-a-checkpoint", "", Malformed, file=path)
    return data, None
def check_consistency(options: argparse.Namespace, trust: Trust) -> None:
    """The log of the newer file begins with that of the older one."""
    (old_data, _), (new_data, bundle) = head_in(options.old, trust), head_in(options.new, trust)
    old, head = trust.head(old_data, options.old, told="previous"), trust.head(new_data, options.new, options.quorum)
    if bundle is not None:
        bundle.begins(head)
    if (new := across(old, head, bundle.epochs if bundle else [], trust.report)) is None:
        return
    proof, file = small_file(options.proof) if options.proof else b"", options.proof or options.new
    if not options.proof and bundle is not None and "checkpoint.prev" in bundle.source.entries:
        between = head_of(bundle.small("checkpoint.prev"))
        if (between.size, between.root) == (old.size, old.root):
            proof = bundle.small("consistency.txt")
    if proof or options.proof or not 0 < old.size < new.size or old.origin != new.origin:
        grown(old, new, proof, file)
    else:
        trust.report.add("reasons", "proof-not-given", f"from {old.size} to {new.size} leaves: give it with --proof")
# --- the command ------------------------------------------------------------------------------------------------------
def small_file(path: str) -> bytes:
    """A file that is as small as it should be."""
    with open(path, "rb") as file:
        data = file.read(MOST_SMALL + 1)
    need(len(data) <= MOST_SMALL, "too-large", "at most 4 MiB are wanted", Malformed, file=path)
    return data
class Report:
    """What was found, and the verdict it comes to."""
    def __init__(self, command: str, file: str) -> None:
        self.command, self.file, self.malformed = command, file, False
        self.facts: dict[str, Any] = {"keys": "given", "problems": [], "reasons": [], "remarks": []}
    def problem(self, found: Wrong) -> None:
        """Something is wrong."""
        self.malformed |= isinstance(found, Malformed)
        self.facts["problems"].append({"code": found.code, "detail": found.detail, **found.place})
    def add(self, kind: str, code: str, detail: str, **place: Any) -> None:
        """Something is missing (reasons), or worth a look (remarks)."""
        if {"code": code, "detail": detail, **place} not in (found := self.facts[kind])[-8:]:
            found.append({"code": code, "detail": detail, **place})
    @property
    def verdict(self) -> str:
        """valid, invalid, malformed or incomplete."""
        wrong = ("malformed" if self.malformed else "invalid") * bool(self.facts["problems"])
        return wrong or ("incomplete" if self.facts["reasons"] else "valid")
    def as_json(self) -> str:
        """All of it, for a machine."""
        head = {"verdict": self.verdict, "exit": EXITS[self.verdict], "command": self.command, "file": self.file}
        return json.dumps({**head, **self.facts}, indent=1)
    def as_text(self) -> str:
        """All of it, for a person; the verdict last."""
        lines, facts = [f"{self.command}: {printable(self.file)}"], self.facts
        for name, one in [(name, facts[name]) for name in ("previous", "log") if name in facts]:
            seen = ", ".join(f"{w['name']} at {w['time']}" for w in one["witnesses"]) or "no known witness"
            lines.append(f"{name}: {printable(one['origin'])}, {one['size']} leaves, root {one['root']}")
            lines.append(printable(f"  signed by {', '.join(one['signed_by']) or 'nobody known'}, {seen}"))
        if "records" in facts:
            what = "all leaves" if facts["range"]["full"] else "a selection of the leaves"
            lines.append(f"records: {facts['records']}, {what} {facts['range']['first']} to {facts['range']['last']}")
        for told, one in [(name, facts[name]) for name in ("event", "personal_data") if name in facts]:
            lines.append(f"{told.replace('_', ' ')}: " + ", ".join(f"{k} {v}" for k, v in one.items()))
        for word, found in (("remark", facts["remarks"]), ("missing", facts["reasons"]), ("WRONG", facts["problems"])):
            for one in found[:20]:
                place = ", ".join(f"{k} {printable(v)}" for k, v in one.items() if k not in ("code", "detail"))
                lines.append(f"{word}: {one['code']}: {printable(one['detail'])}" + (f" [{place}]" if place else ""))
        return "\n".join([*lines, self.verdict.upper()])
CHECKS = {"bundle": lambda options, trust: Bundle(options.file, trust, options.quorum).check(),
          "proof": check_proof, "consistency": check_consistency}
def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="kvc_verify", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, told, more in (
            ("bundle", "an export bundle, zip or directory", {}),
            ("proof", "a proof file of one event", {"--body": "the event's body, the bytes as they are stored",
                                                    "--pii": "its personal data, with its salt"}),
            ("consistency", "two checkpoints, proof files or bundles", {"--proof": "one base64 hash a line"})):
        one = commands.add_parser(name, help=told, description=f"Checks {told}.")
        for word in ("old", "new") if name == "consistency" else ("file",):
            one.add_argument(word)
        one.add_argument("--key", action="append", default=[], help="a key you trust (vkey)")
        one.add_argument("--keys", action="append", default=[], help="a file of such keys, one a line")
        one.add_argument("--quorum", type=int, default=0, help="so many witnesses must have cosigned")
        one.add_argument("--json", action="store_true", help="the report as JSON")
        for flag, what in more.items():
            one.add_argument(flag, help=what)
    return parser
def run(options: argparse.Namespace) -> Report:
    """Checks what was asked for; nothing is raised but what is a bug."""
    report = Report(options.command, options.new if options.command == "consistency" else options.file)
    try:
        try:
            given = keys_of("\n".join([*options.key, *(utf8(small_file(path)) for path in options.keys)]))
            need(given or not options.keys, "key", "no key is in the file")
        except Wrong as e:
            raise Malformed("key", "the keys to trust cannot be read", **e.place) from None
        CHECKS[options.command](options, Trust(given, report))
    except Wrong as e:
        report.problem(e)
    except OSError as e:
        report.problem(Malformed("file", e.strerror or "it cannot be read", file=e.filename))
    return report
def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    try:
        options = arguments().parse_args(argv)
    except SystemExit as e:
        return int(e.code or 0)
    report = run(options)
    print(report.as_json() if options.json else report.as_text())
    return EXITS[report.verdict]
if __name__ == "__main__":
    sys.exit(main())
