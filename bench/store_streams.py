"""Event streams of the store's bench, as the frames an agent would send. Making them is never timed.

A batch is what one transaction gets: one frame of every source that said something in a short while.
"""

import json
import os
import pathlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

Batch = tuple[int, list[bytes]]
"""(key, owner) pairs, frames as they are on the wire."""


class Feed:
    """Keys by number; items gathered by source; frames with contiguous positions."""

    def __init__(self, seed: int, blocks: int) -> None:
        self.rng, self.n, self.boot = np.random.default_rng(seed), 0, f"b{seed}"
        self.wire = np.zeros((blocks + 65536, 4), np.uint64)
        self.items: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.seq: dict[int, int] = defaultdict(int)
        self.pairs = self.ns = 0

    def new(self, k: int) -> Any:
        """Numbers of k new keys."""
        a = self.n
        self.n += k
        if self.n > len(self.wire):
            self.wire = np.concatenate([self.wire, np.zeros((len(self.wire) // 2 + k, 4), np.uint64)])
        self.wire[a : a + k, :2] = np.frombuffer(self.rng.bytes(16 * k), np.uint64).reshape(k, 2)
        return np.arange(a, a + k)

    def _item(self, kind: str, ids: Any, **more: Any) -> dict[str, Any]:
        self.pairs += len(ids)
        ns = bytes([int(self.ns) + 1]) * 32
        return {"k": kind, "ns": ns, "gen": 1, "group": 0, "keys": self.wire[ids].tobytes(), **more}

    def add(self, node: int, tier: str, ids: Any, parent: Any, sizes: tuple[int, int] = (64, 101)) -> None:
        """The blocks come to the node, in items of some size."""
        i = 0
        while i < len(ids):
            part = ids[i : i + int(self.rng.integers(*sizes))]
            key = self.wire[parent].tobytes() if parent is not None else None
            self.items[node].append(self._item("add", part, parent=key, tier=tier, tokens=16, bytes=1024))
            parent, i = part[-1], i + len(part)

    def adds(self, node: int, tier: str, ids: Any, parents: Any) -> None:
        """Single blocks of many chains come to the node."""
        packed = self.wire[parents].tobytes()
        self.items[node].append(self._item("adds", ids, parents=packed, tier=tier, tokens=16, bytes=1024))

    def drop(self, node: int, tier: str, ids: Any) -> None:
        """The blocks leave the node."""
        if len(ids) == 0:
            return
        self.items[node].append(self._item("drop", ids, tier=tier, reason="watermark"))

    def batch(self) -> Batch:
        """The frames of everything since the last batch."""
        frames = []
        for node, items in self.items.items():
            frames.append(frame(f"node{node}", self.seq[node], items, self.boot))
            self.seq[node] += 1
        pairs, self.pairs, self.items = self.pairs, 0, defaultdict(list)
        return pairs, frames


def frame(source: str, seq: int, items: list[dict[str, Any]], boot: str = "b") -> bytes:
    """A frame on the wire."""
    return msgspec.msgpack.encode(
        {"v": 1, "node": source, "source": "engine", "dp_rank": 0, "shard": 0, "boot": boot, "stream": "s", "seq": seq,
         "ts": 0.0, "items": items}
    )  # fmt: skip


def agents(blocks: int, per_batch: int = 50_000, nodes: int = 64, seed: int = 1) -> Iterator[Batch]:
    """Agent sessions: a shared system prompt and repositories, tails that grow turn by turn on a node and an ssd copy
    elsewhere, branches, sessions that move, leaf-first eviction on hbm, random holes on ssd."""
    f = Feed(seed, blocks + 8192)
    rng, sessions, spaces = f.rng, [], []
    for ns in range(16):
        s = f.new(256)
        repos = [np.concatenate([s, f.new(int(min(3494, max(64, blocks // 300))))]) for _ in range(2)]
        groups = [rng.choice(nodes, int(rng.integers(2, 5)), replace=False) for _ in repos]
        spaces += [(ns, r, g, set()) for r, g in zip(repos, groups, strict=True)]
    while f.n < blocks:
        if len(sessions) < nodes * 4:
            ns, repo, group, has = spaces[int(rng.integers(len(spaces)))]
            turns, node, far = int(rng.integers(5, 60)), int(rng.choice(group)), int(rng.integers(nodes))
            sessions.append([ns, repo, group, has, repo[-1:], turns, node, far])
        x = sessions[i := int(rng.integers(len(sessions)))]
        _turn(f, x, i, sessions)
        if f.pairs >= per_batch:
            yield f.batch()
    yield f.batch()


def _turn(f: Feed, x: list[Any], i: int, sessions: list[list[Any]]) -> None:
    rng = f.rng
    f.ns, repo, group, has, chain, _, node, far = x
    if node not in has:
        has.add(node)
        f.add(node, "hbm", repo, None)
    if len(chain) > 64 and rng.random() < 0.05:  # the user edits an earlier turn: a branch
        x[4] = chain = chain[: int(rng.integers(1, len(chain)))]
    tail = f.new(int(min(rng.geometric(1 / 32.0), 256)))
    if rng.random() < 0.05:  # the session moves: the whole chain is copied
        x[6] = node = int(rng.choice(group))
        if node not in has:
            has.add(node)
            f.add(node, "hbm", repo, None)
        f.add(node, "hbm", chain[1:], chain[0])
    f.add(node, "hbm", tail, chain[-1])
    f.add(far, "ssd", tail, chain[-1])
    x[4], x[5] = np.concatenate([chain, tail]), x[5] - 1
    if x[5] <= 0:
        own = x[4][1:]
        if rng.random() < 0.3:
            for c in range(len(own), len(own) * 2 // 3, -32):  # leaf-first, a few blocks an item
                f.drop(node, "hbm", own[max(0, c - 32) : c][::-1])
        f.drop(far, "ssd", own[rng.random(len(own)) < 0.1])
        sessions.pop(i)


def trace_path() -> pathlib.Path | None:
    """The conversation trace, where there is one."""
    beside = pathlib.Path(__file__).parents[2] / "shared" / "traces" / "mooncake_conversation.jsonl"
    path = pathlib.Path(os.environ.get("KVC_TRACE") or beside)
    return path if path.exists() else None


def _requests() -> list[list[int]]:
    path = trace_path()
    if path is not None:
        with path.open() as lines:
            return [r for r in (json.loads(line)["hash_ids"] for line in lines) if r]
    rng, out, top = np.random.default_rng(9), [], 1  # no trace here: sessions over a shared prefix
    chains: list[list[int]] = [[0]] * 400
    for _ in range(12_000):
        i = int(rng.integers(400))
        k = int(rng.integers(4, 20))
        chains[i] = (chains[i] if len(chains[i]) < 200 else [0]) + list(range(top, top + k))
        top += k
        out.append(chains[i])
    return out


def trace(per_batch: int = 50_000, nodes: int = 16, room: int = 2048, laps: int = 1) -> Iterator[Batch]:
    """The trace: a 512-token id as 32 blocks; a request goes where most of it lies; LRU by node; every lap new keys."""
    rows = _requests()
    top = max(map(max, rows)) + 1
    f = Feed(3, top * 32)
    for lap in range(laps):
        f.ns, base = lap % 16, int(f.new(top * 32)[0])
        lru: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(nodes)]
        load = [0.0] * nodes
        for row in rows:
            depth = [next((d for d, a in enumerate(row) if a not in has), len(row)) for has in lru]
            w = min(range(nodes), key=lambda n: len(row) - depth[n] + 0.5 * load[n])
            load = [x * 0.99 for x in load]
            load[w] += len(row) - depth[w]
            _visit(f, w, row, lru[w], base, room)
            if f.pairs >= per_batch:
                yield f.batch()
        yield f.batch()


def _visit(f: Feed, node: int, row: list[int], has: "OrderedDict[int, int]", base: int, room: int) -> None:
    def span(a: int) -> Any:
        return np.arange(base + a * 32, base + a * 32 + 32)

    i = 0
    while i < len(row):
        j = i
        while j < len(row) and row[j] not in has and j < i + 3:
            j += 1
        if j > i:
            parent = span(row[i - 1])[-1] if i else None
            f.add(node, "hbm", np.concatenate([span(a) for a in row[i:j]]), parent, (96, 97))
        i = max(j, i + 1)
    for a in reversed(row):
        has[a] = 1
        has.move_to_end(a)
    while len(has) > room:
        f.drop(node, "hbm", span(has.popitem(last=False)[0])[::-1])


def decode(blocks: int, gather: int = 1, nodes: int = 64, running: int = 128, seed: int = 5) -> Iterator[Batch]:
    """Decoding sequences, a block each 320 ms; a batch is 100 ms of the fleet, the first one holds all prompts.

    gather: blocks of one chain that its agent holds back and sends as one item; 1 = blocks of many chains, packed.
    """
    f = Feed(seed, blocks * 3 + nodes * running * 200)
    seqs: list[Any] = [None] * (nodes * running)
    rng, done = f.rng, 0

    def start(i: int, size: int) -> None:
        p, f.ns = f.new(int(rng.integers(16, size))), i // 64 % 16
        f.add(i // running, "hbm", p, None)
        seqs[i] = [p[-1], int(rng.integers(10, 90))]

    for i in range(len(seqs)):
        start(i, 150)
    yield f.batch()
    while done < blocks:
        many: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for i in np.flatnonzero(rng.random(len(seqs)) < 0.3125 / gather).tolist():
            if seqs[i][1] <= 0:
                start(i, 64)
                continue
            k, f.ns = f.new(gather), i // 64 % 16
            if gather == 1:
                many[i // running, f.ns].append((k[0], seqs[i][0]))
            else:
                f.add(i // running, "hbm", k, seqs[i][0])
            seqs[i] = [k[-1], seqs[i][1] - gather]
            done += gather
        for (node, f.ns), pairs in many.items():
            ids = np.array(pairs)
            f.adds(node, "hbm", ids[:, 0], ids[:, 1])
        yield f.batch()
