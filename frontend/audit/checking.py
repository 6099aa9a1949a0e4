"""Decides how proofs, bundles and certificates are checked on the public page: by the file that people run offline.

What was uploaded is in memory alone, in files without a name that end with the call. Nothing is stored or logged; size,
unpacked size and how many checks run at once are bounded. That the log only grew between two signed heads is shown with
a proof of this console, which the verifier trusts no more than any other.
"""

import argparse
import base64
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from audit import signing
from audit.epochs import Log, asked_of, logs
from audit.proving import checkpoint_now
from audit.tree import LogTorn, checkpoint_latest, node_reader
from audit.verifier import kvc_verify
from kvconsole.infra.rest import Problem
from kvcore.proofs import consistency, root_at

MOST_UPLOAD = 1 << 20
"""Bytes of a file or text; requests are no larger anyway."""
MOST_UNPACKED = 48 << 20
TOGETHER = 2
PARTS = ("problems", "reasons", "remarks")
WORST = ("valid", "incomplete", "invalid", "malformed")
"""Of several verdicts the last one of these counts."""
_places = threading.BoundedSemaphore(TOGETHER)


class Brought(NamedTuple):
    """What somebody brings.

    Attributes:
        proof: a proof file, a bundle or a certificate.
        body: of the event; empty = only its leaf is proven.
        pii: its personal data with the salt, as it was disclosed.
        earlier: a checkpoint, proof file or bundle with which the log has to begin.
        keys: the verifier keys to trust, one a line; empty = those of this console.
    """

    proof: bytes = b""
    body: bytes = b""
    pii: bytes = b""
    earlier: bytes = b""
    keys: str = ""


class Checked(NamedTuple):
    """What came of it. `kind`: proof, bundle, certificate, or head where only something earlier was brought."""

    kind: str
    verdict: str
    facts: dict[str, Any]
    trust: str
    """Whose keys were used: given, console or none."""
    grown: bool
    """Something earlier was brought too."""


def check(brought: Brought) -> Checked:
    """The verdict of the verifier.

    Raises:
        Problem: rate-limited: others are being checked; nothing was looked at.
    """
    if not _places.acquire(blocking=False):
        raise Problem("rate-limited", retry_after_seconds=2)
    try:
        given = [line.strip() for line in brought.keys.split("\n") if line.strip()]
        own = own_keys() if not (given and brought.proof) else []
        trusted, trust = (given, "given") if given else (own, "console" if own else "none")
        kind = kind_of(brought.proof)
        reports = [_event(kind, brought, trusted)] if brought.proof else []
        if brought.earlier:
            reports.append(_grown(brought, trusted, own))
        facts = _merged(reports)
        verdict = max((report.verdict for report in reports), key=WORST.index)
        return Checked(kind, verdict, facts, trust, bool(brought.earlier))
    finally:
        _places.release()


def kind_of(proof: bytes) -> str:
    """What it is, by how it begins; what is none of them is read as a proof, and told to be none."""
    if not proof:
        return "head"
    return "bundle" if proof[:2] == b"PK" else "certificate" if proof.lstrip()[:1] == b"{" else "proof"


def _event(kind: str, brought: Brought, keys: list[str]) -> kvc_verify.Report:
    """What the verifier says of a proof, a bundle or a certificate."""
    data = brought.proof.strip() + b"\n" if kind == "certificate" else brought.proof  # what was pasted lost its end
    with _held(data) as file, _held(brought.body) as body, _held(brought.pii) as pii:
        if kind == "bundle" and (too_large := _too_large(file)):
            report = kvc_verify.Report(kind, file)
            with report.noted():
                raise too_large
        else:
            more = {"body": body if brought.body else None, "pii": pii if brought.pii else None}
            report = _run(kind, keys, file=file, **(more if kind == "proof" else {}))
        if kind != "proof" and (brought.body or brought.pii):
            report.add("remarks", "not-used", "body and personal data are checked with a proof; a bundle has its own")
        return _plain(report, {file: "", body: "body", pii: "pii"})


