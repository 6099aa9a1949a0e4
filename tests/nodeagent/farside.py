"""The console as an agent sees it, for tests: enrolment, leases, ingest, heartbeats. It folds what it is told with the
rules of `kvcore`, so that what it believes can be held against what the agent holds. It can lose, double and reorder.
"""

import asyncio
import json
import random
import secrets
import threading
import time
from collections import Counter
from urllib.parse import parse_qsl

import msgspec
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.events import Add, Adds, Item, Refused, decode_frame, decode_item
from kvcore.fold import Cursor, Duplicate, Gap, IllegalTransition, Place, Reset, UnknownKey, apply, fold, reset
from kvcore.keys import digest_add, subkey, unpack
from kvcore.messages import (
    PROTOCOL,
    Answer,
    Command,
    DigestReport,
    EnrolmentQuestion,
    Fence,
    Heartbeat,
    InventoryPage,
    Signed,
    Ticket,
    enrolment_bytes,
    fingerprint,
    seal,
    ticket_issue,
)


class Believed:
    """What the far side believes of one source."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.places: dict[Place, str] = {}
        self.pages: list[bytes] = []
        self.inventory = ""
        self.doubt = False
        self.items: list[Item] = []


class FarSide:
    """A console in a thread, on a free port of loopback."""

    def __init__(self, *, block_tokens: int = 16) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.ticket_key = secrets.token_bytes(32)
        self.node = "0190d5a0-0000-7000-8000-000000000042"
        self.node_key = b""
        self.block_tokens = block_tokens
        self.namespaces: dict[bytes, int] = {}
        self.secrets: dict[tuple[bytes, int], bytes] = {}
        self.min_gen: dict[bytes, int] = {}
        self.fences: list[Fence] = []
        self.sources: dict[tuple[str, int], Believed] = {}
        self.counts: Counter[str] = Counter()
        self.notes: list[object] = []
        self.bodies: list[bytes] = []
        self.beats: list[Heartbeat] = []
        self.status = 200
        """Anything else is answered to every message of the event road."""
        self.problem = "shard-unavailable"
        self.drop = self.double = self.reorder = 0.0
        self.lease_seconds = 300.0
        self.enrol_answer: dict[str, object] = {}
        self.allowances: dict[str, object] = {}
        self.policies: dict[bytes, dict[str, object]] = {}
        """What leases say of a namespace besides that its tenant is `t1`."""
        self.denied: dict[bytes, str] = {}
        self.rnd = random.Random(7)
        self.held: list[bytes] = []
        self.lock = threading.Lock()
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_level="error", lifespan="off", access_log=False, interface="asgi3"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self) -> "FarSide":
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    # What tests ask for

    @property
    def enrolment_token(self) -> str:
        return f"kvc_enrol_{'a' * 16}_{'b' * 49}.{fingerprint(self.public)}"

    def prove(self) -> str:
        """The proof that a node asks for; tests replace it by what an impostor can do."""
        return self.key.sign(enrolment_bytes(self.asked())).hex()

    def asked(self) -> EnrolmentQuestion:
        """The question of the last request."""
        return EnrolmentQuestion(**dict(parse_qsl(self.query)))

    def namespace(self, ns: bytes | None = None, gen: int = 1) -> bytes:
        ns = ns or secrets.token_bytes(32)
        self.namespaces[ns] = gen
        self.secrets.setdefault((ns, gen), secrets.token_bytes(32))
        self.min_gen.setdefault(ns, 0)
        return ns

    def fence(self, ns: bytes, min_gen: int) -> None:
        self.min_gen[ns] = min_gen
        self.fences.append(Fence(ns=ns, min_gen=min_gen))

    def ticket(self, ns: bytes, gen: int = 1, *, seconds: float = 20, node: str = "") -> Ticket:
        return ticket_issue(
            self.ticket_key, node=node or self.node, ns=ns, gen=gen, expires_at=round(time.time() + seconds, 3)
        )

    def command(
        self, kind: str, *, step: str, seconds: float = 30, key: Ed25519PrivateKey | None = None, **more
    ) -> Signed:
        now = round(time.time(), 3)
        fields = dict(
            v=PROTOCOL,
            step=step,
            kind=kind,
            node=self.node,
            order_hash="0" * 64,
            issued_at=now,
            expires_at=now + seconds,
        )
        return seal("command", Command(**fields | more), (key or self.key).sign, self.public)

    def believed(self, source: str, rank: int = 0) -> set[tuple[str, bytes, int, bytes]]:
        with self.lock:
            got = self.sources.get((source, rank))
            return {(p.tier, p.ns, p.gen, p.key) for p in got.places} if got else set()

    # What the agent sees

    async def app(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path, self.query = scope["path"], scope["query_string"].decode()
        status, out, kind = await self.answer(path, body, dict(scope["headers"]))
        headers = [(b"content-type", kind), (b"content-length", str(len(out)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": out})

    async def answer(self, path: str, body: bytes, headers: dict[bytes, bytes]) -> tuple[int, bytes, bytes]:
        self.counts[path.split(":")[-1].rsplit("/", 1)[-1]] += 1
        if path == "/api/v1/fleet-key":
            return (
                200,
                json.dumps({"public_key": self.public.hex(), "proof": self.prove()}).encode(),
                b"application/json",
            )
        if path == "/api/v1/nodes:enrol":
            return self.enrol(json.loads(body))
        if path == "/api/v1/key-leases":
            if self.status != 200:
                return 503, b"{}", b"application/json"
            return 200, json.dumps(self.leases(json.loads(body))).encode(), b"application/json"
        if self.status != 200:
            return self.status, json.dumps({"code": self.problem}).encode(), b"application/problem+json"
        self.bodies.append(body)
        fate = self.rnd.random() if path.endswith("/events") else 1.0
        if fate < self.drop:
            return 502, b"", b"text/plain"
        with self.lock:
            if path.endswith("/events"):
                if fate < self.drop + self.reorder:
                    self.held.append(body)
                    return 502, b"", b"text/plain"
                answer = self.frame(body)
                if self.rnd.random() < self.double:
                    answer = self.frame(body)
                while self.held and self.rnd.random() < 0.5:
                    self.frame(self.held.pop(self.rnd.randrange(len(self.held))))
                if self.rnd.random() < self.drop:  # committed, but the answer is lost
                    return 502, b"", b"text/plain"
            elif path.endswith("/inventory"):
                answer = self.listing(body)
            else:
                beat = msgspec.msgpack.decode(body, type=Heartbeat)
                self.beats.append(beat)
                answer = self.say("ok", fence_seq=beat.fence_seq)
        await asyncio.sleep(0)
        return 200, msgspec.msgpack.encode(answer), b"application/msgpack"

    def enrol(self, body: dict) -> tuple[int, bytes, bytes]:
        self.enrolled = body
        self.node_key = bytes.fromhex(body["public_key"])
        answer = {
            "node": self.node, "node_token": "kvc_node_test", "console_public_key": self.public.hex(), "shards": 1,
            "ingest": [{"shard": 0, "url": self.url}],
        } | self.enrol_answer  # fmt: skip
        return 200, json.dumps(answer).encode(), b"application/json"

    def leases(self, body: dict) -> dict:
        until = time.time() + self.lease_seconds
        leases = []
        for (ns, gen), secret in self.secrets.items():
            if gen >= self.min_gen[ns] and ns not in self.denied:
                subkeys = {label: subkey(secret, label).hex() for label in ("blk", "enc")}
                leases.append(
                    {
                        "namespace": ns.hex(), "generation": gen, "block_tokens": self.block_tokens,
                        "subkeys": subkeys, "salt_tag": "00" * 16, "until": until,
                        **({"tenant": "t1"} | self.policies.get(ns, {})),
                    }
                )  # fmt: skip
        fences = [{"namespace": f.ns.hex(), "min_gen": f.min_gen} for f in self.fences[body["fence_seq"] :]]
        return {
            "leases": leases, "ticket_key": self.ticket_key.hex(), "fence_seq": len(self.fences),
            "fences_after": fences,
            "denied": [{"namespace": ns.hex(), "tenant": "t1", "reason": why} for ns, why in self.denied.items()],
        }  # fmt: skip

    def say(self, state: str, *, fence_seq: int, **more) -> Answer:
        return Answer(
            state=state,
            fence_seq=len(self.fences),
            fences_after=self.fences[fence_seq:],
            allowances=self.allowances,
            **more,
        )

    def frame(self, body: bytes) -> Answer:
        frame = decode_frame(body)
        source = self.sources.setdefault((frame.source, frame.dp_rank or 0), Believed())
        cursor, verdict = source.cursor.advance(frame.boot, frame.stream, frame.seq)
        self.counts[f"frame_{type(verdict).__name__}"] += 1
        if isinstance(verdict, Gap):
            return self.say(
                "gap", fence_seq=frame.fence_seq, committed_seq=source.cursor.seq, expect_seq=verdict.expect_seq,
                inventory=verdict.inventory,
            )  # fmt: skip
        if isinstance(verdict, Duplicate):
            return self.say(
                "duplicate",
                fence_seq=frame.fence_seq,
                committed_seq=source.cursor.seq,
                expect_seq=source.cursor.seq + 1,
            )
        if isinstance(verdict, Reset):
            changes, _ = reset(source.places)
            apply(source.places, changes)
            source.doubt = bool(source.places)
        source.cursor = cursor
        for raw in frame.items:
            self.fold(source, raw)
        wants, source.doubt = source.doubt, False
        return self.say(
            "reset" if isinstance(verdict, Reset) else "next", fence_seq=frame.fence_seq, committed_seq=frame.seq,
            expect_seq=frame.seq + 1, inventory=wants,
        )  # fmt: skip

    def fold(self, source: Believed, raw: msgspec.Raw) -> None:
        try:
            item = decode_item(raw)
        except Refused as e:
            self.notes.append(e)
            return
        source.items.append(item)
        changes, notes = fold(source.places, item, self.min_gen)
        apply(source.places, changes)
        bad = [n for n in notes if isinstance(n, UnknownKey | IllegalTransition)]
        self.notes.extend(notes)
        source.doubt = source.doubt or bool(bad)

    def listing(self, body: bytes) -> Answer:
        shape = msgspec.msgpack.decode(body)
        if "lines" in shape:
            return self.digest(msgspec.msgpack.decode(body, type=DigestReport))
        page = msgspec.msgpack.decode(body, type=InventoryPage)
        source = self.sources.setdefault((page.source, page.dp_rank or 0), Believed())
        if page.inventory != source.inventory:
            source.inventory, source.pages = page.inventory, []
        if page.page == len(source.pages):
            source.pages.append(body)
        if not page.last:
            return self.say("page", fence_seq=page.fence_seq)
        cursor, verdict = source.cursor.listed(page.boot, page.stream, page.seq)
        if isinstance(verdict, Duplicate):
            return self.say("stale", fence_seq=page.fence_seq)
        source.cursor = cursor
        source.places = {}
        self.counts["inventories"] += 1
        for part in source.pages:
            for raw in msgspec.msgpack.decode(part, type=InventoryPage).items:
                item = decode_item(raw)
                assert isinstance(item, Add | Adds)
                changes, _ = fold(source.places, item)
                apply(source.places, changes)
        return self.say("applied", fence_seq=page.fence_seq, committed_seq=page.seq, expect_seq=page.seq + 1)

    def digest(self, report: DigestReport) -> Answer:
        source = self.sources.setdefault((report.source, report.dp_rank or 0), Believed())
        cursor = source.cursor
        if (report.boot, report.stream, report.seq) != (cursor.boot, cursor.stream, cursor.seq):
            self.counts["digest_stale"] += 1
            return self.say("stale", fence_seq=report.fence_seq)

        sums: dict[tuple[bytes, int, int, str], tuple[int, int, int]] = {}
        for p in source.places:
            at = p.ns, p.gen, p.group, p.tier
            sums[at] = digest_add(sums.get(at, (0, 0, 0)), p.key)
        told = {(x.ns, x.gen, x.group, x.tier): (x.blocks, x.lo, x.hi) for x in report.lines}
        state = "equal" if told == sums else "differs"
        self.counts[f"digest_{state}"] += 1
        return self.say(state, fence_seq=report.fence_seq)


def held(inventory: dict, source: str) -> set[tuple[str, bytes, int, bytes]]:
    """What an agent says it holds, in the form of `FarSide.believed`."""
    return {
        (line["tier"], bytes.fromhex(line["ns"]), line["gen"], bytes.fromhex(key))
        for line in inventory["lists"]
        if line["source"] == source
        for key in line["keys"]
    }


def pool_holds(pool, source: str) -> set[tuple[str, bytes, int, bytes]]:
    """The same, asked of a pool."""
    with pool.lock:
        return {
            (tier.value, run.space.ns, run.space.gen, key)
            for run in pool.runs.values()
            for tier in run.copies
            if pool.outboxes[tier].source == source
            for key in unpack(run.keys)
        }
