"""Nodes that move blocks between them: pools, desks and their verbs, joined by a network that can be cut."""

import time
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.blocks import Tier
from kvcore.keys import unpack
from kvcore.messages import Command
from kvcore.moves import MoveArgs, Party, TakenDetail
from nodeagent import transfer_local, transfer_source, transfer_target
from nodeagent.jobs import Done, Job
from nodeagent.keys import Lease
from nodeagent.transfer import Denied
from nodeagent.transfer_desk import Desk
from tests.nodeagent.ordering import ORDER, Ordered, fill
from tests.nodeagent.rig import blocks

OWNERS = {Tier.HBM: 1, Tier.PINNED: 2, Tier.DRAM: 3, Tier.SSD: 4, Tier.REMOTE: 5}


class Network:
    """Brings bodies to nodes by address. `cut` is asked before each: True = nobody answers."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.cut = lambda number: False
        self.change = lambda body: body
        self.sent = 0
        self.seen: list[bytes] = []

    def client(self, url: str) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._carry))

    def _carry(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        node = self.nodes.get(request.url.host)
        if node is None or self.cut(self.sent):
            raise httpx.ConnectError("cut")
        self.seen.append(request.content)
        try:
            answer = node.desk.answer(request.content)
        except Denied as e:
            return httpx.Response(404, json={"code": e.code})
        self.seen.append(answer)
        return httpx.Response(200, content=self.change(answer))


class Node(Ordered):
    """A node with a desk."""

    def __init__(self, path: Path, tiers, network: Network, name: str, number: int, secret=None) -> None:
        path.mkdir(exist_ok=True)
        super().__init__(path, tiers)
        self.name, self.number, self.network = name, number, network
        self.secret = secret or Ed25519PrivateKey.generate()
        raw = self.secret.private_bytes_raw()
        self.desk = Desk(
            self.media, self.ring, node=name, private_key=raw, clock=lambda: self.now, dialled=network.client
        )
        self.orders.transfers = self.desk
        network.nodes[name] = self
        self.steps = 0

    def party(self, tier: Tier) -> Party:
        public = self.secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
        source = self.pool.outboxes[tier].source
        return Party(
            node=self.name, source=source, tier=tier.value, owner=self.owner(tier), public_key=public,
            url=f"http://{self.name}",
        )  # fmt: skip

    def owner(self, tier: Tier) -> int:
        return 100 * self.number + OWNERS[tier]

    def order(self, kind: str, tier: Tier, targets, *, step: str = "", **more) -> tuple[Command, Job]:
        self.steps += 1
        args = MoveArgs(
            operation="o", generation=1, source=self.pool.outboxes[tier].source, tier=tier.value,
            owner=self.owner(tier), targets=list(targets), **more,
        )  # fmt: skip
        command = Command(
            v=1, step=step or f"{self.name}-{kind}-{self.steps}", kind=kind, node=self.name, order_hash=ORDER,
            issued_at=0.0, expires_at=4e10, args=msgspec.to_builtins(args),
        )  # fmt: skip
        return command, Job(command, time.time)

    def obey(self, kind: str, tier: Tier, *targets, **more) -> tuple[Done, str]:
        command, job = self.order(kind, tier, targets, **more)
        return self.desk.long[kind](command, job), command.step

    def lease_of(self, key: Lease) -> Lease:
        self.ring.grant([msgspec.structs.replace(key, until=self.now + 300)])
        return key

    def routable(self, keys: set[bytes]) -> set[bytes]:
        return {k for k in keys if k in self.pool.index}

    def all(self, tier: Tier) -> set[bytes]:
        return {k for r in self.pool.runs.values() if tier in r.copies for k in unpack(r.keys)}


def offer(source: Node, tier: Tier, target: Node, to: Tier, *targets, **more) -> tuple[Done, str]:
    return source.obey("offer", tier, *targets, party=target.party(to), until=source.now + 600, **more)


def take(source: Node, tier: Tier, target: Node, to: Tier, step: str, *targets, **more) -> tuple[Done, TakenDetail]:
    done, _ = target.obey("take", to, *targets, party=source.party(tier), offer=step, **more)
    return done, msgspec.convert(done.detail, TakenDetail)


def release(source: Node, tier: Tier, step: str, *targets, left=()) -> Done:
    return source.obey("release", tier, *targets, offer=step, left=list(left))[0]


TIERS = {"hbm": blocks(24), "dram": blocks(400), "ssd": blocks(400)}
D, H, S = Tier.DRAM, Tier.HBM, Tier.SSD


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def pair(tmp_path, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "CUT_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(transfer_target, "LEASE_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(transfer_target, "CUT_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(transfer_source, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(transfer_local, "PATIENCE_SECONDS", 0.1)
    nodes = [Node(tmp_path / n, TIERS, network, n, i) for i, n in enumerate(("a", "b"), 1)]
    yield nodes
    for node in nodes:
        node.close()


def filled(a, b, rounds=24):
    """A namespace with blocks on `a`, leased to both."""
    key = a.lease()
    b.lease_of(key)
    fill(a, [key], rounds)
    a.drain()
    return key
