"""The peer's side of the bench over HTTP: `python -m dynamo.indexer` of the wheel, and what it is fed.

It takes vLLM's events over ZeroMQ, one publisher a worker, and answers `/query_by_hash` and `/query` over HTTP. The
indexer runs in the venv that `bench.routing_index` makes; we publish, and ask until it knows every worker.
"""

import contextlib
import http.client
import json
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zmq

from bench.routing_http_site import BLOCK, WORKERS, Part
from kvconsole.serverprocess import free_port

MODEL = "m"
STORED = 256
"""Blocks of an event."""
HASHES = """
import sys, json
from dynamo._core import compute_block_hash_for_seq
for line in sys.stdin:
    print(json.dumps([h - 2**64 if h >= 2**63 else h for h in compute_block_hash_for_seq(json.loads(line), 16)]))
"""


@contextlib.contextmanager
def indexer(python: str, base: Path, parts: list[Part], cpu: int) -> Iterator[int]:
    """Port of a peer that has been told what every worker holds, pinned to the CPU."""
    context = zmq.Context()
    ports, port = [free_port() for _ in range(WORKERS)], free_port()
    sockets = []
    for at in ports:
        socket = context.socket(zmq.PUB)
        socket.set_hwm(0)
        socket.bind(f"tcp://127.0.0.1:{at}")
        sockets.append(socket)
    told = ",".join(f"{i}=tcp://127.0.0.1:{at}" for i, at in enumerate(ports))
    command = [python, "-m", "dynamo.indexer", "--block-size", str(BLOCK), "--port", str(port), "--threads", "2",
               "--model-name", MODEL, "--workers", told]  # fmt: skip
    with (base / "peer.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    try:
        _until_up(port, process)
        time.sleep(2)  # a subscription has no answer that says it is there
        _publish(sockets, parts)
        _until_known(port, parts)
        yield port
    finally:
        process.kill()
        process.wait(30)
        context.destroy(0)


def _until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            ask(port, "/query", {"model_name": MODEL, "token_ids": [1]})
            return
        time.sleep(0.1)
    raise RuntimeError("the peer does not answer")


def _publish(sockets: list["zmq.Socket[bytes]"], parts: list[Part]) -> None:
    numbers = [0] * len(sockets)
    for part in parts:
        before = None if part.up is None else _hash(parts[part.up].first + parts[part.up].blocks - 1)
        for low in range(0, part.blocks, STORED):
            high = min(part.blocks, low + STORED)
            hashes = [_hash(part.first + i) for i in range(low, high)]
            tokens = part.tokens[low * BLOCK : high * BLOCK].tolist()
            event = ["BlockStored", hashes, before, tokens, BLOCK, None]
            for owner in part.owners:
                body = msgspec.msgpack.encode([time.time(), [event], 0])
                sockets[owner].send_multipart([b"", struct.pack(">Q", numbers[owner]), body])
                numbers[owner] += 1
            before = hashes[-1]


def _hash(block: int) -> int:
    """An engine's own hash of a block: any number that is its alone."""
    return (block + 1) * 0x9E3779B97F4A7C15 % 2**63


def _until_known(port: int, parts: list[Part]) -> None:
    """The last part is the last thing that was said: it is asked for until its owners have it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = ask(port, "/query", {"model_name": MODEL, "token_ids": chain_tokens(parts, len(parts) - 1)})
        if _knows(found, parts):
            return
        time.sleep(0.25)
    raise RuntimeError(f"the peer did not take what it was told: {json.dumps(found)[:300]}")


def _knows(found: Any, parts: list[Part]) -> bool:
    scores = {int(worker): max(ranks.values()) for worker, ranks in found["scores"].items()}
    last = all(scores.get(owner) == parts[-1].whole * BLOCK for owner in parts[-1].owners)
    return last and all(scores.get(worker, 0) >= parts[0].whole * BLOCK for worker in range(WORKERS))


def chain_tokens(parts: list[Part], number: int) -> list[int]:
    """Token ids from the root to the end of the part."""
    out: list[int] = []
    at: int | None = number
    while at is not None:
        out = parts[at].tokens.tolist() + out
        at = parts[at].up
    return out


def ask(port: int, path: str, body: object) -> Any:
    """The JSON of a good answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {text[:200]!r}")
    return json.loads(text)


def hashes(python: str, chains: list[list[int]]) -> list[list[int]]:
    """The peer's hashes of the blocks of each chain, as `/query_by_hash` wants them."""
    lines = "\n".join(map(json.dumps, chains))
    done = subprocess.run([python, "-c", HASHES], input=lines, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]