def _grown(brought: Brought, keys: list[str], own: list[str]) -> kvc_verify.Report:
    """What the verifier says of two signed heads; the newer one is that of the log now where nothing else was brought,
    or of what was kept of a log that ended, if the head is of that one.

    Whoever has no head that this log signed is not told how long it is.
    """
    with _held(brought.earlier) as old:
        new, ended = brought.proof, None
        if not new:
            known = _run("consistency", own, old=old, new=old, proof=None)
            if known.verdict != "valid" and (ended := _ended(old)) is None:
                return _plain(known, {old: "earlier"})
            newest = checkpoint_now(ended) if ended else checkpoint_latest()
            new, keys = newest.note.encode() if newest else brought.earlier, [ended.key] if ended else keys
        with _held(new) as file:
            report = _run("consistency", keys, old=old, new=file, proof=None)
            if ended and (report.facts["previous"]["size"] > ended.size):
                report = _run("consistency", keys, old=old, new=old, proof=None)
                report.add("reasons", "lost", f"{ended.size} of its leaves were kept when that log ended")
            elif ended:
                report.add("remarks", "log-ended", "another log goes on after it")
            if any(one["code"] == "proof-not-given" for one in report.facts["reasons"]):
                report = _shown(report, keys, old, file)
            return _plain(report, {old: "earlier", file: ""})


def _ended(old: str) -> Log | None:
    """The log that ended and signed this head, if there is one."""
    for log in reversed(logs()[:-1]):
        if _run("consistency", [log.key], old=old, new=old, proof=None).verdict == "valid":
            return log
    return None


def _shown(report: kvc_verify.Report, keys: list[str], old: str, new: str) -> kvc_verify.Report:
    """The same with a proof from this console's log, if that is the log whose heads these are."""
    first, last = report.facts["previous"], report.facts["log"]
    log = next((one for one in logs() if one.origin == last["origin"]), None)
    if log is None:
        return report
    newest, node = checkpoint_now(log), node_reader(asked_of(log))
    try:
        if last["size"] > newest.size or root_at(last["size"], node) != base64.b64decode(last["root"]):
            report.add("reasons", "head-not-here", "the log of this console does not have the newer head")
            return report
        path = consistency(first["size"], last["size"], node)
    except LogTorn as e:
        report.add("reasons", "head-not-here", str(e))
        return report
    lines = "".join(f"{base64.b64encode(one).decode()}\n" for one in path)
    with _held(lines.encode()) as proof:
        shown = _run("consistency", keys, old=old, new=new, proof=proof)
        shown.facts["remarks"] += report.facts["remarks"]
        return _plain(shown, {proof: "consistency"})


def _run(command: str, keys: list[str], **files: str | None) -> kvc_verify.Report:
    return kvc_verify.run(argparse.Namespace(command=command, key=keys, keys=[], quorum=0, json=False, **files))


def _too_large(file: str) -> kvc_verify.Malformed | None:
    """Before anything is unpacked: an archive says how large it gets, and the verifier holds it to that."""
    with contextlib.suppress(kvc_verify.Wrong):  # the check itself tells that better
        if sum(entry.size for entry in kvc_verify.zip_entries(file).values()) > MOST_UNPACKED:
            return kvc_verify.Malformed("too-large", f"unpacked it is more than {MOST_UNPACKED >> 20} MiB")
    return None


def own_keys() -> list[str]:
    """The log's and the export key of this console as vkeys; empty: the signer does not answer."""
    found = signing.public_keys()
    return [found.log, found.export] if isinstance(found, signing.PublicKeys) else []


@contextlib.contextmanager
def _held(data: bytes) -> Iterator[str]:
    """The path of a file in memory that has no name in any directory."""
    number = os.memfd_create("check", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(number), "wb") as file:
            file.write(data)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _plain(report: kvc_verify.Report, named: dict[str, str]) -> kvc_verify.Report:
    """The report without the paths of this call."""
    for part in PARTS:
        for one in report.facts[part]:
            if str(one.get("file", "")) in named:
                one["file"] = named[str(one["file"])]
    return report


def _merged(reports: list[kvc_verify.Report]) -> dict[str, Any]:
    """What all of them say; of heads and numbers the first one's word stands."""
    found: dict[str, Any] = {}
    for report in reversed(reports):
        found |= report.facts
    if len(reports) > 1:
        found["previous"] = reports[-1].facts.get("previous")
    for part in PARTS:
        rows = [one for report in reports for one in report.facts[part]]
        found[part] = [one for n, one in enumerate(rows) if one not in rows[:n]]
    return found
