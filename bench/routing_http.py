"""`POST /route` of the real router against the HTTP indexer of the wheel `ai-dynamo-runtime`, pairs in turn.

Chains of 5,120 blocks over 64 workers of one catalog. Each server has the last CPU for itself, whoever asks has the
others; both are asked over connections that stay open, by the same client. The peer only says what is held; ours also
decides, explains and gives leave. By keys: packed and JSON against its `/query_by_hash`. By 81,920 token ids: packed
and JSON against its `/query`. Then 16 connections to two routers on all CPUs. `KVC_BENCH_PEER` as for `routing_index`.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.routing_http_peer import MODEL, chain_tokens, hashes, indexer
from bench.routing_http_site import CHAIN, WORKERS, Routed, routed
from bench.routing_index import WHEEL
from bench.routing_index import _peer as peer_python
from kvconsole.serverprocess import free_port

Figure = dict[str, Any]
JSON, PACKED = "application/json", "application/msgpack"
SHAPES = {  # ours → its, the least ratio its p50 / our p50
    "packed": ("query_by_hash", 2.0),
    "json": ("query_by_hash", 1.0),
    "tokens_packed": ("query", 0.5),
    "tokens_json": ("query", 1 / 3),
}


class Line:
    """One connection that stays open; requests are whole and made before."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def whole(self) -> bytes | None:
        """The answer's body once all of it is here. Raises RuntimeError for any answer but a good one."""
        head, mark, rest = self.got.partition(b"\r\n\r\n")
        if not mark:
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:60]!r} {rest[:300]!r}")
        low = head.lower()
        length = int(low.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return None
        self.got = b""
        return rest

    def ask(self, request: bytes) -> bytes:
        """The body of a good answer."""
        self.socket.sendall(request)
        while True:
            self.got += self.socket.recv(262_144)
            if (body := self.whole()) is not None:
                return body


def request(port: int, path: str, body: bytes, kind: str, token: str = "") -> bytes:
    """One request, as bytes."""
    who = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{who}Content-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def one(port: int, requests: list[bytes], rounds: int) -> list[float]:
    """Seconds of each request, one after the other."""
    line, took = Line(port), []
    for asked in requests:
        line.ask(asked)
    for asked in requests * rounds:
        started = time.perf_counter()
        line.ask(asked)
        took.append(time.perf_counter() - started)
    line.socket.close()
    return sorted(took)


def many(
    ports: list[int], requests: dict[int, list[bytes]], connections: int, seconds: float
) -> tuple[list[float], float]:
    """Seconds of each request over so many connections, each with one request on its way; and answers a second."""
    took: list[float] = []
    with selectors.DefaultSelector() as selector:
        at: dict[Line, tuple[int, int, float]] = {}
        for i in range(connections):
            line, port = Line(ports[i % len(ports)]), ports[i % len(ports)]
            selector.register(line.socket, selectors.EVENT_READ, line)
            at[line] = (port, i, time.perf_counter())
            line.socket.sendall(requests[port][i % len(requests[port])])
        started = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds:
            for key, _ in selector.select(1.0):
                line = key.data
                line.got += line.socket.recv(262_144)
                if line.whole() is None:
                    continue
                port, number, since = at[line]
                now = time.perf_counter()
                took.append(now - since)
                at[line] = (port, number + connections, now)
                line.socket.sendall(requests[port][(number + connections) % len(requests[port])])
        elapsed = time.perf_counter() - started
        for line in at:
            line.socket.close()
    return sorted(took), len(took) / elapsed


def bodies(site: Routed, ends: list[int]) -> dict[str, list[tuple[bytes, str]]]:
    """Our requests by shape."""
    made: dict[str, list[tuple[bytes, str]]] = {shape: [] for shape in SHAPES}
    base = {"tenant": "bench", "model": "ref-64", "prompt_tokens": CHAIN * 16}
    for end in ends:
        keys, tokens = site.chain(end), chain_tokens(site.parts, end)
        short = np.frombuffer(keys, "<u8").reshape(-1, 4)[:, 0].tobytes()
        by_keys = {**base, "key_bytes": 8}
        packed_tokens = np.array(tokens, "<u4").tobytes()
        made["packed"].append((msgspec.msgpack.encode({**by_keys, "block_keys": short}), PACKED))
        made["json"].append((msgspec.json.encode({**by_keys, "block_keys": short.hex()}), JSON))
        made["tokens_packed"].append((msgspec.msgpack.encode({**base, "token_ids": packed_tokens}), PACKED))
        made["tokens_json"].append((msgspec.json.encode({**base, "token_ids": tokens}), JSON))
    return made


@contextlib.contextmanager
def pinned(process: int, cpu: int) -> Iterator[None]:
    """The process, with all its threads, runs on that CPU alone; then anywhere again."""
    every = os.sched_getaffinity(0)
    mine = every - {cpu} or every
    for thread in os.listdir(f"/proc/{process}/task"):
        os.sched_setaffinity(int(thread), {cpu})
    os.sched_setaffinity(0, mine)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), every)


