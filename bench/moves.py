"""How fast ordered moves are, beside a plain copy of the same bytes in the same run.

`ssd`: one file a run, as large as the run, written by as many writers, fsynced, renamed and read back. Memory: each
block copied into another arena of the same kind that nobody wrote to before.
"""

import mmap
import os
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kvcore.blocks import BlockState, Tier
from kvcore.keys import KEY_BYTES
from kvcore.messages import Command
from kvcore.receipts import EraseTarget
from nodeagent.budget import Budget
from nodeagent.config import TierConfig
from nodeagent.demotion import Relief
from nodeagent.jobs import Job
from nodeagent.outbox import Outbox
from nodeagent.pool import Pool
from nodeagent.runs import Copy, Run
from nodeagent.targets import Targets
from nodeagent.tiers.base import HEADER_BYTES, TierStore, seal
from nodeagent.tiers.disk import WRITERS, DiskTier
from nodeagent.tiers.memory import MemoryTier
from nodeagent.tiers.objects import KeyFile
from nodeagent.transfer_local import Moving
from nodeagent.transfer_pace import Pace
from nodeagent.watermarks import Curve, Policy

BLOCK_BYTES, RUN_BLOCKS = 16 * 1024, 32
"""Of `ref-1k`, the reference fleet's profile."""
SLOT = HEADER_BYTES + BLOCK_BYTES
NS = bytes(range(32))


class Site:
    """A pool with `hbm`, `dram` and `ssd`, filled in one tier."""

    def __init__(self, path: Path, runs: int) -> None:
        size = (runs * RUN_BLOCKS + 8) * SLOT
        keys = KeyFile(path / "keys")
        self.tiers: list[TierStore] = [
            MemoryTier(Tier.HBM, capacity_bytes=size, slot_bytes=SLOT),
            MemoryTier(Tier.DRAM, capacity_bytes=size, slot_bytes=SLOT),
            DiskTier(path / "ssd", capacity_bytes=size, keys=keys, enc_key=lambda ns, gen: bytes(32)),
        ]
        names = [tier.name for tier in self.tiers]
        box = Outbox("reference", 0, boot="bench")
        self.pool = Pool(
            self.tiers, {n: TierConfig(capacity_bytes=size) for n in names}, dict.fromkeys(names, box),
            Policy("lru", Curve(0.01, 0)), is_fenced=lambda ns, gen: False,
            budget=Budget(block_bytes=BLOCK_BYTES, slot_bytes=SLOT),
        )  # fmt: skip
        Relief(self.pool)
        self.space = self.pool.space(NS, 1, 0, block_tokens=16, block_bytes=BLOCK_BYTES)

    def fill(self, runs: int) -> list[bytes]:
        """So many runs in `hbm`; their sealed bytes."""
        out = []
        for _ in range(runs):
            keys = secrets.token_bytes(KEY_BYTES * RUN_BLOCKS)
            meta = self.pool.meta(self.space, depth=0, parent=None, keys=keys)
            raw = seal(meta, lambda key: secrets.token_bytes(BLOCK_BYTES))
            run, copy = Run(self.space, meta, now=0.0), Copy(0.0)
            (copy.place,) = self.tiers[0].write([(meta, raw)])
            copy.to(BlockState.COMMITTED)
            self.pool.budget.charge(self.space, Tier.HBM, run.blocks)
            self.pool.attach(run, Tier.HBM, copy)
            out.append(raw)
        return out

    def move(self, tier: Tier, to: Tier) -> float:
        """Seconds of an ordered move of everything."""
        command = Command(v=1, step="s", kind="move", node="n", order_hash="", issued_at=0, expires_at=2e10)
        targets = Targets([EraseTarget(ns=NS.hex(), gen_upto="2")])
        moving = Moving(self.pool, tier, to, targets, Job(command, time.time), Pace(), None)
        began = time.perf_counter()
        done = moving.run()
        took = time.perf_counter() - began
        assert done.outcome == "done", done
        return took


def copy_memory(raws: list[bytes]) -> float:
    """Seconds in which the same blocks go from one arena into another, block by block."""
    size = sum(map(len, raws))
    arenas = []
    for _ in range(2):
        fd = os.memfd_create("bench") if hasattr(os, "memfd_create") else -1
        if fd >= 0:
            os.ftruncate(fd, size)
        arenas.append(memoryview(mmap.mmap(fd, size)))
    source, target = arenas
    at = 0
    for raw in raws:
        source[at : at + len(raw)] = raw
        at += len(raw)
    began = time.perf_counter()
    for at in range(0, size, SLOT):
        target[at : at + SLOT] = source[at : at + SLOT]
    return time.perf_counter() - began


def copy_files(path: Path, raws: list[bytes]) -> float:
    """Seconds in which the same runs become files: written, fsynced, renamed, their directory fsynced, read back."""
    path.mkdir()

    def one(number: int) -> None:
        temporary, final = path / f"{number}.tmp", path / f"{number}.kvo"
        with open(temporary, "wb", buffering=0) as f:
            f.write(raws[number])
            os.fsync(f.fileno())
        temporary.rename(final)

    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(one, range(len(raws))))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    for number, raw in enumerate(raws):
        assert (path / f"{number}.kvo").read_bytes() == raw
    return time.perf_counter() - began


def run(quick: bool) -> Iterator[dict[str, Any]]:
    """Shares of a plain copy's speed: of pairs that are taken in turn the median ratio, as the machine is shared."""
    runs, turns = (16, 3) if quick else (64, 9)
    pairs: dict[str, list[tuple[float, float]]] = {"memory": [], "ssd": []}
    base = Path(tempfile.mkdtemp(prefix="kvc-bench-", dir=os.environ.get("KVC_BENCH_DIR")))
    try:
        for turn in range(turns):
            site = Site(base / str(turn), runs)
            raws = site.fill(runs)
            pairs["memory"].append((copy_memory(raws), site.move(Tier.HBM, Tier.DRAM)))
            pairs["ssd"].append((copy_files(base / str(turn) / "plain", raws), site.move(Tier.DRAM, Tier.SSD)))
            for tier in site.tiers:
                tier.close()
            shutil.rmtree(base / str(turn))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    size = runs * RUN_BLOCKS * SLOT / 2**20
    for name, least in (("memory", 0.25), ("ssd", 0.60)):
        shares = [plain / moved for plain, moved in pairs[name]]
        value = statistics.median(shares)
        plain, moved = (statistics.median(times) for times in zip(*pairs[name], strict=True))
        told = {
            "mib_per_s": round(size / moved),
            "copy_mib_per_s": round(size / plain),
            "pairs": turns,
            "least": round(min(shares), 3),
            "most": round(max(shares), 3),
            "load": round(os.getloadavg()[0], 1),
        }
        yield {"name": f"moves.{name}.share_of_a_copy", "value": round(value, 3), "unit": "of its speed",
               "target": f">= {least:g}", "ok": value >= least, "peer": told}  # fmt: skip
