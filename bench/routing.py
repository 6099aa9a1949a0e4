"""Routing index, dict form: folding and look-up against a dict of bit masks, on agent-like chains.

Shape as of the published comparisons: a system prompt of 256 blocks that all workers hold, repositories of 3,494 blocks
with a few affine workers each, sessions that grow by about 32 blocks, 10 % of them cut from the leaf. CPU time; pairs
in turn.
"""

import random
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from routing.index import DictIndex

Figure = dict[str, Any]
Step = tuple[bool, int, bytes]
WORKERS = 64


class Masks:
    """The peer: fingerprint → bit mask of workers, walked block by block."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def add(self, space: int, owner: int, keys: bytes) -> None:
        """The owner holds them."""
        held, bit = self.held, 1 << owner
        for key in memoryview(keys).cast("Q"):
            held[key] = held.get(key, 0) | bit

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """The owner holds them no more."""
        held, rest = self.held, ~(1 << owner)
        for key in memoryview(keys).cast("Q"):
            mask = held.get(key, 0) & rest
            if mask:
                held[key] = mask
            else:
                held.pop(key, None)

    def lookup(self, space: int, keys: bytes) -> list[tuple[int, int]]:
        """[(depth, mask)]."""
        get, now, runs, depth = self.held.get, (1 << WORKERS) - 1, [], 0
        for depth, key in enumerate(memoryview(keys).cast("Q")):
            stay = get(key, 0) & now
            if stay != now:
                if depth:
                    runs.append((depth, now & ~stay))
                now = stay
                if not now:
                    return runs
        runs.append((depth + 1, now))
        return runs


def run(quick: bool) -> Iterator[Figure]:
    """Folding, look-up by length, bytes a block, and leaving at once."""
    steps, chains, blocks = workload(60_000 if quick else 400_000)
    pairs, looks = [], []
    for _ in range(1 if quick else 5):
        ours, theirs = DictIndex(), Masks()
        pairs.append((folded(ours, steps), folded(theirs, steps)))
        looks.append((looked(ours, chains), looked(theirs, chains)))
    ops = sum(len(keys) // 8 for _, _, keys in steps)
    rate, peer = (statistics.median(ops / p[i] for p in pairs) / 1e6 for i in (0, 1))
    yield _figure("fold", rate, "M block-ops/CPU-s", ">= 1", rate >= 1, {"dict of masks": round(peer, 2)})
    ratio = statistics.median(b / a for a, b in looks)
    mean = statistics.median(a for a, _ in looks) * 1e6
    yield _figure("lookup_5120", mean, "us CPU", "<= 5000", mean <= 5000)
    told = {"dict of masks, us": [round(b * 1e6) for _, b in looks]}
    yield _figure("lookup_ratio", ratio, "x", ">= 0.8 (exact walk)", ratio >= 0.8, told)
    yield from _sizes(ours, blocks)


def _figure(name: str, value: float, unit: str, target: str, ok: bool, peer: Any = None) -> Figure:
    figure = {"name": f"routing.{name}", "value": round(value, 2), "unit": unit, "target": target, "ok": ok}
    return figure if peer is None else {**figure, "peer": peer}


def _sizes(index: DictIndex, blocks: int) -> Iterator[Figure]:
    index.collect()
    sizes = index.sizes()
    each = sizes["bytes"] / max(1, sizes["keys"])
    told = {"blocks": sizes["keys"], "sets": sizes["sets"], "distinct": blocks}
    yield _figure("bytes_per_block", each, "B", "<= 130", each <= 130, told)
    started = time.perf_counter()
    for owner in range(WORKERS):
        index.hide(owner, True)
    spent = (time.perf_counter() - started) / WORKERS * 1e6
    yield _figure("owner_leaves", spent, "us", "<= 100", spent <= 100)


def folded(index: Any, steps: list[Step]) -> float:
    """CPU seconds of all steps."""
    return _cpu(lambda: [index.add(0, o, k) if add else index.remove(0, o, k) for add, o, k in steps])


def looked(index: Any, chains: list[bytes]) -> float:
    """CPU seconds of one look-up of 5,120 keys."""
    return _cpu(lambda: [index.lookup(0, c) for c in chains]) / len(chains)


def _cpu(job: Callable[[], object]) -> float:
    started = time.process_time()
    job()
    return time.process_time() - started


def workload(blocks: int) -> tuple[list[Step], list[bytes], int]:
    """Steps, 100 chains of 5,120 keys, and how many distinct blocks there are."""
    rng = random.Random(7)

    def fresh(count: int) -> bytes:
        return struct.pack(f"<{count}Q", *(rng.getrandbits(64) for _ in range(count)))

    system, made, steps, chains = fresh(256), 256, [], []
    steps += [(True, worker, system) for worker in range(WORKERS)]
    while made < blocks:
        repository, workers = fresh(3_494), rng.sample(range(WORKERS), rng.randrange(3, 9))
        made += 3_494
        steps += [(True, worker, repository) for worker in workers]
        for _ in range(20):
            worker, tail = rng.choice(workers), b""
            for _ in range(rng.randrange(5, 60)):
                turn = fresh(rng.randrange(8, 64))
                steps.append((True, worker, turn))
                tail, made = tail + turn, made + len(turn) // 8
            if rng.random() < 0.1:
                steps.append((False, worker, tail[-len(tail) // 24 * 8 :]))
            chains.append((system + repository + tail)[: 5_120 * 8])
    full = [c.ljust(5_120 * 8, b"\1") for c in chains]
    return steps, rng.sample(full, min(100, len(full))), made