def run(quick: bool) -> Iterator[Figure]:
    """Ratios of medians, p99 and decisions a second at 16 connections."""
    cpu = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="kvc-bench-") as directory, peer_python(Path(directory)) as python, \
            routed(50_000 if quick else 200_000) as site:  # fmt: skip
        ends = [i for i, part in enumerate(site.parts) if part.whole == CHAIN][:40]
        ours, port = bodies(site, ends), site.console.site.ports["router"]
        asked = {shape: [request(port, "/api/v1/route", b, kind, site.token) for b, kind in some]
                 for shape, some in ours.items()}  # fmt: skip
        _warm(port, asked, site)
        if python:
            yield from pairs(site, Path(directory), python, asked, ends, cpu, quick)
        else:
            for shape, (its, least) in SHAPES.items():
                yield _figure(shape, None, "x", f">= {least:g} of {its}; not measured: {WHEEL} cannot be had", False)
        yield from crowded(site, ours["packed"], 3.0 if quick else 10.0, cpu)


def _warm(port: int, asked: dict[str, list[bytes]], site: Routed) -> None:
    """The router knows the namespace, and says what the catalog does."""
    line, deadline = Line(port), time.monotonic() + 60
    while True:
        told = msgspec.msgpack.decode(line.ask(asked["packed"][0]))
        if len(told["plan"]) > 1 and told["index"]["mode"] == "live" and told["ticket"]:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"the router does not know what it was told: {told['index']}, {told['plan']}")
        time.sleep(0.2)
    for shape, kind in (("json", json.loads), ("tokens_packed", msgspec.msgpack.decode), ("tokens_json", json.loads)):
        other = kind(line.ask(asked[shape][0]))
        if other["index"]["mode"] != "live" or len(other["plan"]) < 2:
            raise RuntimeError(f"{shape}: {other['plan']}")
    line.socket.close()


def pairs(
    site: Routed, base: Path, python: str, asked: dict[str, list[bytes]], ends: list[int], cpu: int, quick: bool
) -> Iterator[Figure]:
    """Each shape and what answers the same at the peer, in turn."""
    port, router = site.console.site.ports["router"], site.console.processes["router"].pid
    tokens = [chain_tokens(site.parts, end) for end in ends]
    hashed = hashes(python, tokens)
    with indexer(python, base, site.parts, cpu) as at:
        its = {
            "query": [msgspec.json.encode({"model_name": MODEL, "token_ids": t}) for t in tokens],
            "query_by_hash": [msgspec.json.encode({"model_name": MODEL, "block_hashes": h}) for h in hashed],
        }  # fmt: skip
        theirs = {path: [request(at, f"/{path}", b, JSON) for b in some] for path, some in its.items()}
        same(at, theirs["query_by_hash"][0], Line(port), asked["packed"][0])
        rounds: dict[str, list[tuple[list[float], list[float]]]] = {shape: [] for shape in SHAPES}
        with pinned(router, cpu):
            for _ in range(1 if quick else 5):
                for shape, (path, _) in SHAPES.items():
                    often = 5 if path == "query_by_hash" else 2
                    rounds[shape].append((one(port, asked[shape], often), one(at, theirs[path], often)))
    for shape, (path, least) in SHAPES.items():
        found = [(p50(b) / p50(a)) for a, b in rounds[shape]]
        told = {
            "ours_us": round(statistics.median(p50(a) for a, _ in rounds[shape]) * 1e6),
            f"{path}_us": round(statistics.median(p50(b) for _, b in rounds[shape]) * 1e6),
            "ours_p99_us": round(statistics.median(p99(a) for a, _ in rounds[shape]) * 1e6),
            f"{path}_p99_us": round(statistics.median(p99(b) for _, b in rounds[shape]) * 1e6),
            "min": round(min(found), 2), "max": round(max(found), 2), "pairs": len(found),
        }  # fmt: skip
        value = statistics.median(found)
        yield _figure(f"{shape}.times_faster", value, "x", f">= {least:.2g} of /{path}", value >= least, told)


