"""Decides how a proof or a bundle is checked on the public page: by the very file that people run offline, unchanged.

What was uploaded is in memory alone, in files without a name that end with the call. Nothing is stored or logged; size,
unpacked size and how many checks run at once are bounded.
"""

import argparse
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from audit import signing
from audit.verifier import kvc_verify
from kvconsole.infra.rest import Problem

MOST_UPLOAD = 1 << 20
"""Bytes of a file or text; requests are no larger anyway."""
MOST_UNPACKED = 48 << 20
TOGETHER = 2
_places = threading.BoundedSemaphore(TOGETHER)


class Checked(NamedTuple):
    """What came of it. `trust`: whose keys were used: given, console or none."""

    kind: str
    verdict: str
    facts: dict[str, Any]
    trust: str


def check(proof: bytes, *, body: bytes = b"", keys: str = "") -> Checked:
    """The verdict of the verifier.

    Args:
        proof: a proof file or a bundle.
        body: of the event; empty = only its leaf is proven.
        keys: the verifier keys to trust, one a line; empty = those of this console.

    Raises:
        Problem: rate-limited: others are being checked; nothing was looked at.
    """
    if not _places.acquire(blocking=False):
        raise Problem("rate-limited", retry_after_seconds=2)
    try:
        trusted, trust = (keys.split("\n"), "given") if keys.strip() else _own_keys()
        kind = "bundle" if proof[:2] == b"PK" else "proof"
        with _held(proof) as file, _held(body) as other:
            report = _report(kind, file, other if body else None, [k.strip() for k in trusted if k.strip()])
            named = {file: "", other: "body"}
            return Checked(kind, report.verdict, _plain(report.facts, named), trust)
    finally:
        _places.release()


def _report(kind: str, file: str, body: str | None, keys: list[str]) -> kvc_verify.Report:
    options = argparse.Namespace(command=kind, file=file, body=body, pii=None, key=keys, keys=[], quorum=0, json=False)
    if kind == "bundle" and (too_large := _too_large(file)):
        report = kvc_verify.Report(kind, file)
        report.problem(too_large)
        return report
    return kvc_verify.run(options)


def _too_large(file: str) -> kvc_verify.Malformed | None:
    """Before anything is unpacked: an archive says how large it gets, and the verifier holds it to that."""
    with contextlib.suppress(kvc_verify.Wrong):  # the check itself tells that better
        if sum(entry.size for entry in kvc_verify.Zip(file).entries.values()) > MOST_UNPACKED:
            return kvc_verify.Malformed("too-large", f"unpacked it is more than {MOST_UNPACKED >> 20} MiB")
    return None


def own_keys() -> list[str]:
    """The log's and the export key of this console as vkeys; empty: the signer does not answer."""
    found = signing.public_keys()
    return [found.log, found.export] if isinstance(found, signing.PublicKeys) else []


def _own_keys() -> tuple[list[str], str]:
    found = own_keys()
    return found, "console" if found else "none"


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


def _plain(facts: dict[str, Any], named: dict[str, str]) -> dict[str, Any]:
    """The facts without the paths of this call."""
    found = dict(facts)
    for part in ("problems", "reasons", "remarks"):
        found[part] = [{**one, "file": named.get(str(one.get("file", "")), one.get("file", ""))} for one in facts[part]]
    return found
