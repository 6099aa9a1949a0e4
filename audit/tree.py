"""Decides how the log is read: its tree as the function that proofs are made from, its checkpoints, its state.

Callers: `audit.selectors`, pages and REST (as kv_operator), the sequencer's threads (as kv_seq).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connections

from audit import tiles
from kvcore.proofs import HASH_BYTES, Frontier, Node

COUNTED = 100_000
"""So many waiting events are counted; more are told as this many."""
_CACHED_TILES = 64
Ask = Callable[[str, Sequence[Any]], list[Any]]
"""(statement, parameters) → rows, on some connection."""


class CheckpointRow(NamedTuple):
    """The newest signed size of the log."""

    size: int
    root: bytes
    note: str
    signed_at: datetime


class Sizes(NamedTuple):
    """The tree as it is now."""

    size: int
    frontier: bytes
    root: bytes
    at: datetime
    epoch: int = 1
    """Number of this log among those that went on after each other."""


class LogState(NamedTuple):
    """What pages and machines are told of the log."""

    size: int
    sequenced_at: datetime | None
    signed_size: int
    signed_at: datetime | None
    pending: int
    """Events that wait to be sealed, at most `COUNTED`."""
    oldest_pending_seconds: float
    signer: str
    """ok, refused or away."""
    signer_why: str
    witness: str
    """ok, refused, away or none."""
    witness_why: str
    findings: int
    """Open ones."""
    scrubbed_at: datetime | None
    """End of the scrubber's last full round."""
    scrubbed_size: int | None


class LogTorn(LookupError):
    """Nodes of the tree that should be there are not: somebody took them away."""


def asked(alias: str = "default") -> Ask:
    """Questions to Django's connection of this name."""

    def ask(statement: str, parameters: Sequence[Any]) -> list[Any]:
        with connections[alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: list[Any] = cursor.fetchall()
            return rows

    return ask


def node_reader(ask: Ask | None = None) -> Node:
    """The tree as a function `node(level, index)` for `kvcore.proofs`; good for as long as one needs it.

    Complete tiles never change, so the last ones read are kept. Calling it raises `LogTorn` where nodes are missing.
    """
    ask = ask or asked()

    @lru_cache(_CACHED_TILES)
    def tile(level: int, number: int) -> bytes | None:
        rows = ask("SELECT hashes FROM audit_tile WHERE level = %s AND tile = %s", (level, number))
        return bytes(rows[0][0]) if rows else None

    def edge(level: int, first: int, end: int) -> list[bytes]:
        return nodes(ask, level, first, end)

    return lru_cache(4096)(tiles.node_of(tile, edge))


def nodes(ask: Ask, level: int, first: int, end: int) -> list[bytes]:
    """The nodes `first` … `end - 1` of a level (0, 8, 16 or 24), of perfect subtrees that are all there.

    Raises:
        LogTorn: one of them is not there.
    """
    if level == 0:
        rows = ask("SELECT hash FROM audit_leaf WHERE idx >= %s AND idx < %s ORDER BY idx", (first, end))
    else:
        query = "SELECT root FROM audit_tile WHERE level = %s AND tile >= %s AND tile < %s ORDER BY tile"
        rows = ask(query, (level - tiles.BITS, first, end))
    if len(rows) != end - first or any(len(row[0]) != HASH_BYTES for row in rows):
        raise LogTorn(f"of the nodes {first} to {end - 1} of level {level} there are {len(rows)}")
    return [bytes(row[0]) for row in rows]


def tree_now(ask: Ask | None = None) -> Sizes:
    """Size, frontier and root as the sequencer left them."""
    ((size, frontier, root, at, epoch),) = (ask or asked())(
        "SELECT size, frontier, root, at, epoch FROM audit_tree", ()
    )
    return Sizes(size, bytes(frontier), bytes(root), at, epoch)


def checkpoint_latest(ask: Ask | None = None) -> CheckpointRow | None:
    """The newest signed note, None where nothing was ever signed."""
    query = "SELECT size, root, note, signed_at FROM audit_signing WHERE note <> ''"
    rows = (ask or asked())(query, ())
    return CheckpointRow(rows[0][0], bytes(rows[0][1]), rows[0][2], rows[0][3]) if rows else None


def frontier_rebuilt(size: int, node: Node) -> Frontier:
    """The frontier of the first `size` leaves, from the nodes themselves."""
    found, at = Frontier(), 0
    for level in range(size.bit_length() - 1, -1, -1):
        if size >> level & 1:
            tiles.push(found, level, node(level, at >> level))
            at += 1 << level
    return found


def log_state(ask: Ask | None = None) -> LogState:
    """How the log stands now."""
    ask = ask or asked()
    ((size, at, signed_size, signed_at, signer, signer_why, witness, witness_why),) = ask(
        "SELECT t.size, t.at, s.size, s.signed_at, s.signer, s.signer_why, s.witness, s.witness_why"
        " FROM audit_tree t, audit_signing s",
        (),
    )
    pending, age = pending_now(ask)
    ((findings,),) = ask("SELECT count(*) FROM audit_finding WHERE resolved_at IS NULL", ())
    ((done_at, done_size),) = ask("SELECT done_at, done_size FROM audit_walk WHERE name = 'scrub'", ())
    return LogState(
        size, at if size else None, signed_size, signed_at, pending, age, signer, signer_why, witness, witness_why,
        findings, done_at, done_size,
    )  # fmt: skip


def pending_now(ask: Ask | None = None) -> tuple[int, float]:
    """How many events wait for the sequencer (at most `COUNTED`), and for how many seconds the first of them has."""
    ask = ask or asked()
    ((pending,),) = ask("SELECT count(*) FROM (SELECT FROM audit_pending LIMIT %s) p", (COUNTED,))
    age = "extract(epoch FROM clock_timestamp())::float8 - time_us / 1e6"
    rows = ask(f"SELECT {age} FROM audit_pending ORDER BY event LIMIT 1", ())  # noqa: S608
    return pending, max(0.0, float(rows[0][0])) if rows else 0.0
