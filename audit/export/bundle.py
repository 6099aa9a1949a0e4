"""Decides what surrounds the records in a bundle: keys, proofs, manifest, signature. The format is `docs/bundle.md`.

Nothing in it depends on when, where or for whom it is made: the same records under the same checkpoint, behind the same
bundle before, are the same bytes.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import rfc8785
from django.conf import settings

from audit import signing
from audit.epochs import Log, asked_of, log_at, logs
from audit.export import ocsf
from audit.export.parts import Entry, stored
from audit.export.select import Selection
from audit.tree import node_reader
from kvcore.notes import checkpoint_parse, note_text, vkey_parse
from kvcore.proofs import Node, consistency, inclusion, range_edges

GENERATOR = "kv-console 0.1.0"
FORMATS = ("jsonl", "csv", "ocsf", "parquet")
RENDERINGS = {"csv": "renderings/events.csv", "ocsf": "renderings/ocsf.jsonl", "parquet": "renderings/events.parquet"}
HASHES_AT_ONCE = 100_000
_CHECKPOINT = "SELECT note FROM audit_checkpoint WHERE size = %s"
_FIRST = (
    "SELECT l.data, e.body FROM audit_leaf l JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us"
    " WHERE l.idx = 0"
)
_HASHES = "SELECT hash FROM audit_leaf WHERE idx BETWEEN %s AND %s ORDER BY idx"


class Previous(NamedTuple):
    """The bundle before, which may be of the log before."""

    manifest_sha256: str
    size: int
    epoch: int = 1


class Keys(NamedTuple):
    """Public keys as they stand in a bundle."""

    origin: str
    text: str


def proof_kind(selection: Selection) -> str:
    """`range` where the hashes of all leaves between are cheaper than a path for each record."""
    run = selection.last - selection.first + 1
    return "inclusion" if 32 * run > 700 * selection.count else "range"


def full(selection: Selection) -> bool:
    """Whether every leaf of the range is a record."""
    return selection.count == selection.last - selection.first + 1


def checkpoint_note(size: int, log: Log) -> str | None:
    """The checkpoint of this size, as it was first signed; None: none was, or that much was not kept of the log."""
    rows = asked_of(log)(_CHECKPOINT, (size,)) if size <= log.size else []
    return str(rows[0][0]) if rows else None


def keys(log: Log) -> Keys | signing.NotAnswered:
    """The vkeys of the log, of exports and of the witness; those of the present log are asked of the signer."""
    found = signing.public_keys()
    if isinstance(found, signing.NotAnswered):
        return found
    if log.ended:
        export = vkey_parse(found.export)._replace(name=f"{log.origin}/export").text
        lines = [log.key, export, settings.WITNESS_VKEY]
    else:
        lines = [found.log, found.export, settings.WITNESS_VKEY]
    return Keys(log.origin if log.ended else found.origin, "".join(f"{line}\n" for line in lines if line))


def hashes(first: int, last: int, log: Log) -> Iterator[bytes]:
    """The leaf hashes of a range, many at a time."""
    ask = asked_of(log)
    for start in range(first, last + 1, HASHES_AT_ONCE):
        yield b"".join(bytes(row[0]) for row in ask(_HASHES, (start, min(start + HASHES_AT_ONCE - 1, last))))


def proof_files(selection: Selection, *, log: Log, size: int, note: str, previous: Previous | None) -> list[Entry]:
    """Checkpoint, edges of the range, how the log grew since the bundle before, and how it goes on after another."""
    node = node_reader(asked_of(log))
    found = [stored("checkpoint", note.encode())]
    if proof_kind(selection) == "range":
        left, right = range_edges(selection.first, selection.last, size, node)
        edges = {"left": [_b64(one) for one in left], "right": [_b64(one) for one in right]}
        found.append(stored("edges.json", json.dumps(edges, separators=(",", ":")).encode()))
    if previous is not None:
        before = log if previous.epoch == log.number else log_at(previous.epoch)
        grown = size if before == log else before.size
        path = consistency(previous.size, grown, node_reader(asked_of(before))) if previous.size <= grown else []
        found.append(stored("checkpoint.prev", (checkpoint_note(previous.size, before) or "").encode()))
        found.append(stored("consistency.txt", "".join(f"{_b64(one)}\n" for one in path).encode()))
    if log.number > 1:
        found.append(stored("epochs.json", _epochs(log, size, node)))
    return found


def _epochs(log: Log, size: int, node: Node) -> bytes:
    """How this log goes on after those before it: the records, and the first leaf, which has the last of them."""
    records = [one.record for one in logs() if 1 < one.number <= log.number]
    ((data, body),) = asked_of(log)(_FIRST, ())
    proof = [_b64(one) for one in inclusion(0, size, node)]
    first = {"body": bytes(body).decode(), "leaf": _b64(bytes(data)), "proof": proof}
    return rfc8785.dumps({"first": first, "records": records})


def manifest(
    files: Sequence[Entry], selection: Selection, *, filters: Mapping[str, Any], gaps: Sequence[Mapping[str, Any]],
    origin: str, previous: Previous | None,
) -> bytes:  # fmt: skip
    """The text that the signature covers."""
    return rfc8785.dumps(
        {
            "files": [entry.described() for entry in files],
            "filters": dict(filters),
            "full": full(selection) and proof_kind(selection) == "range",
            "gaps": [dict(gap) for gap in gaps],
            "generator": GENERATOR,
            "kind": "kv-console-bundle",
            "origin": origin,
            "previous": {"manifest_sha256": previous.manifest_sha256, "size": previous.size} if previous else None,
            "proof": proof_kind(selection),
            "range": {"first": selection.first, "last": selection.last},
            "records": selection.count,
            "schemas": {"leaf": 1, "ocsf": ocsf.VERSION},
            "v": 1,
        }
    )


def origin_of(note: str) -> str:
    """Which log a checkpoint is of."""
    return checkpoint_parse(note_text(note)).origin


@cache
def companions() -> tuple[Entry, ...]:
    """What comes along for whoever opens it: a word, and the verifier."""
    here = Path(__file__).parent
    readme = stored("README.md", (here / "readme.md").read_bytes())
    verifier = here.parent / "verifier" / "kvc_verify.py"
    return (readme, stored("verify.py", verifier.read_bytes())) if verifier.exists() else (readme,)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
