"""A node that is there for its frames only: joined like any other; then its agent ends and the bench speaks for it."""

import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg

from kvcore.keys import KEY_BYTES
from tests.running import Console

CAPACITY = 64 << 20
NAMESPACE = """SELECT n.digest, n.generation, m.block_tokens FROM tenants_namespace n
    JOIN tenants_model m ON m.id = n.model_id WHERE m.name = 'ref-64' ORDER BY n.created_at LIMIT 1"""


class Sender:
    """Says something by `say`, and once a second by itself how full its dram is: a node that is silent is lost."""

    def __init__(self, name: str, directory: Path, url: str, space: tuple[bytes, int, int]) -> None:
        self.name, self.url = name, f"{url}/api/v1/ingest/events"
        self.node = json.loads((directory / "agent.json").read_text())["node"]
        self.ns, self.gen, self.tokens = bytes(space[0]), space[1], space[2]
        token = (directory / "node.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        self.client = httpx.Client(timeout=30, trust_env=False, headers=headers)
        self.boot, self.stream, self.seq = str(uuid.uuid4()), str(uuid.uuid4()), 0
        self.base: list[bytes] = []
        self._made = 0
        self._speaking, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    @classmethod
    def joined(cls, console: Console, name: str) -> "Sender":
        """The node is enrolled, its own agent ended, and the writer takes our frames for it. `stop` it."""
        directory = console.node(name)
        console.kill(name)
        with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
            space = cx.execute(NAMESPACE).fetchone()
        assert space is not None, "the demonstration has a namespace"
        sender = cls(name, directory, console.ingest_url, space)
        sender.say(sender.mark("hbm", 0.5), sender.mark("dram", 0.5), sender.blocks(64, base=True))
        sender._thread.start()
        return sender

    def say(self, *items: dict[str, Any]) -> None:
        """The items are committed. Raises RuntimeError when the writer refused one."""
        with self._speaking:
            frame = {"v": 1, "node": self.node, "source": "reference", "dp_rank": 0, "shard": 0, "boot": self.boot,
                     "stream": self.stream, "seq": self.seq, "ts": time.time(), "fence_seq": 0, "allowances": 0,
                     "items": list(items)}  # fmt: skip
            answer = self.client.post(self.url, content=msgspec.msgpack.encode(frame))
            answer.raise_for_status()
            body = msgspec.msgpack.decode(answer.content)
            if body.get("rejected") or body["state"] not in ("next", "reset"):
                raise RuntimeError(f"not taken: frame {self.seq}, {body}")
            self.seq = body["expect_seq"]

    def mark(self, tier: str, share: float) -> dict[str, Any]:
        """How full a tier is."""
        used = int(CAPACITY * share)
        return {"k": "mark", "tier": tier, "used": used, "capacity": CAPACITY, "high": 0.99, "low": 0.9}

    def blocks(self, count: int, *, base: bool = False) -> dict[str, Any]:
        """New blocks in hbm, a chain from its root; with `base` they are the ones to look up by."""
        numbers = range(self._made, self._made + count)
        keys = [uuid.uuid5(uuid.UUID(self.node), str(n)).bytes.ljust(KEY_BYTES, b"k") for n in numbers]
        self._made += count
        if base:
            self.base = keys
        return {"k": "add", "ns": self.ns, "gen": self.gen, "group": 0, "keys": b"".join(keys), "parent": None,
                "tier": "hbm", "tokens": self.tokens, "bytes": self.tokens * 64}  # fmt: skip

    def stop(self) -> None:
        """The node is silent."""
        self._end.set()
        self._thread.join(30)

    def _keep(self) -> None:
        while not self._end.wait(1.0):
            self.say(self.mark("dram", 0.3 + (time.time() % 60) / 200))
