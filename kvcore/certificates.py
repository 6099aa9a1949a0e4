"""Decides what a certificate says: which evidence its receipts are, whether they agree, and the body and its file.

Pure: receipts come in as they were accepted, what the console knows besides as `CopyEvidence`. Called by the console
when an operation is concluded; `docs/certificate.md` is the format, `kvc-verify certificate` checks it without us.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import rfc8785
from msgspec.structs import replace

from kvcore.erasure import CopyEvidence, Graded, certificate_class, copy_class, exceptional
from kvcore.messages import Receipt, Signed, signed_bytes
from kvcore.proofs import EMPTY_ROOT, Frontier, leaf_hash
from kvcore.receipts import (
    CertificateBody,
    CertificateCopy,
    CertificateReceipt,
    ErasedDetail,
    ProbedDetail,
    ShreddedDetail,
    VerifiedDetail,
)

FORMAT, VERSION = "kv-console-certificate", 1
Word = TypeVar("Word", bound=msgspec.Struct)


class CopyReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """The receipts that count for one owner, each with the boot and the attempt of its step. `probes` are of others.

    `earlier`: those of erases before the last, that did a part or whose work was found wanting.
    """

    earlier: tuple[tuple[Receipt, str, int], ...] = ()
    erased: tuple[Receipt, str, int] | None = None
    verified: tuple[Receipt, str, int] | None = None
    shredded: tuple[Receipt, str, int] | None = None
    probes: tuple[tuple[Receipt, str, int], ...] = ()

    def all(self) -> list[tuple[Receipt, str, int]]:
        """All of them, in the order of an operation."""
        found = (*self.earlier, self.erased, self.verified, self.shredded, *self.probes)
        return [one for one in found if one is not None]

    def erases(self) -> list[ErasedDetail]:
        """What each erase says, in their order."""
        told = [detail_of(one[0], ErasedDetail) for one in (*self.earlier, self.erased) if one is not None]
        return [one for one in told if one is not None]


def detail_of(receipt: Receipt | None, form: type[Word]) -> Word | None:
    """The detail of a receipt that says done or partial, None where there is none or it cannot be read."""
    if receipt is None or receipt.outcome not in ("done", "partial"):
        return None
    try:
        return msgspec.convert(receipt.detail, form)
    except msgspec.ValidationError:
        return None


def evidence_of(receipts: CopyReceipts, told: CopyEvidence) -> CopyEvidence:
    """What was seen of a copy: what the console knows (`told`), and what the receipts say and nobody else does.

    Of `told` the fields of the node alone, `probed` and `scanned` are passed over; `encrypted` and `emulated` are what
    the console registered of the tier, and neither side alone makes a tier look better.
    """
    erase, verify = (one[0] if one else None for one in (receipts.erased, receipts.verified))
    verified = detail_of(verify, VerifiedDetail)
    told_by = [one for one in (detail_of(r, ProbedDetail) for r, _, _ in receipts.probes) if one is not None]
    clean = {one.method for one in told_by if one.asked} if not any(one.found for one in told_by) else set()
    said = _erasing(replace(told, **_NOTHING), erase, receipts)
    medium = verified.medium if verified else receipts.erases()[-1].medium if receipts.erases() else None
    none_found = verified is not None and verified.found_blocks == verified.found_bytes == 0
    return replace(
        said,
        verified=none_found and verify is not None and verify.outcome == "done",
        reachable=told.reachable and verified is not None,
        medium=medium.type if medium else "unknown",
        encrypted=told.encrypted and (medium is None or medium.encrypted),
        emulated=told.emulated or (medium is not None and medium.emulated),
        probed="probe" in clean,
        scanned="scan" in clean,
    )


_OF_NODE = ("found", "claimed", "confirmed", "engine_cannot", "technique", "readback", "sampled", "clean", "leased",
            "forced", "key_medium")  # fmt: skip
_NOTHING: dict[str, Any] = {field: getattr(CopyEvidence(), field) for field in _OF_NODE}
TECHNIQUES = ("none", "delete", "unlink", "key_destroy", "memset")
READBACKS = ("none", "list", "probe", "readback")
"""From weak to strong: where several erases did something, the weakest counts."""


def _erasing(blank: CopyEvidence, last: Receipt | None, receipts: CopyReceipts) -> CopyEvidence:
    """What was erased by all erases together; whether it ended, by the last."""
    told = receipts.erases()
    if last is None or not told:
        return blank
    did = [one for one in told if one.objects] or told[-1:]
    residual = {code for one in told for code in one.residual}
    technique = min((one.technique for one in did), key=_rank(TECHNIQUES))
    shredded = detail_of(receipts.shredded[0] if receipts.shredded else None, ShreddedDetail)
    known = "flash" if "KEY_MEDIUM_UNSANITISED" in residual else shredded.key_medium if shredded else "unknown"
    return replace(
        blank,
        found=sum(one.objects for one in told),
        claimed=min(one.class_claimed for one in did),
        confirmed=last.outcome == "done" and not told[-1].remaining.blocks,
        technique=technique,
        readback=min((one.readback.method for one in did), key=_rank(READBACKS)),
        sampled=sum(one.readback.sampled for one in did),
        clean=sum(one.readback.clean for one in did),
        leased=told[-1].remaining.blocks,
        forced="FORCED" in residual,
        engine_cannot="ENGINE_CANNOT" in residual,
        key_medium=known if technique == "key_destroy" else "",
    )


def _rank(words: Sequence[str]) -> Callable[[str], int]:
    """A word that is not known is the weakest."""
    return lambda word: words.index(word) if word in words else -1


def contradictions(
    receipts: CopyReceipts,
    *,
    believed: int = 0,
    heard: tuple[str, str, int] | None = None,
    dropped: int = 0,
    counted: int | None = None,
) -> tuple[str, ...]:
    """Codes of what cannot all be true. A consistent liar is not caught by this: its class is capped.

    Args:
        receipts: of one owner.
        believed: blocks that the directory knows there, exact as of `heard`.
        heard: boot, stream and seq of the directory then; None: it was not exact. As of the last erase's position it is
            what the node's own stream never took back: all of that must have been found.
        dropped: blocks of these that the node's own stream took away since then.
        counted: blocks of everything that the directory knows on the owner, exact as of the verify's position.
    """
    erase, verify = (one[0] if one else None for one in (receipts.erased, receipts.verified))
    erased, verified = detail_of(erase, ErasedDetail), detail_of(verify, VerifiedDetail)
    found = []
    if erase is not None and erase.outcome in ("done", "partial"):
        found += ["erase-unreadable"] if erased is None else _odd_erase(erase, erased)
    if verify is not None and verify.outcome == "done" and verified is None:
        found.append("verify-unreadable")
    told = sum(one.blocks for one in receipts.erases()) + (erased.remaining.blocks if erased else 0)
    if erased is not None and heard is not None and believed - dropped > told:
        pos = erased.stream_pos
        if (pos.boot, pos.stream) == heard[:2] and pos.seq >= heard[2]:
            found.append("fewer-than-announced")
    if erased is not None and verified is not None:
        found += _odd_pair(erased, verified)
    if verified is not None and counted is not None and verified.counters.get("blocks") != counted:
        found.append("counters-differ")
    for probe, _, _ in receipts.probes:
        detail = detail_of(probe, ProbedDetail)
        if detail is not None and detail.found and verified is not None:
            found.append(f"found-by-{detail.method}")
    return tuple(dict.fromkeys(found))


def _odd_erase(receipt: Receipt, said: ErasedDetail) -> list[str]:
    read, left = said.readback, said.remaining.blocks
    nothing = (said.objects == 0, said.blocks == 0, said.bytes == 0, said.objects_root == EMPTY_ROOT.hex())
    checks = {
        "done-with-remaining": receipt.outcome == "done" and left > 0,
        "partial-without-remaining": receipt.outcome == "partial" and not left,
        "nothing-and-something": any(nothing) and not all(nothing),
        "found-but-not-done": receipt.outcome == "done"
        and (said.objects > 0 and said.technique == "none")
        and "ENGINE_CANNOT" not in said.residual,
        "readback-not-clean": receipt.outcome == "done" and read.clean != read.sampled,
        "ends-before-it-begins": said.finished_us < said.started_us,
        "numbers": min(said.objects, said.blocks, said.bytes, read.sampled, read.clean, left) < 0,
    }
    return [code for code, holds in checks.items() if holds]


def _odd_pair(erased: ErasedDetail, verified: VerifiedDetail) -> list[str]:
    was, now = erased.stream_pos, verified.stream_pos
    read, counters = verified.readback, verified.counters
    none = verified.found_blocks == verified.found_bytes == 0
    checks = {
        "verified-before-erased": (was.boot, was.stream) == (now.boot, now.stream) and now.seq < was.seq,
        "another-medium": erased.medium != verified.medium,
        "blocks-without-bytes": (verified.found_blocks == 0) != (verified.found_bytes == 0),
        "counters": counters.get("blocks", 0) < verified.found_blocks,
        "verify-not-clean": none and read.clean != read.sampled,
    }
    return [code for code, holds in checks.items() if holds]


def copy_row(
    *, node: str, source: str, dp_rank: int | None, tier: str, owner: int, receipts: CopyReceipts, told: CopyEvidence
) -> CertificateCopy:
    """An owner's row of a certificate."""
    evidence = evidence_of(receipts, told)
    graded = copy_class(evidence)
    erases = receipts.erases()
    return CertificateCopy(
        node=node,
        source=source,
        dp_rank=dp_rank,
        tier=tier,
        owner=owner,
        cls=int(graded.cls),
        flags=list(graded.flags),
        receipts=[
            CertificateReceipt(kind=one.kind, boot=boot, attempt=attempt, hash=receipt_link(one))
            for one, boot, attempt in receipts.all()
        ],
        absent=graded.absent,
        objects=evidence.found,
        blocks=sum(one.blocks for one in erases),
        bytes=sum(one.bytes for one in erases),
        evidence=evidence,
    )


