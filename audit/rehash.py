"""Decides whether a stretch of the log is what was sealed: reads it in one snapshot and hashes it again.

Most stretches are as they were, so all of one is compared at once; only where something differs is it gone through leaf
by leaf, and the first index named. Called by `audit.scrubber`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import psycopg

from audit import tiles
from audit.gaps import Tally
from audit.keyfiles import verify
from kvcore import notes
from kvcore.leaf import LEAF_BYTES, LeafError, body_hash, parse_leaf
from kvcore.proofs import HASH_BYTES, Frontier

STEP = 16 * tiles.WIDE
SMALL_BYTES = 8192
"""Larger bodies are read one at a time, so that memory stays flat."""
_PREFIX = b"kvconsole/audit-body/v1\0"
_LEAVES = """
SELECT string_agg(int8send(idx) || int8send(event) || int8send(time_us), ''::bytea), string_agg(data, ''::bytea),
       string_agg(hash, ''::bytea)
  FROM (SELECT * FROM audit_leaf WHERE idx >= %s AND idx < %s ORDER BY idx) l"""
_EVENTS = f"""
SELECT string_agg(int8send(id) || int4send(event_type) || int8send(time_us) || uuid_send(event_id) || tenant_ref
                  || actor_ref || int2send(outcome) || int2send(flags) || int4send(producer_id)
                  || int8send(producer_seq) || body_hash || pii_commit || int4send(octet_length(body)), ''::bytea),
       string_agg(CASE WHEN octet_length(body) <= {SMALL_BYTES} THEN body ELSE ''::bytea END, ''::bytea)
  FROM audit_event WHERE id = ANY(ARRAY(SELECT event FROM audit_leaf WHERE idx >= %s AND idx < %s))
   AND time_us BETWEEN %s AND %s"""  # noqa: S608
_ROWS = """
SELECT l.idx, l.event, l.hash, l.data, e.event_type, e.time_us, e.event_id, e.tenant_ref, e.actor_ref, e.outcome,
       e.flags, e.producer_id, e.producer_seq, e.body_hash, e.pii_commit
  FROM audit_leaf l LEFT JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us
 WHERE l.idx >= %s AND l.idx < %s ORDER BY l.idx"""
_FIELDS = (
    *("event_type", "time_us", "event_id", "tenant_ref", "actor_ref", "outcome", "flags", "producer_id"),
    *("producer_seq", "body_hash", "pii_commit"),
)
_PLACE = np.dtype([("idx", ">i8"), ("event", ">i8"), ("time", ">i8")])
_NAMES = ("uuid", "tenant", "actor", "body", "pii")
_EVENT = np.dtype([
    ("id", ">i8"), ("type", ">i4"), ("time", ">i8"), ("uuid", "V16"), ("tenant", "V16"), ("actor", "V16"),
    ("outcome", ">i2"), ("flags", ">i2"), ("producer", ">i4"), ("seq", ">i8"), ("body", "V32"), ("pii", "V32"),
    ("length", ">i4"),
])  # fmt: skip
_LEAF = np.dtype([
    ("magic", "V4"), ("version", ">u2"), ("type", ">u2"), ("idx", ">u8"), ("time", ">u8"), ("uuid", "V16"),
    ("tenant", "V16"), ("actor", "V16"), ("outcome", "u1"), ("flags", "u1"), ("producer", ">u2"), ("seq", ">u8"),
    ("body", "V32"), ("pii", "V32"),
])  # fmt: skip


class Divergence(NamedTuple):
    """Something that is not as it was sealed; `at`: index of the first leaf that it concerns."""

    kind: str
    at: int
    detail: str


@dataclass
class Walk:
    """How far a round is: the tree up to there, made from the leaves, and the producers' numbers in them."""

    frontier: Frontier
    tally: Tally
    spent: float = 0.0
    key: notes.VerifierKey | None = None
    """That signs the log's heads; None: nobody can be asked, and no signature is checked."""
    known: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """Log and stretch → hash of its heads and of the key, where their signatures were found good."""


