"""Several agents with one set of namespaces, and a router's words for them: tickets with scopes, plans, orders."""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import httpx
import msgspec

from kvcore.keys import KEY_BYTES, chain_keys, subkey
from kvcore.tickets import Peer, Scope, Ticket, ticket_issue
from nodeagent.config import Home, TierConfig
from nodeagent.engines.base import Request
from nodeagent.engines.reference import Keystream, hash_tokens
from nodeagent.join import draft_of, join
from nodeagent.serving.words import SERVE, Event, Order, Range, event_of
from tests.nodeagent.conftest import Loop, eventually
from tests.nodeagent.farside import FarSide

MIB = 2**20
TIERS = {"hbm": TierConfig(capacity_bytes=4 * MIB), "dram": TierConfig(capacity_bytes=8 * MIB)}
HASH = 512
SIZE = 16


class Member:
    """One node: its agent in this process, or in one of its own that can be killed."""

    def __init__(self, fleet: "Fleet", name: str, *, process: bool, tiers=None, **changes) -> None:
        self.name, self.node = name, str(uuid.uuid4())
        self.far = FarSide()
        self.far.node = self.node
        self.far.namespaces, self.far.secrets, self.far.min_gen = fleet.namespaces, fleet.secrets, fleet.min_gen
        self.far.__enter__()
        self.home = Home(fleet.path / f"agent-{name}")
        draft = draft_of(
            name=name, listen="127.0.0.1:0", agent_url="", profile="ref-64", tiers=tiers or TIERS, remote_url=""
        )
        with httpx.Client(trust_env=False) as client:
            join(self.home, console_url=self.far.url, token=self.far.enrolment_token, draft=draft, client=client)
        self.home.save(msgspec.structs.replace(self.home.load(), **({"time_scale": 0.0} | changes)))
        self.url = f"http://{self.home.load().listen}"
        self.loop: Loop | None = None
        self.process: subprocess.Popen | None = None
        self.start(process)

    def start(self, process: bool) -> None:
        if process:
            command = [sys.executable, "-m", "nodeagent", "run", "--dir", str(self.home.path)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            eventually(self._answers, 20)
        else:
            self.loop = Loop(self.home)
        eventually(lambda: self.far.counts["key-leases"] > 0)
        eventually(lambda: self.status()["console"]["leases"] >= len(self.far.secrets))

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url + "/healthz", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def agent(self):
        return self.loop.agent

    @property
    def public(self) -> bytes:
        return self.far.node_key

    def status(self) -> dict:
        return httpx.get(self.url + "/v1/status", trust_env=False).json()

    def serving(self) -> dict:
        return self.status()["serving"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait(10)

    def end(self) -> None:
        if self.loop is not None and self.loop.thread.is_alive():
            self.loop.end()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(10)
        self.far.__exit__()


class Fleet:
    """Nodes that share namespaces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.namespaces: dict[bytes, int] = {}
        self.secrets: dict[tuple[bytes, int], bytes] = {}
        self.min_gen: dict[bytes, int] = {}
        self.members: dict[str, Member] = {}
        self.ns = self.namespace()

    def namespace(self) -> bytes:
        ns = secrets.token_bytes(32)
        self.namespaces[ns], self.secrets[ns, 1], self.min_gen[ns] = 1, secrets.token_bytes(32), 0
        return ns

    def add(self, *names: str, process: bool = False, **changes) -> list[Member]:
        for name in names:
            self.members[name] = Member(self, name, process=process, **changes)
        return [self.members[n] for n in names]

    def end(self) -> None:
        for member in self.members.values():
            member.end()

    # What a router would say

    def chain(self, ids: list[int], tokens: int | None = None, ns: bytes | None = None) -> bytes:
        text = b"".join(hash_tokens(i, HASH, 0) for i in ids)[: 4 * (len(ids) * HASH if tokens is None else tokens)]
        blk = subkey(self.secrets[ns or self.ns, 1], "blk")
        return b"".join(chain_keys(text, block_tokens=SIZE, blk=blk, parent=None))

    def content(self, key: bytes) -> bytes:
        return Keystream(subkey(self.secrets[self.ns, 1], "enc"), 1024).content(key)

    def ticket(self, member: Member, chain: bytes, blocks: int, decision: str, peers=(), **more) -> Ticket:
        upto = chain[(blocks - 1) * KEY_BYTES : blocks * KEY_BYTES] if blocks else b""
        scope = Scope(decision=decision, blocks=blocks, upto=upto, peers=tuple(peers))
        fields = {"node": member.node, "ns": self.ns, "gen": 1, "expires_at": round(time.time() + 20, 3)} | more
        return ticket_issue(fields.pop("key", member.far.ticket_key), scope=fields.pop("scope", scope), **fields)

    def request(self, ids: list[int], *, tokens: int | None = None, output: int = 0, session=None) -> Request:
        return Request(
            request=str(uuid.uuid4()), ns=self.ns, gen=1, hash_ids=ids, hash_tokens=HASH, session=session,
            input_length=len(ids) * HASH if tokens is None else tokens, output_length=output,
        )  # fmt: skip

    def order(
        self, decode: Member, ids: list[int], *, prefill: Member | None = None, readable: int = 10**6,
        giver: tuple[Member, int, int] | None = None, tickets: dict | None = None, version: int = 0, **more,
    ) -> Order:  # fmt: skip
        """What a gateway sends after `/route`. `giver`: (node, from block, to block) of a remote range."""
        request = self.request(ids, **more)
        chain, decision = self.chain(ids, request.input_length), str(uuid.uuid4())
        blocks = min(readable, len(chain) // KEY_BYTES)
        apart = prefill is not None and prefill is not decode
        computes, plan, others = prefill or decode, [], []
        named: dict[str, list[Peer]] = {m.node: [] for m in self.members.values()}
        if apart:
            named[decode.node].append(_peer(prefill, "giver"))
            named[prefill.node].append(_peer(decode, "taker"))
        if giver:
            where, start, end = giver
            named[computes.node].append(_peer(where, "giver"))
            plan = [Range(from_block=start, to_block=end, source="remote", node=where.node, tier="hbm")]
            taker = [_peer(computes, "taker")]
            others.append(self.ticket(where, chain, end, decision, taker, **(tickets or {}).get(where.name, {})))
        if apart:
            changes = (tickets or {}).get(prefill.name, {})
            others.append(self.ticket(prefill, chain, blocks, decision, named[prefill.node], **changes))
        own = self.ticket(decode, chain, blocks, decision, named[decode.node], **(tickets or {}).get(decode.name, {}))
        return Order(
            ticket=own, request=request, prefill=prefill.node if prefill else "", plan=plan, tickets=others,
            version=version,
        )  # fmt: skip

    def send(self, decode: Member, order: Order, each=lambda event: None) -> "Answer":
        return Answer(decode, order, each)

    def serve(self, decode: Member, ids: list[int], **more) -> "Answer":
        return self.send(decode, self.order(decode, ids, **more))

    def at_once(self, decode: Member, orders: list[Order]) -> list["Answer"]:
        out: list[Answer | None] = [None] * len(orders)

        def one(i: int) -> None:
            out[i] = self.send(decode, orders[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(orders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return out


class Answer:
    """The events of one request, each with the time it came after the request was sent."""

    def __init__(self, decode: Member, order: Order, each) -> None:
        self.order = order
        self.events: list[tuple[float, Event]] = []
        self.status, self.code = 0, ""
        began = time.perf_counter()
        with httpx.Client(trust_env=False, timeout=60) as client:
            try:
                with client.stream("POST", decode.url + SERVE, content=msgspec.msgpack.encode(order)) as answer:
                    self.status = answer.status_code
                    if answer.status_code != 200:
                        self.code = json.loads(answer.read())["code"]
                        return
                    for line in answer.iter_lines():
                        event = event_of(line)
                        self.events.append(((time.perf_counter() - began) * 1000.0, event))
                        each(event)
            except httpx.HTTPError as e:
                self.code = type(e).__name__

    def at(self, name: str) -> float:
        return next(ms for ms, event in self.events if event.at == name)

    def has(self, name: str) -> bool:
        return any(event.at == name for _, event in self.events)

    @property
    def outcome(self) -> dict:
        done = [e for _, e in self.events if e.at == "done"]
        assert done, (self.status, self.code, self.events)
        return done[0].outcome

    @property
    def refused(self) -> str:
        return self.code or next((e.code for _, e in self.events if e.at == "refused"), "")


def _peer(member: Member, role: str) -> Peer:
    return Peer(node=member.node, role=role, public_key=member.public, url=member.url)


def spoilt(kind: str, fleet: "Fleet", other: Member) -> dict:
    """What is wrong with a ticket that is forged, expired, foreign or of another node."""
    return {
        "forged": {"key": secrets.token_bytes(32)}, "expired": {"expires_at": round(time.time() - 1, 3)},
        "foreign": {"ns": fleet.namespace()}, "other-node": {"node": other.node},
    }[kind]  # fmt: skip


def wrong_blocks(fleet: Fleet, member: Member) -> int:
    """Blocks in the hottest tier whose content is not what their key says it must be."""
    from nodeagent.tiers.base import content

    pool, wrong = member.agent.pool, 0
    with pool.lock:
        for run in pool.runs.values():
            for tier, copy in run.copies.items():
                raw = pool.tiers[tier].read(run.meta, copy.place)
                for i in range(run.blocks):
                    key = run.keys[i * KEY_BYTES : (i + 1) * KEY_BYTES]
                    wrong += content(run.meta, raw, i) != fleet.content(key)
    return wrong
