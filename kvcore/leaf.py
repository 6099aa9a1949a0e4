"""Decides the 148 bytes by which an event stands in the log, and what they say of its body and its personal data.

Layout `kv-audit-leaf/1`, big-endian, of fixed length, so that who checks it needs no parser. Callers: the sequencer
makes leaves, the scrubber and the signer read them; `audit/verifier/kvc_verify.py` repeats the rules on its own.
"""

import hashlib
import hmac
import struct

import msgspec

LEAF_BYTES = 148
MAGIC = b"KVAL"
VERSION = 1
NOBODY = bytes(16)
"""A tenant_ref or actor_ref that names nobody: the platform, or a caller that is not known."""
NO_PII = bytes(32)
OUTCOMES = ("unknown", "success", "failure", "denied")
PII, AGENT_SIGNED, BREAK_GLASS, LATE, APPROVAL, RESTORE = 1, 2, 4, 8, 16, 32
"""The flags. LATE: written after the fact, from the spool of a time without database."""

_LAYOUT = struct.Struct(">4sHHQQ16s16s16sBBHQ32s32s")


class LeafError(ValueError):
    """The bytes are no leaf; `code` says what is wrong."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


class Leaf(msgspec.Struct, frozen=True):
    """An event as the log holds it."""

    event_type: int
    index: int
    time_us: int
    event_id: bytes
    tenant_ref: bytes
    actor_ref: bytes
    outcome: int
    flags: int
    producer_id: int
    producer_seq: int
    body_hash: bytes
    pii_commit: bytes


def leaf(
    *,
    event_type: int,
    index: int,
    time_us: int,
    event_id: bytes,
    tenant_ref: bytes,
    actor_ref: bytes,
    outcome: int,
    flags: int,
    producer_id: int,
    producer_seq: int,
    body_hash: bytes,
    pii_commit: bytes,
) -> bytes:
    """The 148 bytes of an event at its place in the log.

    Args:
        event_type: number of the registry.
        index: the leaf's place in the tree; it is in the leaf, so that a leaf proves nothing at another place.
        time_us: microseconds since 1970, UTC, of the change.
        event_id: 16 bytes.
        tenant_ref, actor_ref: 16 bytes, or `NOBODY`.
        outcome: place in `OUTCOMES`.
        flags: of `PII` … `RESTORE`.
        producer_id, producer_seq: which process wrote it, and its how-manieth: a gap is an event that is missing.
        body_hash: of `body_hash`.
        pii_commit: of `pii_commitment`, or `NO_PII`.

    Raises:
        LeafError: a value that the layout cannot hold.
    """
    if not (len(event_id) == len(tenant_ref) == len(actor_ref) == 16 and len(body_hash) == len(pii_commit) == 32):
        raise LeafError("leaf-field", "a field of bytes has the wrong length")
    if not 0 <= outcome < len(OUTCOMES):
        raise LeafError("leaf-outcome", str(outcome))
    try:
        return _LAYOUT.pack(
            *(MAGIC, VERSION, event_type, index, time_us, event_id, tenant_ref, actor_ref),
            *(outcome, flags, producer_id, producer_seq, body_hash, pii_commit),
        )
    except struct.error as e:
        raise LeafError("leaf-field", str(e)) from None


def parse_leaf(data: bytes) -> Leaf:
    """What a leaf says.

    Raises:
        LeafError: with code leaf-length, leaf-magic, leaf-version, leaf-outcome or leaf-flags.
    """
    if len(data) != LEAF_BYTES:
        raise LeafError("leaf-length", f"{len(data)} bytes")
    magic, version, event_type, *rest = _LAYOUT.unpack(data)
    if magic != MAGIC:
        raise LeafError("leaf-magic", magic.hex())
    if version != VERSION:
        raise LeafError("leaf-version", str(version))
    found = Leaf(event_type, *rest)
    if found.outcome >= len(OUTCOMES):
        raise LeafError("leaf-outcome", str(found.outcome))
    if found.flags > 63 or bool(found.flags & PII) != (found.pii_commit != NO_PII):
        raise LeafError("leaf-flags", str(found.flags))
    return found


def body_hash(body: bytes) -> bytes:
    """What the leaf says of a body: 32 bytes over the bytes as they are stored."""
    return hashlib.sha256(b"kvconsole/audit-body/v1\0" + body).digest()


def pii_commitment(salt: bytes, pii: bytes) -> bytes:
    """What the leaf says of personal data: cannot be tested by guessing without the salt, which is sealed with it."""
    return hmac.digest(salt, b"kvconsole/audit-pii/v1\0" + pii, "sha256")
