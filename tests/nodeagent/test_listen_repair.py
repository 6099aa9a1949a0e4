"""What gets lost between a listener and a real console is repaired without restarting either."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from kvconsole.infra.keyepochs import KeyEpochs
from kvconsole.infra.keystore import KeyStore, namespace_name
from kvcore.keys import CATALOG_KEY_BYTES, chain_keys, subkey
from tests.accept.fleet import catalog, rows, until
from tests.nodeagent.publisher import Publisher
from tests.running import Console

pytestmark = pytest.mark.walk
pack = msgspec.msgpack.encode
SOURCE = "vllm"


class Engine:
    """Two ranks on neighbouring ports, and what each holds by the events it told: (rank, tokens of the chain)."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.ranks = self._ranks()
        self.held: dict[tuple[int, int], int] = {}
        """(rank, hash) → first token; every block is the first of its chain."""

    @staticmethod
    def _ranks() -> tuple[Publisher, Publisher]:
        while True:
            first = Publisher()
            ports = [int(x.rpartition(":")[2]) + 1 for x in (first.endpoint, first.replay)]
            try:
                return first, Publisher(ports=(ports[0], ports[1]))
            except zmq.ZMQError:
                first.close()

    def store(self, rank: int, *hashes: int, named: int | None = -1) -> None:
        """The rank tells a batch of new blocks; `named` is the rank that the batch names."""
        events = [
            {"type": "BlockStored", "block_hashes": [h], "parent_block_hash": None, "block_size": self.block_tokens,
             "token_ids": list(range(h, h + self.block_tokens)), "lora_id": None, "medium": "GPU", "lora_name": None}
            for h in hashes
        ]  # fmt: skip
        right = named == -1
        self.ranks[rank].publish(pack([time.time(), events, rank if right else named]))
        self.held.update({(rank, h): h for h in hashes if right})

    def remove(self, rank: int, *hashes: int) -> None:
        """The rank tells that the blocks are gone."""
        self.ranks[rank].publish(pack([time.time(), [["BlockRemoved", [h], "GPU"] for h in hashes], rank]))
        for h in hashes:
            del self.held[rank, h]

    def keys(self, blk: bytes) -> set[tuple[int, bytes]]:
        """What the catalog should hold: (rank, key)."""
        out = set()
        for (rank, _), first in self.held.items():
            tokens = b"".join(t.to_bytes(4, "little") for t in range(first, first + self.block_tokens))
            (key,) = chain_keys(tokens, block_tokens=self.block_tokens, blk=blk)
            out.add((rank, key[:CATALOG_KEY_BYTES]))
        return out

    def close(self) -> None:
        for publisher in self.ranks:
            publisher.close()


def listen(console: Console, directory: Path, engine: Engine, ns: bytes) -> None:
    """A listener speaks for both ranks; its outbox is far too small for an outage."""
    path = directory / "agent.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"outbox_bytes": 4096, "digest_seconds": 2.0}))
    command = [sys.executable, "-m", "nodeagent", "listen", "--dir", str(directory), "--source", SOURCE]
    command += ["--engine", engine.ranks[0].endpoint, "--replay", engine.ranks[0].replay, "--ranks", "2"]
    command += ["--namespace-default", ns.hex(), "--bytes-per-token", "64"]
    console._spawn("listener", command, {k: v for k, v in os.environ.items() if not k.startswith("KVC_")})
    until(lambda: all(p.asked for p in engine.ranks), 30, "the listener asks both rings")


def states(console: Console) -> dict[int, tuple[str, str]]:
    """Rank → (state, reason) of the listener's sources."""
    query = "SELECT dp_rank, state, reason FROM catalog_source WHERE name = %s"
    return {rank: (state, reason) for rank, state, reason in rows(console, query, SOURCE)}


@pytest.mark.timeout(180)
def test_outages_are_repaired_and_the_engines_own_losses_are_not_called_exact(console: Console) -> None:
    console.start("signer", "web", "ingest")
    console.seed()
    query = "SELECT n.digest, m.block_tokens FROM tenants_namespace n JOIN tenants_model m ON m.id = n.model_id"
    digest, block_tokens = rows(console, query + " WHERE m.name = 'ref-64'")[0]  # 64 bytes a token
    ns = bytes(digest)
    store = KeyStore(console.state / "keys", KeyEpochs(console.state / "epochs"))
    blk = subkey(store.secret(namespace_name(ns, 1)), "blk")
    directory = console.node("engine-host")
    engine = Engine(block_tokens)
    exact = {0: ("exact", ""), 1: ("exact", "")}

    def same() -> bool:
        found = {(h.dp_rank, h.key) for h in catalog(console) if h.source == SOURCE}
        return found == engine.keys(blk) and states(console) == exact

    try:
        listen(console, directory, engine, ns)
        for n in range(40):
            engine.store(n % 2, n)
        until(same, 15, "what was told is there")

        console.kill("ingest")  # an outage that the outbox cannot bridge
        begun = time.monotonic()
        for n in range(100, 700):
            engine.store(n % 2, n)
        engine.remove(0, *range(0, 40, 2))
        time.sleep(max(0.0, 12.5 - (time.monotonic() - begun)))
        console.start("ingest")
        engine.store(0, 5000)
        until(same, 15, "the outage is repaired")

        stopped = [console.processes[name] for name in ("listener", "engine-host")]
        for process in stopped:  # a node that is silent is lost, and returns
            os.kill(process.pid, signal.SIGSTOP)
        engine.store(1, 6000)
        until(lambda: {s for s, _ in states(console).values()} == {"lost"}, 20, "the silent node is lost")
        for process in stopped:
            os.kill(process.pid, signal.SIGCONT)
        until(same, 15, "the node is back")

        engine.store(1, 7000, named=None)  # never taken for rank 0 or 1
        until(lambda: refused(console) == {(1, "missing-dp-rank"): 1}, 10, "the nameless batch is counted")
        until(lambda: states(console)[1] == ("recovering", "engine-decode"), 10, "its loss is known")
        seen = set[Any]()
        end = time.monotonic() + 4
        while time.monotonic() < end:  # inventories and digests come, and none of them makes it exact
            seen.add(states(console)[1])
            time.sleep(0.05)
        assert seen == {("recovering", "engine-decode")}
        assert states(console)[0] == ("exact", "")
        status = json.loads((directory / "listen.json").read_text())["lanes"]
        assert [lane["aside"] for lane in status] == [0, 1]
        assert console.processes["listener"].poll() is None
    finally:
        engine.close()


def refused(console: Console) -> dict[tuple[int, str], int]:
    """(rank, code) → how often, of the listener's sources."""
    query = (
        "SELECT s.dp_rank, r.code, r.count FROM catalog_refusal r JOIN catalog_source s ON s.id = r.source"
        " WHERE s.name = %s"
    )
    return {(rank, code): count for rank, code, count in rows(console, query, SOURCE)}
