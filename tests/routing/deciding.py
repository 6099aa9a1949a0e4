"""A router in memory over a real index, with workers that a test makes: no database, no server."""

import secrets
import time
import uuid
from typing import Any

import msgspec
import numpy as np

from catalog.workers import Worker
from kvcore.loads import WorkerLoad
from routing.asks import Wanted, wanted
from routing.deciding import Asked, Router
from routing.index import DictIndex
from routing.namespaces import Place
from routing.recorder import Recorder
from routing.replica import Replica
from routing.standing import Standing
from routing.view import View

CURVE = (1.0, 0.02, 0.0, 9)
PACKED = b"application/msgpack"


def worker(name: str, *, load: dict[str, Any] | None = None, **fields: Any) -> Worker:
    """A worker of node `name`; `load` None = it never reported."""
    said = None
    if load is not None:
        told = {"queue_ms": 0.0, "decode_queue_ms": 0.0, "first_decode_ms": 5.0, "curve": CURVE, **load}
        said = WorkerLoad(source="e", number=1, **told)
    base = {
        "node": uuid.uuid5(uuid.NAMESPACE_DNS, name), "name": name, "region": "r", "zone": "z", "rack": "k",
        "role": "mixed", "state": "ready", "profile": "p", "dedicated_to": None, "public_key": b"k" * 32,
        "agent_url": f"http://{name}:1", "source": "e", "dp_rank": 0, "source_state": "exact", "load": said,
        "age_ms": None if said is None else 100.0,
    }  # fmt: skip
    return Worker(**{**base, **fields})


class Stand:
    """A router with these workers, and one namespace whose chain of 40 blocks can be held."""

    def __init__(self, *workers: Worker, blocks: int = 40) -> None:
        self.standing, self.replica = Standing(), Replica(role="router")
        self.recorder = Recorder("test")
        self.standing.whole = True
        self.take(*workers)
        self.keys = secrets.token_bytes(32 * blocks)
        self.prints = np.frombuffer(self.keys, "<u8").reshape(-1, 4)[:, 0].tobytes()
        self.digest = secrets.token_bytes(32)
        self.view = View(DictIndex(), 10**6)
        self.view.live = True
        self.view.keyspace(1, self.digest, 1, 0)
        self.replica.view, self.replica.leased_until = self.view, time.monotonic() + 3600
        self.router = Router(self.standing, self.replica, self.recorder)
        self.place = Place(
            digest=self.digest, generation=1, owner=uuid.uuid4(), tenant_id=uuid.uuid4(), model="m", block_tokens=16,
            block_bytes=16 * 1024, vocabulary=1000, refused={}, read=time.monotonic(), used=0.0, salt="s" * 43,
            blk=b"b" * 32,
        )  # fmt: skip
        self._owners = 0

    def take(self, *workers: Worker) -> None:
        """These are the workers."""
        self.standing.fleet.take(list(workers))
        self.standing.workers = {str(w.node): w for w in workers}
        self.standing.tickets = {str(w.node): w.node.bytes * 2 for w in workers}

    def holds(self, node: str, blocks: int, tier: str = "hbm", source: str = "e") -> None:
        """The node holds the first blocks of the chain in the tier."""
        self._owners += 1
        number = self._owners
        self.view.source(number, uuid.uuid5(uuid.NAMESPACE_DNS, node), source, 0, "exact")
        self.view.owner(number, number, tier, False)
        self.view.index.add(1, number, self.prints[: 8 * blocks])

    def ask(self, *, gateway: bool = True, **fields: Any) -> Wanted:
        """The request for the whole chain, unless said otherwise."""
        body = {
            "tenant": "t",
            "model": "m",
            "block_keys": self.keys,
            "prompt_tokens": len(self.keys) // 2 + 3,
            **fields,
        }
        packed = msgspec.msgpack.encode({k: v for k, v in body.items() if v is not None})
        return wanted(packed, PACKED, gateway=gateway)

    def route(self, *, gateway: bool = True, place: Place | None = None, holder: str = "g1", **fields: Any) -> Any:
        """The answer."""
        asked = Asked(gateway, holder, bytes)
        return self.router.route(self.ask(gateway=gateway, **fields), place or self.place, asked, time.monotonic())