def same(at: int, theirs: bytes, ours_line: Line, ours: bytes) -> None:
    """Both sides know the chain to its end. Raises RuntimeError otherwise."""
    line = Line(at)
    text = line.ask(theirs).decode()
    line.socket.close()
    told = msgspec.msgpack.decode(ours_line.ask(ours))
    ours_line.socket.close()
    if str(CHAIN * 16) not in text and str(CHAIN) not in text:
        raise RuntimeError(f"the peer does not know the chain: {text[:300]}")
    if max(card["overlap_tokens"] or 0 for card in told["cards"]) < (CHAIN - 1) * 16 - 4_096:
        raise RuntimeError(f"the router does not know the chain: {told['cards'][0]}")


def p50(took: list[float]) -> float:
    """Median of sorted seconds."""
    return took[len(took) // 2]


def p99(took: list[float]) -> float:
    """Of sorted seconds."""
    return took[min(len(took) - 1, len(took) * 99 // 100)]


def crowded(site: Routed, some: list[tuple[bytes, str]], seconds: float, cpu: int) -> Iterator[Figure]:
    """16 connections: one router on one CPU, then two routers and whoever asks on all of them."""
    port = site.console.site.ports["router"]

    def made(at: int) -> list[bytes]:
        return [request(at, "/api/v1/route", body, kind, site.token) for body, kind in some]

    with pinned(site.console.processes["router"].pid, cpu):
        took, rate = many([port], {port: made(port)}, 16, seconds)
    yield _figure("packed.p99_16", p99(took) * 1e3, "ms", "<= 5", p99(took) <= 5e-3,
                  {"p50_ms": round(p50(took) * 1e3, 2), "decisions_per_s": round(rate), "routers": 1})  # fmt: skip
    with second(site) as other:
        took, rate = many([port, other], {p: made(p) for p in (port, other)}, 16, seconds)
    yield _figure("packed.decisions_per_s", rate, "1/s", ">= 3000 on 2 cores", rate >= 3_000,
                  {"p50_ms": round(p50(took) * 1e3, 2), "p99_ms": round(p99(took) * 1e3, 2), "routers": 2,
                   "cpus": os.cpu_count()})  # fmt: skip


@contextlib.contextmanager
def second(site: Routed) -> Iterator[int]:
    """Port of another router beside the first."""
    port, console = free_port(), site.console
    command = [str(port) if part == str(console.site.ports["router"]) else part
               for part in console.site.command("router")]  # fmt: skip
    with (console.state / "router2.log").open("ab") as log:
        process = subprocess.Popen(command, env=console.site.env("router"), stdout=log, stderr=log,
                                   cwd=Path(__file__).parents[1])  # fmt: skip
    console.processes["router2"] = process
    try:
        console.wait(f"http://127.0.0.1:{port}/readyz", "router2", 60)
        time.sleep(1.0)
        yield port
    finally:
        console.processes.pop("router2")
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _figure(name: str, value: float | None, unit: str, target: str, ok: bool, told: Any = None) -> Figure:
    shown = None if value is None else round(value, 3)
    out = {"name": f"routing_http.{name}", "value": shown, "unit": unit, "target": target, "ok": ok}
    return out | {"peer": {**(told or {}), "candidates": WORKERS, "load": round(os.getloadavg()[0], 1)}}