@dataclass
class Part:
    """A stretch of the log, the leaves `first` … `end - 1`, and the tree as it was in the same snapshot."""

    first: int
    end: int
    size: int
    frontier: bytes
    root: bytes
    signed: int
    """Largest size that was ever signed."""
    places: bytes = b""
    data: bytes = b""
    hashes: bytes = b""
    events: bytes = b""
    bodies: bytes = b""
    retired: frozenset[tuple[int, date]] = frozenset()
    """(class, month) of events whose bodies went, by an order that the trail has."""
    large: dict[int, bytes] = field(default_factory=dict)
    """Event → hash of its large body."""
    tiles: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    upper: list[tuple[int, int, bytes, bytes, bytes]] = field(default_factory=list)
    """(level, number, nodes and node above of a tile of a higher level, its nodes as the tiles below have them)"""
    checkpoints: list[tuple[int, bytes, str]] = field(default_factory=list)
    """(size, root, note) of each head that was kept."""


def read(c: psycopg.Connection[Any], first: int) -> Part:
    """Up to `STEP` leaves from `first` on, a multiple of 256, and all that belongs to them."""
    with c.transaction():
        query = "SELECT size, frontier, root, (SELECT max(size) FROM audit_checkpoint) FROM audit_tree"
        row = c.execute(query, binary=True).fetchone()
        assert row is not None
        size, frontier, root, signed = row
        part = Part(first, max(first, min(first + STEP, size)), size, bytes(frontier), bytes(root), signed or 0)
        span = (part.first, part.end)
        got = c.execute(_LEAVES, span, binary=True).fetchone() or (None,) * 3
        part.places, part.data, part.hashes = (x or b"" for x in got)
        _read_events(c, part)
        of = (first // tiles.WIDE, part.end // tiles.WIDE)
        query = "SELECT tile, hashes, root FROM audit_tile WHERE level = 0 AND tile >= %s AND tile < %s"
        part.tiles = {tile: (hashes, over) for tile, hashes, over in c.execute(query, of, binary=True)}
        query = "SELECT size, root, note FROM audit_checkpoint WHERE size > %s AND size <= %s ORDER BY size"
        part.checkpoints = c.execute(query, span, binary=True).fetchall()
        for level in tiles.LEVELS[1:]:
            wide = 1 << (level + tiles.BITS)
            for number in range(part.first // wide, part.end // wide):
                part.upper.append(_read_upper(c, level, number))
    return part


def check(walk: Walk, part: Part, dsn: str) -> list[Divergence]:
    """What of this stretch differs, and the walk is at its end, or at the last whole tile of a log that ends there."""
    made = tiles.leaf_hashes(part.data)
    found: list[Divergence] = []
    if not _is_whole(part, made):
        with psycopg.connect(dsn, autocommit=True) as c:
            found, made = _pinned(c, part)
    _count(walk.tally, part)
    stretch = (walk.key.name if walk.key else "", part.first)
    heads = sha256(repr((walk.key, part.checkpoints)).encode()).digest()
    key = None if walk.known.get(stretch) == heads else walk.key
    for number in range(part.first // tiles.WIDE, -(-part.end // tiles.WIDE)):
        at = number * tiles.WIDE - part.first
        row = made[at : at + tiles.WIDE]
        found += _tiled(walk.frontier, part, number, row)
        over = tiles.over(row) if len(row) == tiles.WIDE else b""
        found += _signed(walk.frontier, part, row, key)
        if over:
            tiles.push(walk.frontier, tiles.BITS, over)
    for level, number, nodes, over, below in part.upper:
        if nodes != below or over != tiles.over(tiles.split(below)):
            index = number << (level + tiles.BITS)
            found.append(Divergence("tile", index, f"tile {number} of level {level} is not made of those below it"))
    if not {one.kind for one in found} & {"signature", "checkpoint"}:
        walk.known[stretch] = heads
    if part.end == part.size:
        found += _ended(walk.frontier, part, made[walk.frontier.size - part.first :])
    return found


# --- reading -----------------------------------------------------------------


def _read_events(c: psycopg.Connection[Any], part: Part) -> None:
    places = np.frombuffer(part.places, _PLACE)
    if not len(places):
        return
    times = places["time"]
    values = (part.first, part.end, int(times.min()), int(times.max()))
    got = c.execute(_EVENTS, values, binary=True).fetchone() or (None, None)
    part.events, part.bodies = (x or b"" for x in got)
    if len(part.events) % _EVENT.itemsize:
        return
    events = np.frombuffer(part.events, _EVENT)
    if not events["length"].all():
        part.retired = _retired(c)
    for one in events[events["length"] > SMALL_BYTES]:
        key = (int(one["id"]), int(one["time"]))
        row = c.execute("SELECT body FROM audit_event WHERE id = %s AND time_us = %s", key, binary=True).fetchone()
        part.large[key[0]] = body_hash(row[0]) if row else b""


def _retired(c: psycopg.Connection[Any]) -> frozenset[tuple[int, date]]:
    return frozenset(c.execute("SELECT class, month FROM audit_retired", binary=True).fetchall())


def _read_upper(c: psycopg.Connection[Any], level: int, number: int) -> tuple[int, int, bytes, bytes, bytes]:
    query = "SELECT hashes, root FROM audit_tile WHERE level = %s AND tile = %s"
    nodes, over = c.execute(query, (level, number), binary=True).fetchone() or (b"", b"")
    query = "SELECT root FROM audit_tile WHERE level = %s AND tile >= %s AND tile < %s ORDER BY tile"
    span = (level - tiles.BITS, number * tiles.WIDE, (number + 1) * tiles.WIDE)
    below = [bytes(row[0]) for row in c.execute(query, span, binary=True)]
    if len(below) != tiles.WIDE:  # named by the tiles below
        below = tiles.split(nodes) if nodes else [bytes(HASH_BYTES)] * tiles.WIDE
    return level, number, bytes(nodes), bytes(over), b"".join(below)


# --- all at once --------------------------------------------------------------


def _is_whole(part: Part, made: Sequence[bytes]) -> bool:
    """Whether leaves, their hashes, the events behind them and their bodies all agree."""
    count = part.end - part.first
    sizes = (len(part.places), len(part.data), len(part.hashes), len(part.events))
    if sizes != (count * _PLACE.itemsize, count * LEAF_BYTES, count * HASH_BYTES, count * _EVENT.itemsize):
        return False
    if not count:
        return True
    places, events = np.frombuffer(part.places, _PLACE), np.frombuffer(part.events, _EVENT)
    if not np.array_equal(places["idx"], np.arange(part.first, part.end)) or b"".join(made) != part.hashes:
        return False
    order = np.argsort(events["id"], kind="stable")
    at = order[np.searchsorted(events["id"], places["event"], sorter=order).clip(max=count - 1)]
    if not np.array_equal(events["id"][at], places["event"]):
        return False
    hashed = np.frombuffer(_bodies(part, events), "V32")[at]
    if part.retired:
        went = (events["length"] == 0) & np.isin(_classes(events), _keys(part.retired))
        hashed = np.where(went[at], events["body"][at], hashed)
    behind, leaves = events[at], np.frombuffer(part.data, _LEAF)
    wanted = np.zeros(count, _LEAF)
    wanted["magic"], wanted["version"], wanted["idx"] = np.void(b"KVAL"), 1, places["idx"]
    for name in ("type", "time", "outcome", "flags", "producer", "seq", *_NAMES):
        wanted[name] = behind[name]
    same = hashed.tobytes() == leaves["body"].tobytes() and places["time"].tobytes() == behind["time"].tobytes()
    return same and wanted.tobytes() == part.data


def _bodies(part: Part, events: Any) -> bytes:
    """The hash of each event's body, in the events' order."""
    ends = np.where(events["length"] <= SMALL_BYTES, events["length"], 0).cumsum().tolist()
    blob, begins = part.bodies, [0, *ends[:-1]]
    if not part.large:
        return b"".join([sha256(_PREFIX + blob[a:b]).digest() for a, b in zip(begins, ends, strict=True)])
    made = [
        part.large.get(id_) or body_hash(blob[a:b])
        for id_, a, b in zip(events["id"].tolist(), begins, ends, strict=True)
    ]
    return b"".join(made)


def _keys(retired: frozenset[tuple[int, date]]) -> list[int]:
    return [kind * 100_000 + (month.year - 1970) * 12 + month.month - 1 for kind, month in retired]


def _classes(events: Any) -> Any:
    months = events["time"].astype("i8").astype("datetime64[us]").astype("datetime64[M]").astype("i8")
    return (events["type"].astype("i8") >> 8) * 100_000 + months


def _count(tally: Tally, part: Part) -> None:
    if len(part.data) != (part.end - part.first) * LEAF_BYTES:
        return
    leaves = np.frombuffer(part.data, _LEAF)
    order = np.lexsort((leaves["seq"], leaves["producer"]))
    producers, seqs = leaves["producer"][order].astype("i8"), leaves["seq"][order].astype("i8")
    breaks = np.flatnonzero((np.diff(producers) != 0) | (np.diff(seqs) != 1)) + 1
    begins = [0, *breaks.tolist()] if len(order) else []
    ends = [*breaks.tolist(), len(order)]
    for a, b in zip(begins, ends, strict=False):
        tally.span(int(producers[a]), int(seqs[a]), int(seqs[b - 1]), part.first + int(order[a]))


# --- leaf by leaf -------------------------------------------------------------


def _pinned(c: psycopg.Connection[Any], part: Part) -> tuple[list[Divergence], list[bytes]]:
    """What differs, leaf by leaf, and the hashes to go on with: those sealed, as far as they can be known."""
    found: list[Divergence] = []
    rows = {row[0]: row[1:] for row in c.execute(_ROWS, (part.first, part.end), binary=True)}
    kept: list[bytes] = []
    for idx in range(part.first, part.end):
        sealed = _sealed(part, idx)
        if idx not in rows:
            found.append(Divergence("leaf", idx, "the leaf is missing"))
            kept.append(sealed or bytes(HASH_BYTES))
            continue
        event, stored, data, *columns = rows[idx]
        made = sha256(b"\x00" + data).digest()
        if why := _leaf_wrong(idx, data, made, stored, sealed):
            found.append(Divergence("leaf", idx, why))
        if why := _event_wrong(data, columns):
            found.append(Divergence("event", idx, f"event {event}: {why}"))
        elif columns[0] is not None and (why := _body_wrong(c, event, columns)):
            found.append(Divergence("body", idx, f"event {event}: {why}"))
        kept.append(made if made == stored else sealed or stored)
    return found, kept


def _sealed(part: Part, idx: int) -> bytes:
    row = part.tiles.get(idx // tiles.WIDE, (b"", b""))[0]
    at = idx % tiles.WIDE * HASH_BYTES
    return row[at : at + HASH_BYTES]


def _leaf_wrong(idx: int, data: bytes, made: bytes, stored: bytes, sealed: bytes) -> str:
    try:
        said = parse_leaf(data)
    except LeafError as e:
        return f"the bytes are no leaf: {e}"
    if said.index != idx:
        return f"the leaf is that of index {said.index}"
    if made != stored:
        return "its hash was changed" if made == sealed else "its bytes are not those that were hashed"
    return ""


def _event_wrong(data: bytes, columns: Sequence[Any]) -> str:
    if columns[0] is None:
        return "it is missing"
    try:
        said = parse_leaf(data)
    except LeafError:
        return ""
    values = dict(zip(_FIELDS, columns, strict=True))
    values["event_id"] = values["event_id"].bytes
    wrong = [name for name, value in values.items() if getattr(said, name) != value]
    return f"{', '.join(wrong)} not as sealed" if wrong else ""


def _body_wrong(c: psycopg.Connection[Any], event: int, columns: Sequence[Any]) -> str:
    query = "SELECT body FROM audit_event WHERE id = %s AND time_us = %s"
    row = c.execute(query, (event, columns[1]), binary=True).fetchone()
    hashed = columns[_FIELDS.index("body_hash")]
    if row and not row[0]:
        month = datetime.fromtimestamp(columns[1] / 1e6, UTC).date().replace(day=1)
        return "" if (columns[0] >> 8, month) in _retired(c) else "its body went and no order says so"
    return "" if row and body_hash(row[0]) == hashed else "its body is not the one that was sealed"


# --- the tree -----------------------------------------------------------------


def _tiled(frontier: Frontier, part: Part, number: int, row: list[bytes]) -> list[Divergence]:
    if len(row) != tiles.WIDE:
        return []
    index = number * tiles.WIDE
    if number not in part.tiles:
        return [Divergence("tile", index, f"tile {number} is missing")]
    hashes, over = part.tiles[number]
    if hashes != b"".join(row):
        at = next((i for i, one in enumerate(tiles.split(hashes)) if i >= len(row) or one != row[i]), 0)
        sound = len(hashes) == tiles.ROW_BYTES and tiles.over(tiles.split(hashes)) == over
        if sound:  # the tile was sealed so: the leaf and its hash were changed together
            row[:] = tiles.split(hashes)
        return [Divergence("leaf" if sound else "tile", index + at, f"leaf and tile {number} do not agree")]
    return [] if over == tiles.over(row) else [Divergence("tile", index, f"the node above tile {number} was changed")]


def _signed(frontier: Frontier, part: Part, row: Sequence[bytes], key: notes.VerifierKey | None) -> list[Divergence]:
    """Of the signed sizes that end among these leaves, those whose root is another one now, or whose note is."""
    heads = [one for one in part.checkpoints if frontier.size < one[0] <= frontier.size + len(row)]
    found, copy = [], Frontier(frontier.size, frontier.hashes)
    for size, root, note in heads:
        for one in row[copy.size - frontier.size : size - frontier.size]:
            copy.append(one)
        if copy.root() != root:
            found.append(Divergence("checkpoint", size - 1, f"the first {size} leaves are not those that were signed"))
        elif wrong := _note_wrong(note, size, root, key):
            found.append(Divergence(wrong[0], size - 1, f"the checkpoint of {size} leaves: {wrong[1]}"))
    return found


def _note_wrong(note: str, size: int, root: bytes, key: notes.VerifierKey | None) -> tuple[str, str] | None:
    """What is wrong with the note of a head, as (kind, why). A head of an earlier epoch is another key's to check."""
    try:
        said = notes.checkpoint_parse(notes.note_text(note))
        if (said.size, said.root) != (size, root):
            return "checkpoint", "what was signed is another size or root"
        if key is not None and said.origin == key.name:
            notes.note_open(note, [key], verify)
    except notes.NoteError as e:
        return "signature", f"the log's key did not sign it ({e.code})"
    return None


def _ended(frontier: Frontier, part: Part, rest: Sequence[bytes]) -> list[Divergence]:
    whole = Frontier(frontier.size, frontier.hashes)
    for one in rest:
        whole.append(one)
    found = []
    if whole.size == part.size and whole.pack() != part.frontier:
        stored = tiles.split(part.frontier)
        at, index = 0, 0
        for level in range(part.size.bit_length() - 1, -1, -1):
            if part.size >> level & 1:
                if at >= len(stored) or stored[at] != whole.hashes[at]:
                    break
                at, index = at + 1, index + (1 << level)
        found.append(Divergence("frontier", min(index, part.size - 1), "the tree cannot grow from these hashes"))
    elif whole.root() != part.root:
        found.append(Divergence("frontier", max(0, part.size - 1), "the stored root is not that of the leaves"))
    if part.signed > part.size:
        detail = f"{part.signed} leaves were signed and {part.size} are left"
        found.append(Divergence("log-shrunk", part.size, detail))
    return found