def receipt_link(receipt: Receipt | Mapping[str, Any]) -> str:
    """The hash by which a receipt is named: that of the chain of its node."""
    return hashlib.sha256(signed_bytes("receipt", msgspec.to_builtins(receipt))).hexdigest()


def receipts_root(links: Sequence[str]) -> str:
    """RFC 6962 root (hex) over the hashes of receipts, in the order in which the certificate lists them."""
    tree = Frontier()
    for link in links:
        tree.append(leaf_hash(bytes.fromhex(link)))
    return tree.root().hex()


def grade(copies: Iterable[CertificateCopy]) -> Graded:
    """The class and flags of a certificate over these copies."""
    return certificate_class(copy_class(copy.evidence) for copy in copies)


def exceptions_of(copies: Iterable[CertificateCopy]) -> list[dict[str, str]]:
    """What has to be said in plain words: each exceptional flag with the node it is of."""
    told = {(flag, copy.node) for copy in copies for flag in exceptional(copy_class(copy.evidence))}
    return [{"code": code, "node": node} for code, node in sorted(told)]


def complete(body: CertificateBody, *, receipts: Iterable[Signed], production: bool) -> CertificateBody:
    """The body with all that follows from its copies: class, flags, exceptions, receipts in order, root and seal."""
    copies = sorted(body.copies, key=lambda copy: copy.owner)
    envelopes = {receipt_link(one.body): msgspec.to_builtins(one) for one in receipts}
    links = list(dict.fromkeys(one.hash for copy in copies for one in copy.receipts))
    graded, told = grade(copies), exceptions_of(copies)
    return replace(
        body,
        copies=copies,
        cls=int(graded.cls),
        flags=list(graded.flags),
        exceptions=told,
        receipts=[envelopes[link] for link in links],
        receipts_root=receipts_root(links),
        seal=production and not told and graded.cls > 0,
    )


def body_bytes(body: CertificateBody) -> bytes:
    """The bytes that are hashed and signed: RFC 8785."""
    return rfc8785.dumps(msgspec.to_builtins(body))


def certificate_file(body: bytes, note: str, order: tuple[str, str] | None = None) -> bytes:
    """The file that is handed out: one line of RFC 8785 JSON.

    Args:
        body: of `body_bytes`.
        note: the export key's, over the body's SHA-256.
        order: body and `tlog-proof` of the event `order.approved`, by which it can be checked against the log.
    """
    proved = None if order is None else {"body": order[0], "proof": order[1]}
    whole = {"body": msgspec.json.decode(body), "format": FORMAT, "note": note, "order": proved, "v": VERSION}
    return rfc8785.dumps(whole) + b"\n"
