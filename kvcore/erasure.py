"""Decides how gone something is: classes E0 to E5, what caps them, and which words may be said of each.

Pure arithmetic over what was seen of a copy. A certificate shows the minimum over all copies, and no better copy ever
raises it. Called by the console (certificates, pages); `audit/verifier/kvc_verify.py` repeats the rules on its own.
Sources: NIST SP 800-88 r2 (Clear, Purge, Destroy); the threat model's table of what each tier can honestly claim.
"""

import hashlib
import hmac
from collections.abc import Iterable
from enum import IntEnum

import msgspec

from kvcore.proofs import Frontier, leaf_hash


class Erasure(IntEnum):
    """What is claimed of a copy, from weak to strong."""

    ORDERED = 0  # the order is recorded, the fence is in the directory
    UNREACHABLE = 1  # no request routed by this deployment can address it; the bytes may exist
    EVICTED = 2  # the tier confirmed the removal and a look afterwards found nothing; bytes may last until reuse
    OVERWRITTEN = 3  # the whole region was overwritten and read back
    CRYPTO_ERASED = 4  # it existed here only as ciphertext, and the key is gone from every store that held it
    MEDIA_SANITISED = 5  # evidence of sanitising the medium is attached


E0, E1, E2, E3, E4, E5 = Erasure
FLAGS = (
    "HELD",
    "NODE_UNREACHABLE",
    "GAP_UNRESOLVED",
    "LEASED",
    "BACKUP_UNTIL",
    "ENGINE_CANNOT",
    "SALT_NOT_HONOURED",
    "WEAK_HASH",
    "BYPASS_POSSIBLE",
    "KEY_MEDIUM_UNSANITISED",
    "EMULATED",
    "SELF_ATTESTED",
    "FORCED",
    "CONTRADICTED",
)
"""What is said beside a class, in this order."""
REMARKS = frozenset({"SELF_ATTESTED", "EMULATED", "BACKUP_UNTIL", "KEY_MEDIUM_UNSANITISED"})
"""Flags that qualify a class, which already counts them; every other one is an exception."""
SAFE_KEY_MEDIA = frozenset({"memory", "tpm", "kms"})
"""Where a key that was removed is gone."""


class CopyEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one namespace selection on one owner. The defaults claim nothing.

    Of the order: `fenced`, `unroutable` (every router and gateway acknowledged or its lease is over), `salt_honoured`
    (the tier's keys depend on the generation), `bypass_possible`, `weak_hash`, `held`, `backup_until` (a date).
    Of the node alone: `found` to `key_medium`. Of others: `probed` (a second node's probe found nothing), `scanned`
    (the raw medium was read by another and nothing was found), `key_destroyed` (the generation's key is gone from the
    key store and every lease of it is over), `sanitised` (evidence about the medium is attached).
    Of the directory: `reachable`, `gap` (a loss is open), `contradicted` (receipts, inventory, counters, probes or
    scans do not agree).
    """

    fenced: bool = False
    unroutable: bool = False
    salt_honoured: bool = False
    bypass_possible: bool = False
    weak_hash: bool = False
    held: bool = False
    backup_until: str = ""
    reachable: bool = False
    gap: bool = False
    contradicted: bool = False
    believed: int = 0  # blocks that the directory knew there when it was fenced
    found: int = 0  # objects the node found
    claimed: int = 0
    confirmed: bool = False  # the node's receipt: done, nothing remains
    verified: bool = False  # its listing afterwards found nothing
    engine_cannot: bool = False
    technique: str = "none"
    readback: str = "none"
    sampled: int = 0
    clean: int = 0
    leased: int = 0  # blocks that are left
    forced: bool = False
    medium: str = "unknown"
    encrypted: bool = False
    emulated: bool = False
    key_medium: str = ""  # of the object's own key, where the technique is key_destroy
    probed: bool = False
    scanned: bool = False
    key_destroyed: bool = False
    store_medium: str = ""  # of the key store that held the generation's key: flash | memory | tpm | kms | unknown
    sanitised: bool = False


class Graded(msgspec.Struct, frozen=True):
    """A class and what has to be said beside it. `absent`: no copy was known there, and none was found."""

    cls: Erasure
    flags: tuple[str, ...] = ()
    absent: bool = False


def copy_class(evidence: CopyEvidence) -> Graded:
    """The highest class that the evidence of a copy carries, and its flags.

    What only the node itself attests is E2 at most, unless another probed it, the raw medium was scanned by another or
    its key was destroyed.
    """
    e = evidence
    base = E1 if e.fenced and e.unroutable and e.salt_honoured else E0
    if not e.fenced or e.gap or e.contradicted or e.held or e.leased:
        return Graded(base, _flags(e, base))
    found = max(base, min(_by_node(e), E5 if _by_others(e) else E2))
    if e.key_destroyed and e.encrypted:
        found = max(found, E4)
    if e.sanitised:
        found = E5
    answered = e.reachable and e.confirmed and e.verified
    return Graded(Erasure(found), _flags(e, found), answered and not e.believed and not e.found)


def _by_node(e: CopyEvidence) -> int:
    """What the node's receipts come to, E3 at most; never more than it claims itself."""
    if not (e.reachable and e.confirmed and e.verified):
        return E0
    if e.technique == "none":
        return E0 if e.found else E2
    read = e.readback == "readback" and 0 < e.sampled == e.clean
    return min(e.claimed, E3 if e.technique == "memset" and e.medium == "memory" and read else E2)


def _by_others(e: CopyEvidence) -> bool:
    """Whether more stands behind it than the word of the node. A key says nothing of bytes that are no ciphertext."""
    return e.probed or e.scanned or e.sanitised or (e.key_destroyed and e.encrypted)


def _flags(e: CopyEvidence, found: int) -> tuple[str, ...]:
    by_object = e.technique == "key_destroy" and e.key_medium not in SAFE_KEY_MEDIA
    by_generation = e.key_destroyed and e.encrypted and e.store_medium not in SAFE_KEY_MEDIA
    told = {
        "HELD": e.held,
        "NODE_UNREACHABLE": not e.reachable,
        "GAP_UNRESOLVED": e.gap,
        "LEASED": e.leased > 0,
        "BACKUP_UNTIL": e.backup_until != "",
        "ENGINE_CANNOT": e.engine_cannot,
        "SALT_NOT_HONOURED": not e.salt_honoured and found < E2,
        "WEAK_HASH": e.weak_hash,
        "BYPASS_POSSIBLE": e.bypass_possible,
        "KEY_MEDIUM_UNSANITISED": by_object or by_generation,
        "EMULATED": e.emulated,
        "SELF_ATTESTED": found >= E2 and not _by_others(e),
        "FORCED": e.forced,
        "CONTRADICTED": e.contradicted,
    }
    return tuple(flag for flag in FLAGS if told[flag])


def certificate_class(copies: Iterable[Graded]) -> Graded:
    """The minimum of all known copies, and every flag; ORDERED where nobody was asked.

    Where no copy was known and everybody who was asked found none, it is the minimum of these answers.
    """
    told = list(copies)
    known = [copy.cls for copy in told if not copy.absent] or [copy.cls for copy in told]
    flags = {flag for copy in told for flag in copy.flags}
    return Graded(min(known, default=E0), tuple(f for f in FLAGS if f in flags))


def exceptional(graded: Graded) -> tuple[str, ...]:
    """The flags that are exceptions: with one of them a certificate bears no seal."""
    return tuple(flag for flag in graded.flags if flag not in REMARKS)


def object_ref(order_hash: str, key: bytes) -> bytes:
    """By what a block (32-byte key) is named in receipts of an order: who has the key can find it, nobody else."""
    return hmac.digest(bytes.fromhex(order_hash), b"kvconsole/object/v1\0" + key, hashlib.sha256)


def objects_root(refs: Iterable[bytes]) -> str:
    """RFC 6962 root (hex) over the refs in ascending order, each once."""
    tree = Frontier()
    for ref in sorted(set(refs)):
        tree.append(leaf_hash(ref))
    return tree.root().hex()
