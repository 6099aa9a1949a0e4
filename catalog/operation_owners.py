"""Reads where blocks can be and what is believed to be there: the owners that an operation has to ask, all of them.

An operation speaks to places (node, source, rank, tier), also where nothing is believed to be; a place keeps its number
whatever happens to the rows of its owners. Read on the fleet's connection: whose blocks are meant was decided before.
"""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch

RETIRED = "fenced"
Generations = Collection[tuple[bytes, int]]
"""(digest, generation below which) of namespaces."""


class Place(msgspec.Struct, frozen=True):
    """Where blocks can be. `owner` is the number of the place, not of a row; `source_id` is the row of its source."""

    owner: int
    node: UUID
    node_name: str
    source: str
    dp_rank: int
    tier: str
    source_id: int
    boot: str
    stream: str
    seq: int
    reachable: bool
    retired: bool
    gap: bool
    emulated: bool
    encrypted: bool
    last_heard: datetime | None
    host: str = ""
    """The machine that its node is reached at."""


class Held(msgspec.Struct, frozen=True):
    """What is believed to be in one place of one namespace."""

    blocks: int
    bytes: int


def place_number(node: UUID | str, source: str, dp_rank: int, tier: str) -> int:
    """The number of a place: 52 bits, so that it is a whole number in every JSON."""
    named_ = f"kvconsole/place/v1\0{node}\0{source}\0{dp_rank}\0{tier}".encode()
    return int.from_bytes(hashlib.sha256(named_).digest()[:8], "big") >> 12


def places() -> list[Place]:
    """All places of all enrolled nodes whose sources ever spoke, in a fixed order.

    A tier that no source was ever met with belongs to the source that is named like it, else to all others.
    """
    queries = named("catalog", "operations.sql")
    rows = [*fetch(queries["places"], using=FLEET_PLANE), *fetch(queries["undeclared"], using=FLEET_PLANE)]
    names: dict[UUID, set[str]] = {}
    met: set[tuple[UUID, str]] = set()
    for row in rows:
        names.setdefault(row[0], set()).add(row[9])
        if row[16]:
            met.add((row[0], row[5]))
    return [_place(row) for row in rows if row[16] or _may_speak(row, names[row[0]], (row[0], row[5]) in met)]


def unheard() -> list[Place]:
    """Tiers of enrolled nodes none of whose sources spoke yet: nothing can be asked there, and nobody knows of it."""
    return [_place(row) for row in fetch(named("catalog", "operations.sql")["unheard"], using=FLEET_PLANE)]


def _may_speak(row: tuple[object, ...], sources: set[str], met: bool) -> bool:
    """Whether the source speaks for a tier that it was never met with."""
    tier, source = row[5], row[9]
    if met:
        return False
    if tier in sources:
        return source == tier
    return source not in ("remote", "unreadable") or sources == {source}


def _place(row: tuple[object, ...]) -> Place:
    (
        node,
        name,
        state,
        heard,
        lately,
        tier,
        emulated,
        encrypted,
        source_id,
        source,
        rank,
        boot,
        stream,
        seq,
        doubt,
        why,
        _,
        url,
        *_,
    ) = row
    return msgspec.convert(
        {
            "owner": place_number(str(node), str(source), int(str(rank)), str(tier)),
            "node": node,
            "node_name": name,
            "source": source,
            "dp_rank": rank,
            "tier": tier,
            "source_id": source_id,
            "boot": boot,
            "stream": stream,
            "seq": seq,
            "reachable": bool(lately) and state != RETIRED and doubt != "lost",
            "retired": state == RETIRED,
            "gap": doubt in ("recovering", "degraded") and why != "silent",
            "emulated": emulated,
            "encrypted": encrypted,
            "last_heard": heard,
            "host": urlsplit(str(url)).hostname or "",
        },
        Place,
    )


def held(generations: Generations) -> dict[bytes, dict[tuple[int, str], Held]]:
    """Digest → (source's row, tier) → what is believed to be there below the generation."""
    return {digest: here for (digest, _), here in held_each(generations).items()}


def held_each(generations: Generations) -> dict[tuple[bytes, int], dict[tuple[int, str], Held]]:
    """The same by digest and generation: several may ask for one namespace, each below another generation."""
    found: dict[tuple[bytes, int], dict[tuple[int, str], Held]] = {}
    columns = ([d for d, _ in generations], [g for _, g in generations])
    query = named("catalog", "operations.sql")["held"]
    for digest, gen, source, tier, blocks, size in fetch(query, columns, using=FLEET_PLANE) if generations else ():
        found.setdefault((bytes(digest), gen), {})[source, tier] = Held(blocks, size)
    return found


def totals() -> dict[str, int]:
    """Tier → bytes that it holds in the whole fleet."""
    return {t: int(n) for t, n in fetch(named("catalog", "operations.sql")["totals"], using=FLEET_PLANE)}


def sample(generations: Generations, most: int) -> tuple[str, ...]:
    """Some keys (16 bytes in hex) of what is meant."""
    columns: Sequence[object] = ([d for d, _ in generations], [g for _, g in generations], most)
    return tuple(r[0] for r in fetch(named("catalog", "operations.sql")["sample"], columns, using=FLEET_PLANE))


SAMPLE_SEGMENTS = 16


def samples(generations: Generations, tiers: Collection[str]) -> dict[tuple[int, str], list[str]]:
    """(source's row, tier) → some keys (16 bytes in hex) of what is meant there: what another node can look for."""
    found: dict[tuple[int, str], list[str]] = {}
    columns = ([d for d, _ in generations], [g for _, g in generations], list(tiers), SAMPLE_SEGMENTS)
    for source, tier, keys in fetch(named("catalog", "operations.sql")["samples"], columns, using=FLEET_PLANE):
        found.setdefault((source, tier), []).extend(keys[n : n + 16].hex() for n in range(0, len(keys), 16))
    return found


class Compared(NamedTuple):
    """What the directory believes of one place, as of one commit. `here` is of the targets, `others` of the rest."""

    boot: str
    stream: str
    seq: int
    exact: bool
    here: int
    others: int


def compared(generations: Generations, nodes: Collection[UUID]) -> dict[int, Compared]:
    """Place → what is believed there, exactly as of the position up to which its source was heard."""
    columns = ([d for d, _ in generations], [g for _, g in generations], list(nodes))
    rows = fetch(named("catalog", "operations.sql")["compared"], columns, using=FLEET_PLANE)
    return {
        place_number(node, name, rank, tier): Compared(
            boot, stream, seq, state == "exact" and shards == 1, here, others
        )
        for node, name, rank, tier, boot, stream, seq, state, shards, here, others in rows
    }
