"""Decides the texts that carry a signature of the log: signed notes, checkpoints, cosignatures, keys, proof files.

Formats of C2SP, byte for byte: signed-note, tlog-checkpoint, tlog-cosignature (type 0x04), tlog-proof@v1. Signing and
verifying come in as callables. What is read is untrusted until `note_open` says who signed it.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

ED25519, COSIGNATURE = 0x01, 0x04
"""Kinds of keys: an Ed25519 signature over the note; one with a time, of a witness."""
MOST_SIGNATURES, MOST_BYTES = 64, 1 << 20
PROOF_HEAD = "c2sp.org/tlog-proof@v1"
Sign = Callable[[bytes], bytes]
"""message → 64 bytes."""
Verify = Callable[[bytes, bytes, bytes], bool]
"""(public key, signature, message) → whether it is good."""

_DASH = "— "
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


class NoteError(ValueError):
    """The text is not what it should be, or nobody known signed it; `code` says what is wrong."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


class VerifierKey(NamedTuple):
    """A key one may trust: who signs with it, how, and its public half."""

    name: str
    kind: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes by which a signature names the key."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    @property
    def text(self) -> str:
        """The key as people pass it on (vkey)."""
        return f"{self.name}+{self.key_id.hex()}+{_b64(bytes([self.kind]) + self.public)}"


class Opened(NamedTuple):
    """A note whose signatures were checked."""

    text: str
    by: list[str]
    """Names of the known keys that signed it, in the order of the signatures."""
    times: dict[str, int]
    """When a witness signed: name → seconds since 1970."""


class Checkpoint(NamedTuple):
    """What the log says of itself at one moment."""

    origin: str
    size: int
    root: bytes


class Proof(msgspec.Struct, frozen=True):
    """A proof file, as it was read; nothing of it is checked."""

    leaf: bytes
    index: int
    path: list[bytes]
    checkpoint: str


def vkey_parse(text: str) -> VerifierKey:
    """The key of a vkey.

    Raises:
        NoteError: key-malformed, key-kind, or key-id: the text was altered.
    """
    parts = text.strip().split("+", 2)
    if len(parts) != 3 or not _is_name(parts[0]):
        raise NoteError("key-malformed", "name+id+key is wanted")
    blob = _unb64(parts[2], "key-malformed")
    if len(blob) != 33 or blob[0] not in (ED25519, COSIGNATURE):
        raise NoteError("key-kind", "only Ed25519 keys are known")
    found = VerifierKey(parts[0], blob[0], blob[1:])
    if parts[1] != found.key_id.hex():
        raise NoteError("key-id", f"{parts[1]} is not the key's")
    return found


def note_sign(text: str, name: str, kind: int, public: bytes, sign: Sign) -> str:
    """The text as a note with one signature.

    Args:
        text: lines, the last one ended.
        name: of the signer.
        kind: `ED25519`; witnesses sign with `cosign`.
        public: of the signer.
        sign: message → signature.

    Raises:
        NoteError: note-text or note-name, kind unknown: nothing was signed.
    """
    if kind != ED25519:
        raise NoteError("key-kind", "a witness signs with `cosign`")
    _check_text(text)
    return f"{text}\n{_line(VerifierKey(name, kind, public), sign(text.encode()))}"


def cosign(note: str, name: str, public: bytes, time: int, sign: Sign) -> str:
    """The line by which a witness says: at `time` (seconds since 1970) I saw this checkpoint, and none that denies it.

    The line is to be put at the end of the note.

    Raises:
        NoteError: the note is none.
    """
    message = cosigned(_split(note)[0], time)
    return _line(VerifierKey(name, COSIGNATURE, public), time.to_bytes(8, "big") + sign(message))


