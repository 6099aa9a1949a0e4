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
from django.db import connections

from audit import signing
from audit.export import ocsf
from audit.export.parts import Entry, stored
from audit.export.select import Selection
from audit.tree import node_reader
from kvconsole.infra.access import FLEET_PLANE
from kvcore.notes import checkpoint_parse, note_text
from kvcore.proofs import consistency, range_edges

GENERATOR = "kv-console 0.1.0"
FORMATS = ("jsonl", "csv", "ocsf", "parquet")
RENDERINGS = {"csv": "renderings/events.csv", "ocsf": "renderings/ocsf.jsonl", "parquet": "renderings/events.parquet"}
HASHES_AT_ONCE = 100_000
_CHECKPOINT = "SELECT note FROM audit_checkpoint WHERE size = %s"
_HASHES = "SELECT hash FROM audit_leaf WHERE idx BETWEEN %s AND %s ORDER BY idx"


class Previous(NamedTuple):
    """The bundle before."""

    manifest_sha256: str
    size: int


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


def checkpoint_note(size: int) -> str | None:
    """The checkpoint of this size, as it was first signed; None: none was."""
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_CHECKPOINT, [size])
        row = cursor.fetchone()
    return str(row[0]) if row else None


def keys() -> Keys | signing.NotAnswered:
    """The vkeys of the log, of exports and of the witness, asked of the signer."""
    found = signing.public_keys()
    if isinstance(found, signing.NotAnswered):
        return found
    lines = [found.log, found.export, settings.WITNESS_VKEY]
    return Keys(found.origin, "".join(f"{line}\n" for line in lines if line))


def hashes(first: int, last: int) -> Iterator[bytes]:
    """The leaf hashes of a range, many at a time."""
    for start in range(first, last + 1, HASHES_AT_ONCE):
        with connections[FLEET_PLANE].cursor() as cursor:
            cursor.execute(_HASHES, [start, min(start + HASHES_AT_ONCE - 1, last)])
            yield b"".join(bytes(row[0]) for row in cursor.fetchall())


def proof_files(selection: Selection, *, size: int, note: str, previous: Previous | None) -> list[Entry]:
    """Checkpoint, edges of the range, and how the log grew since the bundle before."""
    node = node_reader()
    found = [stored("checkpoint", note.encode())]
    if proof_kind(selection) == "range":
        left, right = range_edges(selection.first, selection.last, size, node)
        edges = {"left": [_b64(one) for one in left], "right": [_b64(one) for one in right]}
        found.append(stored("edges.json", json.dumps(edges, separators=(",", ":")).encode()))
    if previous is not None:
        path = consistency(previous.size, size, node)
        found.append(stored("checkpoint.prev", (checkpoint_note(previous.size) or "").encode()))
        found.append(stored("consistency.txt", "".join(f"{_b64(one)}\n" for one in path).encode()))
    return found


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
            "previous": previous._asdict() if previous else None,
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
