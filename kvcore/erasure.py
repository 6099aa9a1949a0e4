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


class CopyEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one namespace selection on one owner. The defaults claim nothing.

    Of the order: `fenced`, `unroutable` (every router and gateway acknowledged or its lease is over), `salt_honoured`
    (the engine's keys depend on the generation), `bypass_possible`, `weak_hash`, `held`, `backup_until` (a date).
    Of the node alone: `claimed` to `key_medium`. Of others: `probed` (a second node's probe found nothing), `scanned`
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
    claimed: int = 0
    confirmed: bool = False  # the node's receipt: done, nothing remains
    verified: bool = False  # its listing afterwards found nothing
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
    sanitised: bool = False


class Graded(msgspec.Struct, frozen=True):
    """A class and what has to be said beside it."""

    cls: Erasure
    flags: tuple[str, ...] = ()


def copy_class(evidence: CopyEvidence) -> Graded:
    """The highest class that the evidence of a copy carries, and its flags.

    What only the node itself attests is E2 at most, unless another probed it, the raw medium was scanned by another or
    its key was destroyed.
    """
    raise NotImplementedError


def certificate_class(copies: Iterable[Graded]) -> Graded:
    """The minimum of all copies, and every flag of them; ORDERED where there is none."""
    raise NotImplementedError


def object_ref(order_hash: str, key: bytes) -> bytes:
    """By what a block (32-byte key) is named in receipts of an order: who has the key can find it, nobody else."""
    return hmac.digest(bytes.fromhex(order_hash), b"kvconsole/object/v1\0" + key, hashlib.sha256)


def objects_root(refs: Iterable[bytes]) -> str:
    """RFC 6962 root (hex) over the refs in ascending order, each once."""
    tree = Frontier()
    for ref in sorted(set(refs)):
        tree.append(leaf_hash(ref))
    return tree.root().hex()