def cosigned(text: str, time: int) -> bytes:
    """The bytes a witness signs."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def note_open(note: str, keys: Iterable[VerifierKey], verify: Verify) -> Opened:
    """Who of the known signed the note, and its text.

    Signatures of unknown keys are passed over; a bad one of a known key refuses the note.

    Raises:
        NoteError: note-malformed, note-signature (a known key's is bad), note-unsigned (no known key signed).
    """
    text, lines = _split(note)
    known = {(k.name, k.key_id): k for k in keys}
    by, times = list[str](), dict[str, int]()
    for name, key_id, blob in lines:
        key = known.pop((name, key_id), None)
        if key is None:
            continue
        message, time = text.encode(), None
        if key.kind == COSIGNATURE:
            time, blob = int.from_bytes(blob[:8], "big"), blob[8:]
            message = cosigned(text, time)
        if len(blob) != 64 or not verify(key.public, blob, message):
            raise NoteError("note-signature", name)
        by.append(name)
        if time is not None:
            times[name] = time
    if not by:
        raise NoteError("note-unsigned", "no known key signed it")
    return Opened(text, by, times)


def note_text(note: str) -> str:
    """The text of a note, unchecked: only to learn which log it says it is of."""
    return _split(note)[0]


def checkpoint_text(checkpoint: Checkpoint) -> str:
    """The three lines the log signs."""
    if len(checkpoint.root) != 32 or checkpoint.size < 0:
        raise NoteError("checkpoint-malformed")
    text = f"{checkpoint.origin}\n{checkpoint.size}\n{_b64(checkpoint.root)}\n"
    _check_text(text)
    return text


def checkpoint_parse(text: str) -> Checkpoint:
    """The checkpoint of a note's text. Extension lines are refused: no log of ours writes any.

    Raises:
        NoteError: checkpoint-malformed.
    """
    lines = text.split("\n")
    if len(lines) != 4 or not lines[0] or lines[3]:
        raise NoteError("checkpoint-malformed", "three lines are wanted")
    root = _unb64(lines[2], "checkpoint-malformed")
    if len(root) != 32:
        raise NoteError("checkpoint-malformed", "a root has 32 bytes")
    return Checkpoint(lines[0], _number(lines[1], "checkpoint-malformed"), root)


def proof_text(leaf: bytes, index: int, path: Sequence[bytes], checkpoint_note: str) -> str:
    """A proof file: everything that is needed to show, offline, that a leaf is in the log."""
    lines = [PROOF_HEAD, f"extra {_b64(leaf)}", f"index {index}", *map(_b64, path)]
    return "\n".join(lines) + f"\n\n{checkpoint_note}"


def proof_parse(text: str) -> Proof:
    """A proof file, as it was read.

    Raises:
        NoteError: proof-malformed.
    """
    head, found, note = text.partition("\n\n")
    lines = head.split("\n")
    if not found or len(lines) < 3 or lines[0] != PROOF_HEAD or len(lines) > 3 + 64:
        raise NoteError("proof-malformed", f"{PROOF_HEAD} is wanted")
    if not (lines[1].startswith("extra ") and lines[2].startswith("index ")):
        raise NoteError("proof-malformed", "lines `extra` and `index` are wanted")
    path = [_unb64(line, "proof-malformed") for line in lines[3:]]
    if any(len(one) != 32 for one in path):
        raise NoteError("proof-malformed", "a hash has 32 bytes")
    leaf = _unb64(lines[1][6:], "proof-malformed")
    return Proof(leaf, _number(lines[2][6:], "proof-malformed"), path, note)


def _split(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Text and signatures of a note: (name, key id, rest)."""
    text, found, tail = note.rpartition("\n\n")
    if not found or not tail.endswith("\n") or len(note) > MOST_BYTES:
        raise NoteError("note-malformed", "text, an empty line and signatures are wanted")
    text += "\n"
    _check_text(text)
    lines = tail[:-1].split("\n")
    if len(lines) > MOST_SIGNATURES:
        raise NoteError("note-malformed", "too many signatures")
    signatures = []
    for line in lines:
        name, _, blob = line.removeprefix(_DASH).partition(" ")
        raw = _unb64(blob, "note-malformed")
        if not line.startswith(_DASH) or not _is_name(name) or len(raw) < 5:
            raise NoteError("note-malformed", "a signature line is none")
        signatures.append((name, raw[:4], raw[4:]))
    return text, signatures


def _check_text(text: str) -> None:
    if not text.endswith("\n") or any((ord(c) < 0x20 and c != "\n") or 0xD800 <= ord(c) < 0xE000 for c in text):
        raise NoteError("note-malformed", "control characters, or no line end")


def _line(key: VerifierKey, blob: bytes) -> str:
    if not _is_name(key.name):
        raise NoteError("note-name", key.name)
    return f"{_DASH}{key.name} {_b64(key.key_id + blob)}\n"


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(c.isspace() or ord(c) < 0x20 for c in name)


def _number(text: str, code: str) -> int:
    if not _NUMBER.fullmatch(text) or (found := int(text)) >= 2**63:
        raise NoteError(code, "a decimal number is wanted")
    return found


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str, code: str) -> bytes:
    """Bytes of base64 that can be written in one way only."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NoteError(code, "base64 is wanted") from None
    if _b64(data) != text:
        raise NoteError(code, "base64 is not canonical")
    return data
