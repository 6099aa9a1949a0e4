"""How long until something is gone on one node: objects by their keys, files, memory, and a second node's look.

10,000 encrypted objects of one generation are made unreadable by destroying its key in the key store and the objects'
own values in the node's key file, each read back; afterwards every one of them is tried. Files and arenas are erased
as an order does it, with everything read back. Rates of memory stand beside a plain fill of the same bytes.
"""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvconsole.infra.keystore import KeyStore, namespace_name
from kvcore.blocks import Tier
from nodeagent.probe import arenas, residue
from nodeagent.tiers.base import HEADER_BYTES, BlockRefused, LeaseOver, Look, RunMeta, seal
from nodeagent.tiers.disk import DiskTier
from nodeagent.tiers.memory import MemoryTier
from nodeagent.tiers.objects import BLANK, KeyFile

Figure = dict[str, Any]
OBJECTS, BATCH = 10_000, 500
BLOCK_BYTES, TOKENS = 1024, 16
ARENA_BYTES = 256 * 2**20
NS = bytes(range(32))


def run(quick: bool) -> Iterator[Figure]:
    """Seconds of the keys and the files, rates of memory and of a raw look."""
    base = Path(tempfile.mkdtemp(prefix="kvc-bench-"))
    try:
        yield from _keys(base, OBJECTS // 10 if quick else OBJECTS)
        yield from _memory(ARENA_BYTES // 8 if quick else ARENA_BYTES)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _meta(number: int, blocks: int = 1) -> RunMeta:
    keys = b"".join(n.to_bytes(32, "big") for n in range(number, number + blocks))
    return RunMeta(NS, 1, 0, 0, None, keys, number + 1, TOKENS, BLOCK_BYTES)


def _timed(what: Callable[[], object]) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def _keys(base: Path, count: int) -> Iterator[Figure]:
    store, name = KeyStore(base / "store"), namespace_name(NS, 1)
    store.ensure(name)
    leased: list[bytes] = [store.secret(name)]

    def enc(ns: bytes, gen: int) -> bytes:
        if not leased:
            raise LeaseOver("dropped")
        return leased[0]

    keys = KeyFile(base / "keys")
    tier = DiskTier(base / "ssd", capacity_bytes=2**40, keys=keys, enc_key=enc)
    metas, places = [_meta(n) for n in range(count)], list[bytes]()
    sealed = [(meta, seal(meta, lambda key: secrets.token_bytes(BLOCK_BYTES))) for meta in metas]
    for at in range(0, count, BATCH):
        places += tier.write(sealed[at : at + BATCH])
    assert tier.read(metas[-1], places[-1]) == sealed[-1][1]
    values = list[bytes]()

    def crypto() -> None:
        store.destroy(name)
        leased.clear()
        for at in range(0, count, BATCH):
            values.extend(keys.destroy(places[at : at + BATCH]))

    seconds = _timed(crypto)
    unreadable = sum(_unreadable(tier, meta, place) for meta, place in zip(metas, places, strict=True))
    blank = sum(value in (b"", BLANK) for value in values)
    good = not store.exists(name) and unreadable == count and blank == len(values) == count
    yield _figure("crypto", seconds, "s", 10 * count / OBJECTS, good, {"objects": count, "unreadable": unreadable})
    look = Look()
    runs = list(zip(metas, places, strict=True))

    def files() -> None:
        for at in range(0, count, BATCH):
            tier.erase(runs[at : at + BATCH], look)

    seconds = _timed(files)
    good = look.sampled == look.clean > 0 and not list((base / "ssd").glob("*.kvo"))
    yield _figure("files", seconds, "s", 120 * count / OBJECTS, good, {"objects": count, "looked_at": look.sampled})
    tier.close()
    keys.close()


def _unreadable(tier: DiskTier, meta: RunMeta, place: bytes) -> bool:
    try:
        tier.read(meta, place)
    except (LeaseOver, BlockRefused):
        return True
    return False


def _memory(size: int) -> Iterator[Figure]:
    label = f"bench-{secrets.token_hex(6)}"
    slot = HEADER_BYTES + BLOCK_BYTES
    tier = MemoryTier(Tier.DRAM, capacity_bytes=size, slot_bytes=slot, label=f"{label}:dram")
    blocks = size // slot // 160
    runs = [
        (meta, seal(meta, lambda key: key * (BLOCK_BYTES // 32)))
        for meta in (_meta(160 * n, 160) for n in range(blocks))
    ]
    held = blocks * 160 * slot
    zeros, plain = bytes(slot), bytearray(held)

    def fill() -> None:
        for at in range(0, held, slot):
            plain[at : at + slot] = zeros

    peer = held / _timed(fill)
    places = tier.write(runs)
    arena = arenas(label).get("dram")
    if arena is not None:
        seconds = _timed(lambda: residue(arena))
        yield _rate("probe", held / seconds, None, residue(arena)[1] == 0, {"slots": residue(arena)[0]})
    look = Look()
    seconds = _timed(lambda: tier.erase([(m, p) for (m, _), p in zip(runs, places, strict=True)], look))
    good = look.sampled == look.clean == blocks * 160
    yield _rate("memory", held / seconds, None, good, {"plain_fill_mb_s": round(peer / 1e6), "slots": look.sampled})
    tier.close()


def _figure(name: str, value: float, unit: str, target: float, good: bool, told: Any) -> Figure:
    return {"name": f"erase.{name}", "value": round(value, 3), "unit": unit, "target": f"<= {target:g}",
            "ok": good and value <= target, "peer": told}  # fmt: skip


def _rate(name: str, value: float, target: float | None, good: bool, told: Any) -> Figure:
    return {"name": f"erase.{name}", "value": round(value / 1e6), "unit": "MB/s",
            "target": "all clean" if target is None else f">= {target:g}", "ok": good, "peer": told}  # fmt: skip
