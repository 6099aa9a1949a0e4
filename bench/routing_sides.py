"""Our sides of the routing index's bench: `python -m bench.routing_sides FORM FILE [wire|few]`, one line of JSON.

FORM is `packed` or `dict`; `wire` feeds msgpack instead of what is decoded: as lists of hashes and as packed bytes.
"""

import array
import gc
import json
import pathlib
import sys
import time
from functools import partial
from typing import Any

import msgspec
import numpy as np

from bench.routing_peer import LENGTHS, resident
from bench.routing_streams import Stream, load
from routing.index import DictIndex, Index

BATCH = 2_000


class Listed(msgspec.Struct, array_like=True):
    """An event with its hashes as numbers."""

    add: bool
    owner: int
    parent: int
    hashes: list[int]


class Packed(msgspec.Struct, array_like=True):
    """An event with its hashes as bytes."""

    add: bool
    owner: int
    parent: int
    hashes: bytes


def made(form: str) -> Index:
    """An empty index of the form, compiled."""
    if form == "dict":
        return DictIndex()
    from routing.index_jit import PackedIndex, warm

    warm()
    return PackedIndex()


def apply(index: Index, stream: Stream) -> float:
    """CPU seconds of all events as the product has them: packed fingerprints."""
    started = time.process_time()
    for add, owner, keys in zip(stream.adds, stream.owners, stream.keys, strict=True):
        (index.add if add else index.remove)(0, owner, keys)
    return time.process_time() - started


def wire(index: Index, stream: Stream, kind: type[Listed] | type[Packed]) -> float:
    """CPU seconds from msgpack to the index."""
    pack = partial(np.array, dtype=np.uint64) if index.form == "packed" else partial(array.array, "Q")
    decoder, spent = msgspec.msgpack.Decoder(kind), 0.0
    rows = list(zip(stream.adds, stream.owners, stream.parents, stream.keys, strict=True))
    for i in range(0, len(rows), BATCH):
        some: list[Any] = [
            (a, o, p, memoryview(k).cast("Q").tolist() if kind is Listed else k) for a, o, p, k in rows[i : i + BATCH]
        ]
        bodies = [msgspec.msgpack.encode(row) for row in some]
        started = time.process_time()
        for body in bodies:
            event = decoder.decode(body)
            hashes = event.hashes
            keys = hashes if isinstance(hashes, bytes) else pack(hashes).tobytes()
            (index.add if event.add else index.remove)(0, event.owner, keys)
        spent += time.process_time() - started
    return spent


def look(index: Index, stream: Stream, length: int, most: int = 0) -> tuple[list[float], list[list[int]], float]:
    """Seconds of each look-up, sorted; the three deepest owners' depths of each chain; median of those asked first."""
    asked = [c[: 8 * length] + np.arange(1, 1 + length - min(length, len(c) // 8), dtype=np.uint64).tobytes()
             for c in stream.chains]  # fmt: skip
    took = []
    for chain in asked * 2:
        started = time.perf_counter()
        index.lookup(0, chain, 0, most)
        took.append(time.perf_counter() - started)
    found = [index.lookup(0, chain) for chain in asked]
    depths = [sorted((d for d, owners in runs for _ in owners), reverse=True)[:3] for runs in found]
    return sorted(took), depths, sorted(took[: len(asked)])[len(asked) // 2]


def main(form: str, path: str, how: str) -> dict[str, Any]:
    """All that one process measures. `how`: "" | wire | few (only the deepest eight owners are listed)."""
    stream, index = load(pathlib.Path(path)), made(form)
    if how == "wire":
        return {
            "listed_cpu": wire(made(form), stream, Listed),
            "packed_cpu": wire(made(form), stream, Packed),
        }
    gc.collect()
    before = resident()
    out: dict[str, Any] = {"apply_cpu": apply(index, stream)}
    gc.collect()
    out["bytes"], out["sizes"] = resident() - before, index.sizes()
    if how == "few":
        index.closed(0, True)
        return out | {"look": {length: look(index, stream, length, 8)[0] for length in LENGTHS}}
    for name, vouched in (("look", True), ("exact", False)):
        index.closed(0, vouched)
        found = {length: look(index, stream, length) for length in LENGTHS}
        out[name] = {length: one[0] for length, one in found.items()}
        out["depths" if vouched else "exact_depths"] = {length: one[1] for length, one in found.items()}
        out[f"{name}_first"] = {length: one[2] for length, one in found.items()}
    return out


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], "".join(sys.argv[3:]))))
