"""Reads which blocks a selector means that is finer than a namespace: `prefix` and `older_than`.

A prefix means its blocks and everything that continues them: a block cannot be used without the one before it. Age is
that of a placement, so a block is old where any of its copies is; its copies all go. The work is by runs, not by
blocks. Called by `operation_plans`.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from catalog import store_reads
from catalog.index.facts import unpack
from catalog.operation_owners import Generations, Held
from kvconsole.infra import sql
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.plans import Selector
from kvcore.targets import KEY, MOST_KEYS, keys_hash

add_codes({"catalog-behind": (503, "The catalog has not written down yet what is to be selected from")})
BARRIER_SECONDS = 5.0
_Runs = dict[tuple[int, int], int]
"""(keyspace, segment) → mask of the blocks that are meant."""


class Space(NamedTuple):
    """A keyspace that may hold some of what is meant."""

    digest: bytes
    group: int
    block_bytes: int


class _Segment(NamedTuple):
    """Consecutive keys of one chain, and behind which key of which other segment they stand."""

    keyspace: int
    id: int
    up: int | None
    up_off: int
    keys: bytes

    @property
    def run(self) -> tuple[int, int]:
        return self.keyspace, self.id


class Meant(NamedTuple):
    """What is meant of one cache group of a namespace: packed keys, `below`: and whatever else continues them."""

    digest: bytes
    group: int
    keys: bytes
    below: bool

    def parts(self) -> list[tuple[str, bytes]]:
        """(hash, keys) of the targets that name them."""
        size = MOST_KEYS * KEY
        return [(keys_hash(part), part) for at in range(0, len(self.keys), size) if (part := self.keys[at : at + size])]


class Blocks(NamedTuple):
    """What was found: by group, and digest → (source's row, tier) → what is held there of it."""

    meant: list[Meant]
    held: dict[bytes, dict[tuple[int, str], Held]]
    sample: tuple[str, ...]


def settled(shard: int = 0, timeout: float = BARRIER_SECONDS) -> None:
    """Rows contain everything that was committed before. On a connection of its own: the writer must not wait for us.

    Raises:
        Problem: catalog-behind; nothing was read.
    """
    try:
        with sql.connect("operator") as connection:
            store_reads.barrier(connection, shard, timeout)
    except store_reads.BarrierTimeout:
        raise Problem("catalog-behind", retry_after_seconds=2) from None


def blocks_meant(generations: Generations, parts: Sequence[Selector], *, sample: int) -> Blocks:
    """The blocks of these namespaces of which every part of a selector is true.

    Args:
        generations: (digest, generation below which) of the namespaces.
        parts: with a prefix, an age, both or neither.
        sample: most keys to show.

    Raises:
        Problem: catalog-behind.
    """
    settled()
    queries = named("catalog", "operation_blocks.sql")
    columns = ([d for d, _ in generations], [g for _, g in generations])
    spaces = {
        number: Space(bytes(digest), group, size)
        for number, digest, group, size in fetch(queries["spaces"], columns, using=FLEET_PLANE)
    }
    prefixes = [part.prefix for part in parts if part.prefix]
    ages = [part.older_than for part in parts if part.older_than is not None]
    if not spaces:
        return Blocks([], {}, ())
    rows = fetch(queries["segments"], (list(spaces),), using=FLEET_PLANE)
    segments = [_Segment(keyspace, seg, up, off or 0, bytes(keys)) for keyspace, seg, up, off, keys in rows]
    begins = [_below(segments, prefix) for prefix in prefixes if segments]
    masks = begins[0] if begins else None
    for other in begins[1:]:
        masks = {run: (masks or {})[run] & other[run] for run in (masks or {}).keys() & other.keys()}
    since = datetime.fromtimestamp(min(ages, default=0.0), UTC)
    placed = fetch(queries["placed"], (since, list(spaces)), using=FLEET_PLANE)
    if ages:
        masks = _old(placed, masks)
    found = {run: mask for run, mask in (masks or {}).items() if mask}
    held: dict[bytes, dict[tuple[int, str], Held]] = {}
    for keyspace, seg, source, tier, n, bits, _ in placed:
        if count := (found.get((keyspace, seg), 0) & unpack(n, bits)).bit_count():
            place = held.setdefault(spaces[keyspace].digest, {})
            before = place.get((source, tier), Held(0, 0))
            size = before.bytes + count * spaces[keyspace].block_bytes
            place[source, tier] = Held(before.blocks + count, size)
    meant = _keys(spaces, segments, found, below=not ages)
    some = (one.keys[at : at + KEY].hex() for one in meant for at in range(0, len(one.keys), KEY))
    return Blocks(meant, held, tuple(key for key, _ in zip(some, range(sample), strict=False)))


def _below(segments: Sequence[_Segment], prefix: Collection[str]) -> _Runs:
    """The blocks of a prefix and all that continue them, also those that nobody holds now."""
    wanted = np.unique(np.array([bytes.fromhex(key)[:KEY] for key in prefix], f"S{KEY}"))
    keys = np.frombuffer(b"".join(one.keys for one in segments), f"S{KEY}")
    at = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    ends = np.cumsum([len(one.keys) // KEY for one in segments])
    first: dict[tuple[int, int], int] = {}
    for hit in np.flatnonzero(wanted[at] == keys)[::-1].tolist():  # the first one of a segment comes last
        number = int(np.searchsorted(ends, hit, side="right"))
        start = int(ends[number - 1]) if number else 0
        first[segments[number].run] = hit - start
    after: dict[tuple[int, int], list[_Segment]] = {}
    for one in segments:
        if one.up is not None:
            after.setdefault((one.keyspace, one.up), []).append(one)
    todo = list(first)
    while todo:
        for one in after.get(run := todo.pop(), ()):
            if one.up_off >= first[run] and first.get(one.run, 1):
                first[one.run] = 0
                todo.append(one.run)
    return {run: -1 << off for run, off in first.items()}


def _old(placed: Sequence[tuple[Any, ...]], among: _Runs | None) -> _Runs:
    """What is held in a placement that is old enough; among what else is meant."""
    found: _Runs = {}
    for keyspace, seg, _, _, n, bits, old in placed:
        run = (keyspace, seg)
        if old and (among is None or run in among):
            mask = unpack(n, bits) & (-1 if among is None else among[run])
            found[run] = found.get(run, 0) | mask
    return found


def _keys(spaces: dict[int, Space], segments: Sequence[_Segment], found: _Runs, *, below: bool) -> list[Meant]:
    of: dict[tuple[bytes, int], list[bytes]] = {}
    for one in segments:
        if one.run not in found:
            continue
        keys, count = one.keys, len(one.keys) // KEY
        mask = found[one.run] & ((1 << count) - 1)
        first = (mask & -mask).bit_length() - 1
        if mask == (1 << count) - (1 << first):  # all from one on
            part = keys[first * KEY :]
        else:
            part = b"".join(keys[at * KEY : (at + 1) * KEY] for at in range(count) if mask >> at & 1)
        space = spaces[one.keyspace]
        of.setdefault((space.digest, space.group), []).append(part)
    return [
        Meant(digest, group, _packed(b"".join(parts)), below)
        for (digest, group), parts in sorted(of.items())
        if any(parts)
    ]


def _packed(keys: bytes) -> bytes:
    """Sorted, each once: as `kvcore.targets.packed` does it, for many."""
    halves = np.frombuffer(keys, ">u8").reshape(-1, 2).astype(np.uint64)
    halves = halves[np.lexsort((halves[:, 1], halves[:, 0]))]
    new = np.ones(len(halves), np.bool_)
    new[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    return halves[new].astype(">u8").tobytes()
