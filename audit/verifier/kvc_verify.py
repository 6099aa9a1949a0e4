#!/usr/bin/env python3
# fmt: off
# ruff: noqa: D101, D102, D103 - what something is for stands behind its name where there is room, else below it
"""Checks, offline and without trusting the console, what KV Console says its audit log holds.

One file, standard library only (`cryptography` is used where it is there): copy it, read it, run it with Python 3.9 or
later. Formats, and the order of the checks: docs/bundle.md, docs/certificate.md. Nothing is written, unpacked or asked.
    kvc_verify.py bundle FILE|DIR --keys keys.txt
    kvc_verify.py proof FILE --body BODY --key VKEY
    kvc_verify.py certificate FILE --keys keys.txt
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
class Wrong(Exception):  # something is not as it was signed; `code` says what, `place` where
    def __init__(self, code: str, detail: str = "", **place: Any) -> None:
        self.code, self.detail, self.place = code, detail, place
class Malformed(Wrong):
    """It is nothing this verifier knows."""
@contextlib.contextmanager
def at(code: str = "", *kinds: type[Exception], **place: Any) -> Iterator[None]:  # what goes wrong has its place
    try:
        yield
    except (Wrong, *kinds) as e:  # type: ignore[misc]
        wrong = e if isinstance(e, Wrong) else Wrong(code, str(e) or type(e).__name__)
        wrong.place = {**place, **wrong.place}
        raise wrong from None
def need(true: Any, code: str, detail: str = "", wrong: type[Wrong] = Wrong, **place: Any) -> None:  # else it is wrong
    if not true:
        raise wrong(code, detail, **place)
def read(how: Callable[..., Any], *what: Any, **place: Any) -> Any:  # what it makes of what is at this place
    with at(**place):
        return how(*what)
# --- plain forms -----------------------------------------------------------------------------------------------------
NUMBER = r"(0|[1-9][0-9]{0,17})"
def number(text: str) -> int:  # a decimal number below 10^18, written in the one way there is
    need(re.fullmatch(NUMBER, text, re.ASCII), "number", "a decimal number is wanted")
    return int(text)
def b64(data: bytes) -> str:  # bytes as base64
    return binascii.b2a_base64(data, newline=False).decode()
def unb64(text: str, length: int = -1) -> bytes:  # bytes of base64, written in the one way there is
    with at("base64", ValueError):
        data = binascii.a2b_base64(text)
    need(b64(data) == text, "base64", "it can be written in another way")
    need(length in (-1, len(data)), "length", f"{len(data)} bytes, not {length}")
    return data
def hashes_of(found: Any) -> list[bytes]:  # hashes of 32 bytes out of a list of base64
    need(fits(found, [str]) and len(found) <= 64, "hashes", "a list of at most 64 hashes is wanted")
    return [unb64(one, 32) for one in found]
def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) == len(pairs):
        return found
    raise Wrong("json", "a key stands twice")
def _integer(text: str) -> int:
    need(len(text) < 16 or (len(text) < 18 and abs(int(text)) < 1 << 53), "json", "a number is too large")
    return int(text)
DECODER: Any = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=int)  # NaN is no number
def json_at(text: str, start: int) -> tuple[Any, int]:  # the JSON value that begins at a place, and where it ends
    with at("json", ValueError, RecursionError, StopIteration):
        return DECODER.scan_once(text, start)  # type: ignore[no-any-return]
def json_of(data: bytes) -> Any:  # the JSON value that is the whole of the bytes
    found, end = json_at(text := utf8(data), 0)
    need(end == len(text), "json", f"something follows after character {end}")
    return found
def utf8(data: bytes) -> str:  # the text of the bytes
    with at("utf-8", ValueError):
        return data.decode("utf-8")
def plain(value: Any) -> str:  # a fact in words
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {plain(one)}" for name, one in value.items())
    return ("; ".join(map(plain, value)) or "none") if isinstance(value, list) else str(value)
def printable(value: Any) -> str:  # text of somebody else, without what a terminal would obey
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
def ed25519_slow(public: bytes, signature: bytes, message: bytes) -> bool:  # a few milliseconds
    (sign, y), s = divmod(int.from_bytes(public, "little"), 1 << 255), int.from_bytes(signature[32:], "little")
    if len(public) != 32 or len(signature) != 64 or s >= L or y >= P or (x := _x_of(y, sign)) is None:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % L
    minus: Point = (P - x, y, 1, (P - x) * y % P)
    adds, sum_ = ((0, 1, 1, 0), minus, BASE, _add(BASE, minus)), (0, 1, 1, 0)
    for bit in range(252, -1, -1):  # s·B − k·A in one pass
        sum_ = _add(_add(sum_, sum_), adds[(s >> bit & 1) << 1 | (k >> bit & 1)])
    inverse = pow(sum_[2], P - 2, P)
    return (sum_[1] * inverse % P | (sum_[0] * inverse % P & 1) << 255).to_bytes(32, "little") == signature[:32]
def ed25519(public: bytes, signature: bytes, message: bytes) -> bool:  # whether the signature is good
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        return Ed25519PublicKey.from_public_bytes(public).verify(signature, message) is None
    except ImportError:
        return ed25519_slow(public, signature, message)
    except Exception:  # InvalidSignature, or what cannot be a key: nothing but a good signature is good
        return False
# --- the tree (RFC 6962) and the leaf ---------------------------------------------------------------------------------
EMPTY_ROOT = hashlib.sha256(b"").digest()
def node_hash(left: bytes, right: bytes) -> bytes:  # the hash over two subtrees
    return hashlib.sha256(b"\x01" + left + right).digest()
def included(leaf_hash: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:  # RFC 9162 §2.1.3
    inner = (index ^ (size - 1)).bit_length()  # so many steps are taken inside the tree, the rest at its right edge
    if not 0 <= index < size or len(path) != inner + bin(index >> inner).count("1"):
        return False
    for n, step in enumerate(path):
        leaf_hash = node_hash(step, leaf_hash) if n >= inner or index >> n & 1 else node_hash(leaf_hash, step)
    return leaf_hash == root
def consistent(old: int, new: int, path: list[bytes], old_root: bytes, new_root: bytes) -> bool:  # RFC 9162 §2.1.4
    if old == new or old == 0:
        return not path and old_root == (new_root if old == new else EMPTY_ROOT)
    low = (old & -old).bit_length() - 1  # the old tree ends with a perfect subtree of this height
    inner, mask = ((old - 1) ^ (new - 1)).bit_length() - low, (old - 1) >> low
    steps = [old_root, *path] if old == 1 << low else path
    if old > new or len(steps) != 1 + inner + bin(mask >> inner).count("1"):
        return False
    before = after = steps[0]
    for n, step in enumerate(steps[1:]):
        left = n >= inner or mask >> n & 1
        before, after = node_hash(step, before) if left else before, node_hash(*[step, after][:: 1 if left else -1])
    return before == old_root and after == new_root
class Run:  # the tree from its left edge on: what a run of leaf hashes makes of it
    def __init__(self, first: int, left: list[bytes]) -> None:
        levels = [level for level in range(63, -1, -1) if first >> level & 1]
        need(len(levels) == len(left), "edges", f"{len(levels)} subtrees stand left, not {len(left)}", field="left")
        self.size, self.stack = first, [(level, left[n]) for n, level in enumerate(levels)]
    def append(self, found: bytes, level: int = 0) -> None:  # the next subtree stands in the tree
        self.size += 1 << level
        stack, sha256 = self.stack, hashlib.sha256
        while stack and stack[-1][0] == level:
            found = sha256(b"\x01" + stack.pop()[1] + found).digest()
            level += 1
        stack.append((level, found))
    def root(self, size: int, right: list[bytes]) -> bytes:  # of the tree, with what stands right of the run
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
def leaf_of(data: bytes) -> Leaf:  # what the 148 bytes of a leaf say
    if len(data) != LEAF.size:
        raise Wrong("length", f"{len(data)} bytes, not {LEAF.size}", field="leaf")
    found = Leaf._make(LEAF.unpack(data))
    flagged = found.flags & FLAG_PII == (found.pii_commit != NO_PII)
    if found.head != b"KVAL\0\1" or found.outcome > 3 or found.flags > 63 or not flagged:
        raise Wrong("leaf", "magic, version, outcome or flags", field="leaf")
    return found
def pii_state(text: str, leaf: Leaf) -> str:  # disclosed (and as committed to), sealed or shredded
    known = leaf.flags & FLAG_PII and (text in ('"sealed"', '"shredded"') or text.startswith('{"data":{'))
    need(known, "pii", "the leaf commits to none, or data and salt, sealed or shredded is wanted", field="pii")
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
def key_of(text: str) -> Key:  # the key of a vkey
    name, _, rest = text.partition("+")
    key_id, _, blob = rest.partition("+")
    data = unb64(blob, 33)
    found = hashlib.sha256(name.encode() + b"\n" + data).digest()[:4]
    need(KEY_NAME.fullmatch(name) and data[0] in (1, 4) and key_id == found.hex(), "key", "no vkey of an Ed25519 key")
    return Key(name, data[0], data[1:], found)
def each(lines: Iterable[str], first: int, how: Callable[..., Any], *more: Any, **place: Any) -> list[Any]:
    return [read(how, one, *more, line=line, **place) for line, one in enumerate(lines, first)]
def keys_of(data: bytes) -> list[Key]:  # the keys of a file, one a line
    lines = enumerate(utf8(data).splitlines(), 1)
    return [read(key_of, one.strip(), line=line) for line, one in lines if one.strip() and one[0] != "#"]
def signature_of(line: str) -> tuple[str, bytes, bytes]:  # who signed by which key, and the rest
    name, _, blob = line[2:].partition(" ")
    raw = unb64(blob)
    need(line.startswith("— ") and KEY_NAME.fullmatch(name) and len(raw) >= 68, "note", "a signature line is wanted")
    return name, raw[:4], raw[4:]
def note_of(data: bytes) -> Note:  # a signed note, unchecked
    text, found, tail = utf8(data).rpartition("\n\n")
    lines, first = tail[:-1].split("\n"), text.count("\n") + 3
    need(found and tail.endswith("\n"), "note", "text, an empty line and signatures are wanted")
    need(not any(ord(c) < 32 and c != "\n" for c in text), "note", "control characters")
    need(len(lines) <= 64, "note", "too many signatures")
    return Note(text + "\n", each(lines, first, signature_of, field="signature"), first)
def signers(note: Note, keys: Iterable[Key]) -> tuple[list[str], list[dict[str, Any]]]:  # and which witnesses when
    known, by, witnesses = {(key.name, key.key_id): key for key in keys}, [], []
    for line, (name, key_id, blob) in enumerate(note.signatures, note.first):
        if (key := known.get((name, key_id))) is None:
            continue
        message = note.text
        if key.kind == 4:
            time, blob = int.from_bytes(blob[:8], "big"), blob[8:]
            message = f"cosignature/v1\ntime {time}\n{note.text}"
            witnesses.append({"name": name, "time": time})
        else:
            by.append(name)
        twice = [one[:2] for one in note.signatures].count((name, key_id)) > 1
        good = not twice and len(blob) == 64 and ed25519(key.public, blob, message.encode())  # one bad one refuses it
        need(good, "signature", f"of {name}" + ", twice" * twice, line=line, field="signature")
    return by, witnesses
def head_of(data: bytes) -> Head:  # a checkpoint (what the log says of itself), unchecked
    lines = (note := note_of(data)).text.split("\n")
    need(len(lines) == 4 and KEY_NAME.fullmatch(lines[0]), "checkpoint", "origin, size and root are wanted", line=1)
    size, root = read(number, lines[1], line=2, field="size"), read(unb64, lines[2], 32, line=3, field="root")
    return Head(lines[0], size, root, note)
EPOCH = re.compile(
    rf"kvconsole/epoch/v1\nold (\S+) {NUMBER} ([0-9a-f]{{64}})\nkept {NUMBER} ([0-9a-f]{{64}})\nnew (\S+)\nexport (\S+)"
    r"\napproval [0-9a-f-]{36}\napprovers ([0-9a-f]{32}) (?!\8)[0-9a-f]{32}\nat \S{20}\nreason [a-z-]+\n", re.ASCII)
Epoch = namedtuple("Epoch", "old size root kept kept_root new export note")  # a log ended, another goes on after it
def epoch_of(text: str) -> Epoch:  # the record by which a log goes on after another one, signed by the keys of both
    note = note_of(text.encode())
    if not (m := EPOCH.fullmatch(note.text)):
        raise Wrong("epoch", "it is no record of a log that goes on after another one")
    old, new, export = key_of(m[1]), key_of(m[6]), key_of(m[7])
    both = sorted(signers(note, [old, new])[0]) == sorted([old.name, new.name]) and len(note.signatures) == 2
    need(both and int(m[4]) <= int(m[2]) and export.name == f"{new.name}/export", "epoch", "signatures, sizes or names")
    return Epoch(old, int(m[2]), bytes.fromhex(m[3]), int(m[4]), bytes.fromhex(m[5]), new, export, text)
class Trust:  # the keys the caller named, or, where none were, those of the bundle itself
    def __init__(self, given: list[Key], report: Report) -> None:
        self.given, self.report, self.own = given, report, list[Key]()
    def learn(self, epochs: list[Epoch]) -> None:  # the keys of logs that go on after one whose key was given
        for n, one in enumerate(epochs):
            need(n == 0 or epochs[n - 1].new == one.old, "epoch", "the logs do not go on after each other")
            known = one.old in self.given
            need(known or one.old[:2] not in {key[:2] for key in self.given}, "epoch", "not by the key that was given")
            self.given = self.given + [one.new, one.export] * (known and "\nreason key-stolen\n" not in one.note)
            self.report.add("remarks", "new-epoch", f"{one.old.name} ended: {one.kept} of {one.size} leaves are kept")
    def of(self, origin: str, role: str) -> list[Key]:  # those that may sign as log or export
        wanted = (origin + ("/export" if role == "export" else ""), 1)
        keys = [key for key in self.given if key[:2] == wanted]
        need(keys or not self.given or role == "export", "another-log", f"no key that was given is of {origin}")
        if not keys:
            keys = [key for key in self.own if key[:2] == wanted]
            self.report.facts["keys"] = "bundle" if keys else "none"
            so = "the bundle's own proves only that it agrees with itself" if keys else "no signature was checked"
            self.report.add("reasons", "keys-not-given", f"no key for {role} was given: {so}")
        return keys
    def exported(self, data: bytes, origin: str, raw: bytes) -> bool:  # the export key signed it; whether it is of this
        lines = (note := note_of(data)).text.split("\n")
        whole = lines[0] == "kvconsole/bundle/v1" and len(lines) == 4 and len(note.signatures) == 1
        need(whole, "note", "it is no signature of a bundle or certificate")
        keys = self.of(origin, "export")
        need(signers(note, keys)[0] or not keys, "unsigned", "no known export key signed it")
        return bool(lines[1:3] == [origin, hashlib.sha256(raw).hexdigest()])
    def head(self, data: bytes, file: str, quorum: int = 0, told: str = "log") -> Head:  # the log signed it
        with at(file=file):
            found = head_of(data)
            keys = self.of(found.origin, "log")
            others = [key for key in self.given or self.own if key.kind == 4 and key.name != found.origin]
            by, witnesses = signers(found.note, keys + others)
            need(by or not keys, "unsigned", f"no known key of {found.origin} signed it")
        if len(witnesses) < quorum:
            self.report.add("reasons", "quorum", f"{len(witnesses)} known witnesses cosigned, not {quorum}", file=file)
        self.report.facts[told] = {"origin": found.origin, "size": found.size, "root": b64(found.root),
                                   "signed_by": by, "witnesses": witnesses}
        return found
# --- the files of a bundle --------------------------------------------------------------------------------------------
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)
FIXED, END = struct.Struct("<HHHHHIIIHH"), struct.Struct("<4sHHHHIIH")
BIG = ELSEWHERE = (1 << 32) - 1  # sizes and places from BIG on stand elsewhere, in 64 bits (zip64), and no smaller ones
Entry = namedtuple("Entry", "path start method crc packed size")  # crc: None where it is no zip's
def checked_name(name: str, others: Iterable[str]) -> str:  # one that no file system does anything odd with
    need(len(name) <= 200 and NAME.fullmatch(name), "name", "it is no name of a bundle's file", file=printable(name))
    need(name.lower() not in {other.lower() for other in others}, "name", "it stands twice", file=name)
    return name
def header(name: bytes, one: Entry, *here: int) -> bytes:  # of a file, in the one form there is; here: in the directory
    wide: bool = max(one.packed, one.size, *here) >= BIG
    extra = struct.pack(f"<HH{2 + len(here)}Q", 1, 16 + 8 * len(here), one.size, one.packed, *here) * wide
    sizes = (ELSEWHERE, ELSEWHERE) if wide else (one.packed, one.size)
    fixed = FIXED.pack(45 if wide else 20, 0, one.method, 0, 33, one.crc, *sizes, len(name), len(extra))
    place = struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, ELSEWHERE if wide else here[0]) if here else b""
    return (b"PK\1\2\x14\3" if here else b"PK\3\4") + fixed + place + name + extra
def piece_of(path: str, start: int, length: int) -> bytes:  # a part of a file
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)
def same_at(path: str, start: int, wanted: bytes, name: str) -> None:  # these bytes stand there
    found = piece_of(path, start, len(wanted))
    bad = next((n for n, byte in enumerate(found) if byte != wanted[n]), len(found))
    need(found == wanted, "zip", f"not in the one form a bundle has, near {name or 'its end'}", byte=start + bad)
def zip_entries(path: str) -> dict[str, Entry]:  # of a zip in the one form a bundle has; nothing else stands in it
    whole, entries, directory, here = os.stat(path).st_size, dict[str, Entry](), b"", 0
    zipped = piece_of(path, 0, 4) == b"PK\3\4" or piece_of(path, max(0, whole - END.size), 4) == b"PK\5\6"
    need(zipped, "not-a-bundle", "it is no zip", Malformed)
    need(whole < MOST_UNPACKED, "too-large", "a bundle has less than 64 GiB", Malformed)
    while (head := piece_of(path, here, 4 + FIXED.size))[:4] == b"PK\3\4" and len(head) == 4 + FIXED.size:
        _, _, method, _, _, crc, packed, size, length, extra = FIXED.unpack_from(head, 4)
        with at(byte=here):
            name = piece_of(path, here + len(head), min(length, 201)).decode("ascii", "replace")
            checked_name(name, entries)
            start = here + len(head) + length + extra
            if extra == 20 and len(more := piece_of(path, start - 16, 16)) == 16:
                size, packed = struct.unpack("<QQ", more)
            entries[name] = one = Entry(path, start, method, crc, packed, size)
            same_at(path, here, header(name.encode(), one), name)
            fits = method in (0, 8) and (method or packed == size) and start + packed <= whole
            need(fits and len(entries) <= MOST_FILES + 2, "zip", "method, sizes or count", file=name)
        directory += header(name.encode(), one, here)
        here = start + packed
    count, length, end = len(entries), len(directory), here + len(directory)
    if here >= BIG:
        directory += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0x314, 45, 0, 0, count, count, length, here)
        directory += struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    directory += END.pack(b"PK\5\6", 0, 0, count, count, length, ELSEWHERE if here >= BIG else here, 0)
    same_at(path, here, directory, "")
    need(here + len(directory) == whole, "zip", "something follows after its end", byte=here + len(directory))
    return entries
def directory_entries(path: str) -> dict[str, Entry]:  # of a bundle that was unpacked
    entries: dict[str, Entry] = {}
    for folder, folders, names in os.walk(path):
        for name in sorted(names + [one for one in folders if os.path.islink(os.path.join(folder, one))]):
            whole = os.path.join(folder, name)
            short = os.path.relpath(whole, path).replace(os.sep, "/")
            simple = not os.path.islink(whole) and os.path.isfile(whole) and len(entries) < MOST_FILES + 2
            need(simple, "directory", "no plain file, or too many of them", file=short)
            entries[checked_name(short, entries)] = Entry(whole, 0, 0, None, *[os.path.getsize(whole)] * 2)
    need("manifest.json" in entries, "not-a-bundle", "no manifest.json in it", Malformed)
    return entries
class Content:  # the unpacked bytes of one file, and at the end whether they were those of zip and manifest
    def __init__(self, entries: dict[str, Entry], name: str) -> None:
        need(name in entries, "missing", "the file is not there", file=name)
        self.name, self.entry, self.whole, self.packed = name, entries[name], hashlib.sha256(), hashlib.sha256()
        self.size, self.crc, self.fault = 0, 0, ""
        self.stream = self._unpacked() if self.entry.method else map(self._seen, self._pieces())
    def _pieces(self) -> Iterator[bytes]:  # as they are stored
        start, end = self.entry.start, self.entry.start + self.entry.packed
        return (piece_of(self.entry.path, here, min(CHUNK, end - here)) for here in range(start, end, CHUNK))
    def _unpacked(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj(-15)
        try:
            for piece in self._pieces():
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
    def lines(self) -> Iterator[bytes]:  # the lines, without their ends
        rest, count = b"", 0
        for piece in self.stream:
            found = (rest + piece).split(b"\n")
            rest, count = found.pop(), count + len(found)
            need(len(rest) <= MOST_LINE, "line", "it is too long", line=count + 1)
            yield from found
        need(not rest, "line", "it does not end", line=count + 1)
    def hashes(self) -> Iterator[bytes]:  # the file as hashes of 32 bytes
        rest = b""
        for piece in self.stream:
            rest += piece
            yield from [rest[here : here + 32] for here in range(0, len(rest) - 31, 32)]
            rest = rest[len(rest) - len(rest) % 32 :]
    def small(self) -> bytes:  # all of it, if it is as small as it should be
        need(self.entry.size <= MOST_SMALL, "too-large", f"{self.entry.size} bytes", file=self.name)
        return b"".join(self.stream)
    def finish(self, said: dict[str, Any] | None = None) -> None:  # all of it is what zip and manifest say
        deque(self.stream, 0)
        zipped, now = self.entry.crc is not None, (self.size, self.whole.hexdigest())
        packed = {"bytes": self.entry.packed, "sha256": self.packed.hexdigest()} if self.entry.method else None
        with at(file=self.name):
            need(not self.fault and self.size == self.entry.size, "zip", self.fault or "the size of its content")
            need(not zipped or self.crc == self.entry.crc, "zip", "CRC-32 of its content")
            said = said or {"bytes": now[0], "sha256": now[1]}  # of the manifest and its signature, which are stored
            need(now == (said["bytes"], said["sha256"]), "sha256", "the content is not what the manifest says")
            need(not zipped or packed == said.get("packed"), "sha256", "packed, it is not what the manifest says")
# --- the bundle -------------------------------------------------------------------------------------------------------
Files = dict[str, dict[str, Any]]
SHA256 = {"bytes": int, "sha256": str}
SHAPE = {  # `?`: may be absent; a tuple: one of these
    "files": [{**SHA256, "packed?": SHA256, "path": str, "rows?": int}], "filters": dict, "full": bool,
    "gaps": [{"first": int, "index": (int, None), "last": int, "producer": int}], "generator": str, "kind": str,
    "origin": str, "previous": ({"manifest_sha256": str, "size": int}, None), "proof": str,
    "range": {"first": int, "last": int}, "records": int, "schemas": dict, "v": int}
EPOCHS = {"first": {"body": str, "leaf": str, "proof": list}, "records": [str]}
TAIL = re.compile(r',"index":(0|[1-9][0-9]{0,17}),"leaf":"([A-Za-z0-9+/]{197}[AQgw]==)"', re.ASCII)
def fits(value: Any, shape: Any) -> bool:  # whether a value has exactly this form; no number is below -1
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, dict):
        known = {name.rstrip("?"): one for name, one in shape.items()}
        there = isinstance(value, dict) and {n for n in shape if not n.endswith("?")} <= set(value) <= set(known)
        return there and all(fits(one, known[name]) for name, one in value.items())
    return value is None if shape is None else type(value) is shape and (shape is not int or value >= -1)
def manifest_form(found: Any) -> Files:  # files by name, if it has the form of one
    need(fits(found, SHAPE), "manifest", "it has not the form of one")
    files: Files = {}
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
class Flow:  # numbers of producers and times, where every leaf of a range is there
    def __init__(self) -> None:
        self.seen: dict[int, array[int]] = defaultdict(lambda: array("Q"))
        self.newest, self.back, self.back_at = 0, 0, dict[str, int]()
    def take(self, leaf: Leaf, line: int) -> None:  # one more leaf
        self.seen[leaf.producer_id].append(leaf.producer_seq)
        if leaf.time_us > self.newest:
            self.newest = 0 if leaf.flags & 32 else leaf.time_us  # what was not kept before is sealed behind it
        elif leaf.time_us < self.newest - CLOCK_BACK_US and not leaf.flags & FLAG_LATE:
            self.back_at = self.back_at or {"line": line, "index": leaf.log_index}
            self.back += 1
    def gaps(self, begins: dict[str, int] | None) -> list[dict[str, int]]:  # after these numbers, where the log begins
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
class Bundle:  # the check of one bundle
    def __init__(self, path: str, trust: Trust, quorum: int = 0) -> None:
        self.trust, self.report, self.quorum, self.flow = trust, trust.report, quorum, Flow()
        self.entries = (directory_entries if os.path.isdir(path) else zip_entries)(path)
        self.small: Callable[[str], bytes] = lambda name: Content(self.entries, name).small()
        self.personal, self.gone, self.done = {"disclosed": 0, "sealed": 0, "shredded": 0}, 0, set[str]()
        trust.own = trust.own or read(keys_of, self.small("keys.txt"), file="keys.txt")  # for when none were named
        self.epochs, self.first, self.before = list[Epoch](), dict[str, Any](), dict[str, int]()
        if "epochs.json" in self.entries:
            with at(file="epochs.json"):
                found = json_of(self.small("epochs.json"))
                need(fits(found, EPOCHS) and found["records"], "epoch", "first leaf and records are wanted")
                self.epochs, self.first = [epoch_of(one) for one in found["records"]], found["first"]
                trust.learn(self.epochs)
    def manifest(self) -> Any:  # the manifest, signed by the export key
        raw, data = self.small("manifest.json"), self.small("manifest.sig")
        with at(file="manifest.json"):
            found = json_of(raw)
            need(isinstance(found, dict) and type(found.get("origin")) is str, "manifest", "an origin is wanted")
            self.trust.of(found["origin"], "log")
        with at(file="manifest.sig"):
            need(self.trust.exported(data, found["origin"], raw), "sha256", "not what was signed", file="manifest.json")
        for name in ("manifest.json", "manifest.sig"):
            Content(self.entries, name).finish()
        known = found.get("v") == 1 and found.get("kind") == "kv-console-bundle"
        need(known, "version", "a newer verifier is wanted", Malformed, file="manifest.json")
        return found
    def check(self) -> None:  # all of it, in the order of docs/bundle.md
        found = self.manifest()
        files = read(manifest_form, found, file="manifest.json")
        order = sorted if self.entries["manifest.json"].crc is None else list
        names, there = order([*files, "manifest.json", "manifest.sig"]), order(self.entries)
        odd = sorted(set(names) ^ set(there))
        need(names == there, "files", "not the manifest's, or in another order", file=[*odd, "manifest.json"][0])
        need(sum(one.size for one in self.entries.values()) <= MOST_UNPACKED, "too-large", "unpacked more than 64 GiB")
        self.report.facts["range"] = {**found["range"], "full": found["full"], "proof": found["proof"]}
        with self.report.noted():
            self.log(found, files)
        for name in [name for name in files if name not in self.done]:
            with self.report.noted():
                Content(self.entries, name).finish(files[name])
    def log(self, found: Any, files: Files) -> None:  # checkpoint, the one before, and the records
        head = self.trust.head(self.small("checkpoint"), "checkpoint", self.quorum)
        fits = head.origin == found["origin"] and head.size > found["range"]["last"]
        need(fits, "checkpoint", "of another log, or of one that is shorter than the range", file="checkpoint")
        self.begins(head)
        if found["previous"] is not None:
            before = self.trust.head(self.small("checkpoint.prev"), "checkpoint.prev", told="previous")
            if after := across(before, head, self.epochs, self.report):
                grown(before, after, self.small("consistency.txt"), "consistency.txt")
            need(before.size == found["previous"]["size"], "checkpoint", "not the manifest's", file="checkpoint.prev")
        content = Content(self.entries, "events.jsonl")
        with at(file="events.jsonl"):
            (self.by_range if found["proof"] == "range" else self.by_paths)(found, head, content, files)
            self.done.add("events.jsonl")
            content.finish(files["events.jsonl"])
            self.conclude(found)
    def begins(self, head: Head) -> None:  # a log that goes on after another one begins with the record that says so
        with at("epoch", AttributeError, LookupError, TypeError, file="epochs.json", index=0):
            for last in self.epochs[-1:]:
                data, body = unb64(self.first["leaf"]), self.first["body"].encode()
                leaf, path, told = leaf_of(data), hashes_of(self.first["proof"]), json_of(body)["data"]
                good = included(hashlib.sha256(b"\0" + data).digest(), 0, head.size, path, head.root)
                good = good and (leaf.log_index, leaf.event_type, leaf.flags & 32) == (0, 0x0F09, 32)
                need(good and hashlib.sha256(BODY + body).digest() == leaf.body_hash, "epoch", "it does not begin so")
                need(told["record"] == last.note and last.new.name == head.origin, "epoch", "another record")
                self.before = {name: n for name, n in told["producers"].items() if type(n) is int}
    def by_range(self, found: Any, head: Head, content: Content, files: Files) -> None:  # by the hashes of the range
        first, count, hashes = found["range"]["first"], 1 + found["range"]["last"], Content(self.entries, "hashes.bin")
        with at(file="edges.json"):
            edges = json_of(self.small("edges.json"))
            need(isinstance(edges, dict) and set(edges) == {"left", "right"}, "edges", "left and right are wanted")
            run, right = Run(first, hashes_of(edges["left"])), hashes_of(edges["right"])
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
        root = read(run.root, head.size, right, file="edges.json")
        need(root == head.root, "root", "hashes.bin and edges.json do not make the checkpoint's", file="hashes.bin")
        self.done.add("hashes.bin")
        hashes.finish(files["hashes.bin"])
    def by_paths(self, found: Any, head: Head, content: Content, files: Files) -> None:  # each by its own path
        for line, index, leaf_hash, rest in self.records(found, content):
            with at(line=line, index=index, field="proof"):
                match = re.fullmatch(r',"proof":(\[[A-Za-z0-9+/=",]*\])', rest, re.ASCII)
                path = hashes_of(json_of(match[1].encode())) if match else []
                good = match and included(leaf_hash, index, head.size, path, head.root)
                need(good, "inclusion", "the path does not lead to the root of the checkpoint")
    def records(self, found: Any, content: Content) -> Iterator[tuple[int, int, bytes, str]]:  # line, index, hash, rest
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
    def conclude(self, found: Any) -> None:  # what is missing, and what is worth a remark
        gaps, add = self.flow.gaps(None if found["range"]["first"] else self.before), self.report.add
        for gap in gaps:
            told = [one["index"] for one in found["gaps"] if gap.items() <= one.items() and one["index"] is not None]
            more = f"; event {told[0]} tells of it" if told else ""
            add("reasons", "producer-gap", "of producer {producer}, numbers {first} to {last}".format(**gap) + more)
        if self.gone:
            add("reasons", "body-not-kept", f"{self.gone} bodies were retired; their leaves are proven")
        if self.flow.back:
            detail = f"{self.flow.back} events are more than 5 s older than one before them, the first here"
            add("remarks", "clock-back", detail, file="events.jsonl", **self.flow.back_at)
        self.report.facts.update(personal_data=self.personal, gaps=gaps, retired=self.gone)
# --- proof and consistency --------------------------------------------------------------------------------------------
PROOF = "c2sp.org/tlog-proof@v1"
Proof = namedtuple("Proof", "leaf index path checkpoint")
def proof_of(data: bytes) -> Proof:  # a proof file, as it was read
    need(data.startswith(PROOF.encode()) or b"\nindex " in data, "not-a-proof", f"it is no {PROOF}", Malformed)
    head, found, note = utf8(data).partition("\n\n")
    lines = head.split("\n")
    need(found and lines[0] == PROOF and 3 <= len(lines) <= 67, "proof", "it is not in the form of one", line=1)
    for line, field in ((2, "extra"), (3, "index")):
        need(lines[line - 1].startswith(f"{field} "), "proof", f"{field} is wanted", line=line, field=field)
    leaf, index = read(unb64, lines[1][6:], line=2, field="extra"), read(number, lines[2][6:], line=3, field="index")
    return Proof(leaf, index, each(lines[3:], 4, unb64, 32, field="path"), note.encode())
def proven(found: Proof, trust: Trust, quorum: int) -> Leaf:  # the leaf, which is in the log
    leaf: Leaf = read(leaf_of, found.leaf, line=2, index=found.index, field="extra")
    need(leaf.log_index == found.index, "index", f"the leaf says {leaf.log_index}", line=3, field="index")
    head = trust.head(found.checkpoint, "checkpoint", quorum)
    good = included(hashlib.sha256(b"\0" + found.leaf).digest(), found.index, head.size, found.path, head.root)
    need(good, "inclusion", "the path does not lead to the root of the checkpoint", index=found.index, field="path")
    trust.report.facts["event"] = {"index": found.index, "event_type": leaf.event_type, "event_id": leaf.event_id.hex(),
                                   "time_us": leaf.time_us, "outcome": OUTCOMES[leaf.outcome]}
    return leaf
def check_proof(options: argparse.Namespace, trust: Trust) -> None:  # one event is in the log
    leaf = proven(proof_of(small_file(options.file)), trust, options.quorum)
    if options.body:
        body = small_file(options.body)
        more = "; it ends with a line feed that may not be the event's" if body.endswith(b"\n") else ""
        same = hashlib.sha256(BODY + body).digest() == leaf.body_hash
        need(same, "body", f"it is not what the leaf commits to{more}", file=options.body, field="body")
    else:
        trust.report.add("remarks", "body-not-given", "only the leaf is proven: give its body with --body")
    if options.pii:
        with at(file=options.pii):
            trust.report.facts["personal_data"] = {pii_state(utf8(small_file(options.pii)).strip(), leaf): 1}
def across(old: Head, new: Head, epochs: list[Epoch], report: Report) -> Head | None:  # what the old one must be in
    for one in epochs:
        if one.old.name == old.origin != new.origin:
            same = old.size < one.size or (old.size, old.root) == (one.size, one.root)
            need(same, "fork", f"of {old.origin} other leaves were signed than {one.new.name} says")
            if old.size <= one.kept:
                return Head(old.origin, one.kept, one.kept_root, old.note)
            report.add("reasons", "lost", f"{old.size - one.kept} leaves of {old.origin} were signed, and not kept")
            return None
    return new
def grown(old: Head, new: Head, proof: bytes, file: str) -> None:  # the new tree begins with the old one
    with at(file=file):
        need(old.origin == new.origin, "another-log", f"{old.origin} and {new.origin}")
        need(old.size <= new.size, "shrunk", f"{new.size} leaves after {old.size}")
        need(old.size != new.size or old.root == new.root, "fork", f"two trees of {old.size} leaves were signed")
        lines = utf8(proof).split("\n")
        need(lines.pop() == "", "line", "it does not end", line=len(lines) + 1)
        path = each(lines, 1, unb64, 32)
        good = len(path) <= 64 and consistent(old.size, new.size, path, old.root, new.root)
        need(good, "consistency", f"the tree of {new.size} leaves does not begin with that of {old.size}")
def head_in(path: str, trust: Trust) -> tuple[bytes, Bundle | None]:  # the checkpoint of a file of any kind
    with contextlib.suppress(Malformed):
        return (bundle := Bundle(path, trust)).small("checkpoint"), bundle
    data = small_file(path)
    if data.startswith(PROOF.encode()):
        return proof_of(data).checkpoint, None
    need(b"\n\n" in data, "not-a-checkpoint", "", Malformed, file=path)
    return data, None
def check_consistency(options: argparse.Namespace, trust: Trust) -> None:  # the newer log begins with the older one
    (old_data, _), (new_data, bundle) = head_in(options.old, trust), head_in(options.new, trust)
    old, head = trust.head(old_data, options.old, told="previous"), trust.head(new_data, options.new, options.quorum)
    if bundle is not None:
        bundle.begins(head)
    if (new := across(old, head, bundle.epochs if bundle else [], trust.report)) is None:
        return
    proof, file = small_file(options.proof) if options.proof else b"", options.proof or options.new
    if not options.proof and bundle is not None and "checkpoint.prev" in bundle.entries:
        between = head_of(bundle.small("checkpoint.prev"))
        if (between.size, between.root) == (old.size, old.root):
            proof = bundle.small("consistency.txt")
    if proof or options.proof or not 0 < old.size < new.size or old.origin != new.origin:
        grown(old, new, proof, file)
    else:
        trust.report.add("reasons", "proof-not-given", f"from {old.size} to {new.size} leaves: give it with --proof")
# --- the certificate of a deletion: all that it says has to follow from what the nodes signed ------------------------
FLAGS = re.findall(r"\w+", "HELD NODE_UNREACHABLE GAP_UNRESOLVED LEASED BACKUP_UNTIL ENGINE_CANNOT SALT_NOT_HONOURED"
                   " WEAK_HASH BYPASS_POSSIBLE KEY_MEDIUM_UNSANITISED EMULATED SELF_ATTESTED FORCED CONTRADICTED")
REMARKS, SAFE = {"SELF_ATTESTED", "EMULATED", "BACKUP_UNTIL", "KEY_MEDIUM_UNSANITISED"}, {"memory", "tpm", "kms"}
WEAK_FIRST = ["none", "delete", "unlink", "key_destroy", "memset", "list", "probe", "readback"]
Graded = namedtuple("Graded", "cls flags absent")
def canonical(value: Any) -> str:  # the one way to write it: RFC 8785
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value, ensure_ascii=False)
def step_id(body: Any, owner: int, one: Any) -> str:  # of the step that a receipt has to be of
    named = {k: (body if k[0] in "go" else one)[k] for k in ("operation", "generation", "kind", "boot", "attempt")}
    found = hashlib.sha256(b"kvconsole/step/v1\n" + canonical({"owner": owner, **named}).encode()).hexdigest()
    return f"{found[:8]}-{found[8:12]}-8{found[13:16]}-{int(found[16], 16) & 3 | 8:x}{found[17:20]}-{found[20:32]}"
def testified(told: dict[str, list[Any]]) -> dict[str, Any]:  # what a copy's receipts, by kind, say of it together
    erases, looks, probes = ([one["detail"] for one in told[kind]] for kind in ("erase", "verify", "probe"))
    total: Callable[[list[Any], str], int] = lambda all_, key: sum(one[key] for one in all_)  # noqa: E731
    did = [one for one in erases if one["objects"]] or erases[-1:]
    reads, codes = [one["readback"] for one in did], {code for one in erases for code in one["residual"]}
    left, weakest = total([one["remaining"] for one in erases[-1:]], "blocks"), WEAK_FIRST.index
    how = min((one["technique"] for one in did), key=weakest, default="none")
    kept = ["flash"] * ("KEY_MEDIUM_UNSANITISED" in codes) + [one["detail"]["key_medium"] for one in told["shred"]]
    clean = [one["method"] for one in probes if one["asked"] and not total(probes, "found")]
    return {
        "found": total(erases, "objects"), "claimed": min((one["class_claimed"] for one in did), default=0),
        "confirmed": bool(erases) and told["erase"][-1]["outcome"] == "done" and not left, "leased": left,
        "forced": "FORCED" in codes, "engine_cannot": "ENGINE_CANNOT" in codes, "technique": how,
        "readback": min((one["method"] for one in reads), key=weakest, default="none"),
        "sampled": total(reads, "sampled"), "clean": total(reads, "clean"), "probed": "probe" in clean,
        "scanned": "scan" in clean, "key_medium": [*kept, "unknown"][0] * (how == "key_destroy"),
        "verified": bool(looks) and (told["verify"][-1]["outcome"], looks[-1]["found_blocks"]) == ("done", 0),
        "medium": (looks or erases)[-1]["medium"]["type"] if looks or erases else "unknown"}
def graded(e: Any) -> Graded:  # the class of a copy, its flags, and whether there was none
    answered, keyless = e["reachable"] and e["confirmed"] and e["verified"], e["key_destroyed"] and e["encrypted"]
    others = e["probed"] or e["scanned"] or e["sanitised"] or keyless
    capped = not e["fenced"] or e["gap"] or e["contradicted"] or e["held"] or e["leased"] > 0
    read = 0 < e["sampled"] == e["clean"] and e["readback"] == "readback"
    most = 3 if read and others and (e["technique"], e["medium"]) == ("memset", "memory") else 2
    own = 2 * (not e["found"]) if e["technique"] == "none" else min(e["claimed"], most)
    base = int(e["fenced"] and e["unroutable"] and e["salt_honoured"])
    cls = base if capped else max(base, own * answered, 4 * keyless, 5 * e["sanitised"])
    held_on = [e["key_medium"]] * (e["technique"] == "key_destroy") + [e["store_medium"]] * keyless
    told = (e["held"], not e["reachable"], e["gap"], e["leased"], e["backup_until"], e["engine_cannot"],
            not e["salt_honoured"] and cls < 2, e["weak_hash"], e["bypass_possible"], bool({*held_on} - SAFE),
            e["emulated"], cls > 1 and not others, e["forced"], e["contradicted"])
    flags = [flag for flag, holds in zip(FLAGS, told) if holds]  # noqa: B905
    return Graded(cls, flags, bool(answered and not (capped or e["believed"] or e["found"])))
def targets_root(body: Any) -> str:  # over everything that it is about: the order's, and that of every receipt
    run = Run(0, [])
    for leaf in sorted(hashlib.sha256(b"\0" + canonical(one).encode()).digest() for one in body["targets"]):
        run.append(leaf)
    return run.root(run.size, []).hex()
def receipts_of(body: Any) -> dict[str, Any]:  # by their hashes: each signed by its node, no two after the same one
    found, links, run, of = dict[str, Any](), set[tuple[str, str]](), Run(0, []), targets_root(body)
    for index, one in enumerate(body["receipts"]):
        said, key = one["body"], bytes.fromhex(body["node_keys"][one["body"]["node"]])
        raw = b"kvconsole/receipt/v1\n" + canonical(said).encode()
        good = hashlib.sha256(key).hexdigest()[:32] == one["key"] and ed25519(key, bytes.fromhex(one["signature"]), raw)
        need(good, "signature", f"of node {said['node']}", index=index, field="receipts")
        need(said["kind"] == "probe" or said["detail"]["targets_root"] == of, "receipt-of-another", "of other targets")
        digest = hashlib.sha256(raw).digest()
        found[digest.hex()] = said
        links.add((one["key"], said["prev"]))
        run.append(hashlib.sha256(b"\0" + digest).digest())
    need(len(links) == len(body["receipts"]), "receipt-forked", "two follow on the same one", field="receipts")
    need(run.root(len(found), []).hex() == body["receipts_root"], "root", "of others", field="receipts_root")
    return found
def check_copy(body: Any, copy: Any, receipts: Any) -> Graded:  # its receipts are of it, and carry its class
    told, seen = {kind: list[Any]() for kind in ("erase", "verify", "shred", "probe")}, copy["evidence"]
    for one in copy["receipts"]:
        said, other = receipts[one["hash"]], one["kind"] == "probe"
        place = said["detail"]["node"] if other else said["node"]
        mine = (place, said["kind"], said["step"]) == (copy["node"], one["kind"], step_id(body, copy["owner"], one))
        good = mine and other == (said["node"] != copy["node"]) and said["outcome"] in ("done", "partial")
        need(good, "receipt-of-another", "not of this order and place", owner=copy["owner"])
        told[one["kind"]].append(said)
    media = [one["detail"]["medium"] for one in told["erase"] + told["verify"]]
    fits = all(seen["encrypted"] <= one["encrypted"] and seen["emulated"] >= one["emulated"] for one in media)
    fits = fits and {**seen, **testified(told)} == seen and seen["reachable"] <= bool(told["verify"])
    need(fits, "evidence", "it is not what the receipts say", owner=copy["owner"])
    found, claimed = graded(seen), (copy["class"], copy["flags"], copy["absent"])
    need(claimed == found, "class", f"the receipts carry E{found.cls}", owner=copy["owner"])
    return found
def check_order(body: Any, text: str, leaf: Leaf) -> None:  # the event in the log ordered this
    said, wanted = json_of(text.encode())["data"], body["order"]
    same = (wanted["index"], wanted["event_id"].replace("-", ""), wanted["body_hash"], 0x0501, 1) == (
        leaf.log_index, leaf.event_id.hex(), leaf.body_hash.hex(), leaf.event_type, leaf.outcome)
    good = hashlib.sha256(BODY + text.encode()).digest() == leaf.body_hash
    asked = {copy["node"] for copy in body["copies"] for one in copy["receipts"] if one["kind"] in ("erase", "shred")}
    fits = asked <= {*said["nodes"]} and all(said[key] == body[key] for key in ("operation", "plan_hash"))
    fits = fits and (said["targets_root"], said["targets"]) == (targets_root(body), len(body["targets"]))
    need(good and same and fits, "order", "the event in the log ordered something else", field="order")
def certificate(found: Any, trust: Trust, quorum: int) -> None:  # in the order of docs/certificate.md
    body, order, raw = found["body"], found["order"], canonical(found["body"]).encode()
    need(trust.exported(found["note"].encode(), body["origin"], raw), "sha256", "not what was signed", field="body")
    receipts, used = receipts_of(body), [one["hash"] for copy in body["copies"] for one in copy["receipts"]]
    need([*dict.fromkeys(used)] == [*receipts], "receipts", "not those of its copies, in their order", field="receipts")
    with at(field="copies"):
        told = [(copy["node"], check_copy(body, copy, receipts)) for copy in body["copies"]]
    least = min([one.cls for _, one in told if not one.absent] or [one.cls for _, one in told], default=0)
    flags = [flag for flag in FLAGS if any(flag in one.flags for _, one in told)]
    need((body["class"], body["flags"]) == (least, flags), "class", f"its copies carry E{least}", field="class")
    odd = sorted({(flag, node) for node, one in told for flag in one.flags if flag not in REMARKS})
    same = [(one["code"], one["node"]) for one in body["exceptions"]] == odd
    need(same and not (body["seal"] and (odd or not least)), "exceptions", "other than its copies'", field="exceptions")
    times = [body["times"][k].rstrip("Z") for k in ("request", "fence", "erase", "verify") if k in body["times"]]
    fits = times == sorted(times) and {*body["times"]} <= {"request", "fence", *(r["kind"] for r in receipts.values())}
    need(fits, "times", "one is before what it follows, or of what no receipt answers", field="times")
    trust.report.facts["certificate"] = {"operation": body["operation"], "class": f"E{least}", "flags": flags,
        "copies": len(told), "receipts": len(receipts), "exceptions": len(odd), "seal": body["seal"]}  # fmt: skip
    if order is None:
        return trust.report.add("reasons", "order-not-given", "whether its order is in the log was not checked")
    check_order(body, order["body"], proven(proof_of(order["proof"].encode()), trust, quorum))
def check_certificate(options: argparse.Namespace, trust: Trust) -> None:  # it says what its receipts carry
    text = utf8(small_file(options.file))
    known = text.startswith('{"body":{') and '"format":"kv-console-certificate"' in text
    need(known, "not-a-certificate", "it does not begin like one", Malformed)
    need((found := json_at(text, 0)[0]).get("v") == 1, "version", "a newer verifier is wanted", Malformed)
    with at("form", AttributeError, LookupError, TypeError, ValueError, RecursionError):
        only = {*found} == {"body", "format", "note", "order", "v"} and canonical(found) + "\n" == text
        need(only, "canonical", "it is not in the one form that a certificate has")
        certificate(found, trust, options.quorum)
# --- the command ------------------------------------------------------------------------------------------------------
def small_file(path: str) -> bytes:  # a file that is as small as it should be
    with open(path, "rb") as file:
        data = file.read(MOST_SMALL + 1)
    need(len(data) <= MOST_SMALL, "too-large", "at most 4 MiB are wanted", Malformed, file=path)
    return data
class Report:  # what was found, and the verdict it comes to
    def __init__(self, command: str, file: str) -> None:
        self.command, self.file, self.malformed = command, file, False
        self.facts: dict[str, Any] = {"keys": "given", "problems": [], "reasons": [], "remarks": []}
    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:  # what goes wrong in here is a problem
        try:
            yield
        except (OSError, Wrong) as e:
            wrong = e if isinstance(e, Wrong) else Malformed("file", e.strerror or "it cannot be read", file=e.filename)
            self.malformed |= isinstance(wrong, Malformed)
            self.facts["problems"].append({"code": wrong.code, "detail": wrong.detail, **wrong.place})
    def add(self, kind: str, code: str, detail: str, **place: Any) -> None:  # to the reasons or the remarks
        if {"code": code, "detail": detail, **place} not in (found := self.facts[kind])[-8:]:
            found.append({"code": code, "detail": detail, **place})
    @property
    def verdict(self) -> str:  # valid, invalid, malformed or incomplete
        wrong = "malformed" if self.malformed else "invalid"
        return wrong if self.facts["problems"] else "incomplete" if self.facts["reasons"] else "valid"
    def as_json(self) -> str:  # all of it, for a machine
        head = {"verdict": self.verdict, "exit": EXITS[self.verdict], "command": self.command, "file": self.file}
        return json.dumps({**head, **self.facts}, indent=1)
    def as_text(self) -> str:  # all of it, for a person; the verdict last
        lines, facts = [f"{self.command}: {printable(self.file)}"], self.facts
        for name, value in facts.items():
            if value and name not in ("problems", "reasons", "remarks"):
                lines.append(printable(f"{name.replace('_', ' ')}: {plain(value)}"))
        for word, found in (("remark", facts["remarks"]), ("missing", facts["reasons"]), ("WRONG", facts["problems"])):
            for one in found[:20]:
                place = ", ".join(f"{k} {printable(v)}" for k, v in one.items() if k not in ("code", "detail"))
                lines.append(f"{word}: {one['code']}: {printable(one['detail'])}" + (f" [{place}]" if place else ""))
        return "\n".join([*lines, self.verdict.upper()])
COMMANDS: dict[str, tuple[Callable[[Any, Trust], None], str, str]] = {
    "bundle": (lambda options, trust: Bundle(options.file, trust, options.quorum).check(),
               "an export bundle, zip or directory", "file"),
    "proof": (check_proof, "a proof file of one event", "file --body --pii"),
    "certificate": (check_certificate, "the certificate of a deletion", "file"),
    "consistency": (check_consistency, "two checkpoints, proof files or bundles", "old new --proof")}
HELP = {"--body": "the event's body, the bytes as they are stored", "--pii": "its personal data, with its salt",
        "--proof": "one base64 hash a line"}
def arguments() -> argparse.ArgumentParser:  # the command line
    parser = argparse.ArgumentParser(prog="kvc_verify", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, told, words) in COMMANDS.items():
        one = commands.add_parser(name, help=told, description=f"Checks {told}.")
        for word in words.split():
            one.add_argument(word, help=HELP.get(word))
        one.add_argument("--key", action="append", default=[], help="a key you trust (vkey)")
        one.add_argument("--keys", action="append", default=[], help="a file of such keys, one a line")
        one.add_argument("--quorum", type=int, default=0, help="so many witnesses must have cosigned")
        one.add_argument("--json", action="store_true", help="the report as JSON")
    return parser
def run(options: argparse.Namespace) -> Report:  # checks what was asked for; nothing is raised but what is a bug
    report = Report(options.command, options.new if options.command == "consistency" else options.file)
    with report.noted():
        try:
            given = keys_of("\n".join([*options.key, *(utf8(small_file(path)) for path in options.keys)]).encode())
            need(given or not options.keys, "key", "no key is in the file")
        except Wrong as e:
            raise Malformed("key", "the keys to trust cannot be read", **e.place) from None
        COMMANDS[options.command][0](options, Trust(given, report))
    return report
def main(argv: list[str] | None = None) -> int:  # runs one command; returns its exit code
    try:
        options = arguments().parse_args(argv)
    except SystemExit as e:
        return int(e.code or 0)
    report = run(options)
    print(report.as_json() if options.json else report.as_text())
    return EXITS[report.verdict]
if __name__ == "__main__":
    sys.exit(main())
