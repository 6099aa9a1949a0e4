"""Decides how the parts of an agent work together: one event loop, one worker thread for blocks, nothing that waits
for the console.

Requests and upkeep run in the worker thread, one after the other; the event loop serves HTTP, sends frames and renews
leases. Called by `__main__`.
"""

import asyncio
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from kvcore.blocks import Tier
from kvcore.events import Load
from kvcore.keys import unpack
from kvcore.messages import Command, SourcePosition
from kvcore.residency import REASONS
from nodeagent.config import Config, Home
from nodeagent.engines.base import Request, Result
from nodeagent.engines.reference import ReferenceEngine
from nodeagent.executor import Executor
from nodeagent.journal import Journal
from nodeagent.keys import KeyRing, LeaseKeeper
from nodeagent.load import LoadReport
from nodeagent.media import ENGINE_SOURCE, Media, new_boot
from nodeagent.meters import Meters
from nodeagent.orders import Orders
from nodeagent.probe import Prober
from nodeagent.reporter import Reporter
from nodeagent.sender import Sender
from nodeagent.serving.build import Serving
from nodeagent.tiers.memory import MemoryTier
from nodeagent.transfer_desk import Desk
from nodeagent.turns import Turns
from nodeagent.watermarks import Curve

TICK_SECONDS = 0.1
MARK_SECONDS = 0.5
MARK_AGAIN_SECONDS = 5.0
LOAD_SECONDS = 2.0
UPKEEP_SECONDS = 1.0
OPEN_TRIES = 100
"""How often a request looks whether what an earlier process left is found again, before it goes on without."""
TOKEN_FILE, KEY_FILE, DRIVE_FILE = "node.token", "node.key", "drive.token"


class Agent:
    """One node's agent. Everything it holds is released by `close`."""

    def __init__(self, home: Home) -> None:
        self.home, self.config = home, home.load()
        self.boot, self.started_at = new_boot(), time.time()
        self.drive_token = home.read_secret(DRIVE_FILE).decode().strip()
        token = home.read_secret(TOKEN_FILE).decode().strip()
        self.client = client(token)
        self.journal = Journal(home.journal_file)
        self.ring = KeyRing(known=self.journal.fences(), keep=self.journal.keep)
        self.media = Media(home, self.config, self.ring, boot=self.boot)
        self.pool = self.media.pool
        self.ring.on_fence = self._fenced
        self.keeper = LeaseKeeper(self.ring, self.client, self.config.console_url.rstrip("/") + "/api/v1/key-leases")
        self.engine = ReferenceEngine(
            self.pool, self.ring, block_tokens=self.config.block_tokens, block_bytes=self.config.block_bytes,
            curve=Curve(*self.config.prefill_curve), tpot_ms=self.config.tpot_ms,
        )  # fmt: skip
        self.orders = Orders(self.media, self.ring, self.engine, self.journal)
        prober = Prober(self.config, self.media.remote, time.time)
        private_key = bytes.fromhex(home.read_secret(KEY_FILE).decode().strip())
        self.desk = Desk(
            self.media, self.ring, node=self.config.node, private_key=private_key, hurry=self.keeper.hurry
        )  # fmt: skip
        self.orders.transfers = self.desk
        self.executor = Executor(
            node=self.config.node, boot=self.boot, private_key=private_key,
            console_key=bytes.fromhex(self.config.console_public_key), journal=self.journal,
            verbs={
                "ping": self._ping, "inventory": self._inventory, "digest": self._digest, "fence": self.orders.fence,
                "fences": self.orders.fences,
            },
            long={**self.orders.long, **self.desk.long, "probe": prober.probe}, positions=self.positions,
            boots=lambda: [box.boot for box in self.media.outboxes if box.boot],
        )  # fmt: skip
        linear, square = (x * self.config.time_scale for x in self.config.prefill_curve)
        self.meters = Meters((linear, square))
        self.prefills, self.decodes = Turns(self.config.prefill_slots), Turns(self.config.decode_slots)
        self.serving = Serving(
            self.config, self.media, self.engine, self.meters, prefills=self.prefills, decodes=self.decodes,
            worker=self._in_worker, private_key=private_key,
        )  # fmt: skip
        self.desk.gifts = self.serving.gifts
        report = LoadReport(ENGINE_SOURCE, self.meters, self.prefills, self.decodes)
        self.sender = Sender(
            self.config.node, self.media.outboxes, self.ring, client=self.client, ingest=self.config.ingest,
            digest_seconds=self.config.digest_seconds, on_allowances=self._allow, refused=self._refused,
            load=report.due,
        )  # fmt: skip
        self.refused: Counter[tuple[str, str]] = Counter()
        """Requests not taken, by (namespace hex, code), since the last heartbeat."""
        self.refused_ever: Counter[str] = Counter()
        """Requests not taken, by code, since the start."""
        self._worker = ThreadPoolExecutor(1, "blocks")
        self._waiting, self._request_ms, self._policy = 0, 0.0, 0
        self._told: dict[str, tuple[float, list[Any]]] = {}
        self._due = {"load": 0.0, "upkeep": 0.0}

    async def run(self) -> None:
        """Works until cancelled."""
        await self._in_worker(self._begin)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sender.run())
            group.create_task(self.keeper.keep())
            group.create_task(self._ticks())
            group.create_task(Reporter(self).run())

    def _begin(self) -> None:
        """The first frame tells the new boot before anything of it is listed; its answer brings the fences."""
        for box in self.media.outboxes[:1]:
            box.put(*self.pool.marks(box.source))
            for lane in box.lanes:
                lane.cut(time.time())

    def _fenced(self) -> None:
        """Fences were raised: nothing of what they cover goes on, is served or kept."""
        self.pool.fence()
        self.engine.forget()
        self.serving.road.fence(self.ring.fenced)

    async def _in_worker(self, call: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *args)

    async def _ticks(self) -> None:
        while True:
            more = await self._in_worker(self._tick, time.time())
            await asyncio.sleep(0.0 if more else TICK_SECONDS)

    def _tick(self, now: float) -> bool:
        """One slice of upkeep in the worker thread; True if more is waiting.

        What an earlier process left is found again once the console has answered: whatever was fenced while this node
        was away is known then, and is erased instead of served and told.
        """
        if not self.media.opened and self.ring.heard:
            self.media.open(now)
        self.engine.tick(now)
        more = self.media.relief.work(now)
        if now >= self._due["upkeep"]:
            self._due["upkeep"] = now + UPKEEP_SECONDS
            self.media.probe(now)
            self.media.relief.expire(now)
            self.desk.upkeep(now)
            self.serving.road.upkeep(now)
        self._tell(now)
        return more

    def _tell(self, now: float) -> None:
        """Marks where they changed, load now and then."""
        for box in self.media.outboxes:
            at, last = self._told.get(box.source, (0.0, []))
            if now - at >= MARK_SECONDS and box.boot:
                marks = self.pool.marks(box.source)
                if marks and (marks != last or now - at >= MARK_AGAIN_SECONDS):
                    self._told[box.source] = now, marks
                    box.put(*marks)
        if now >= self._due["load"]:
            self._due["load"] = now + LOAD_SECONDS
            curve, running = self.config.prefill_curve, self.engine.running + self._waiting
            self.media.outboxes[0].put(
                Load(
                    queue_ms=round(self._waiting * self._request_ms, 3),
                    running=running,
                    prefill_curve=curve,
                    measured=False,
                )
            )

    # What the server asks

    async def handle(self, requests: list[Request]) -> list[Result]:
        """Carries requests out in the worker thread; a missing lease is asked for once, without holding others up."""
        await self.ready(requests)
        self._waiting += len(requests)
        try:
            results: list[Result] = await self._in_worker(self._timed, requests)
        finally:
            self._waiting -= len(requests)
        for request, result in zip(requests, results, strict=True):
            if result.code and result.code not in REASONS:  # those are counted in blocks, where they are refused
                self.refused[request.ns.hex(), result.code] += 1
                self.refused_ever[result.code] += 1
        return results

    async def ready(self, requests: list[Request]) -> None:
        """What the requests need was asked for once: leases, and what an earlier process left."""
        if any(not self._leased(r) for r in requests):
            await self.keeper.renew()
        for _ in range(OPEN_TRIES):
            if self.media.opened or not self.ring.heard:  # without the console nothing is leased either
                break
            await asyncio.sleep(TICK_SECONDS / 2)

    def _timed(self, requests: list[Request]) -> list[Result]:
        """Carries them out, and learns how long one takes here."""
        began = time.perf_counter()
        results = self.engine.handle(requests, time.time())
        took = (time.perf_counter() - began) * 1000.0 / max(len(requests), 1)
        self._request_ms += 0.1 * (took - self._request_ms)
        return results

    def _leased(self, request: Request) -> bool:
        """Whether asking for leases cannot help: there is one, or the generation is fenced."""
        leased = any(x.ns == request.ns and x.gen == request.gen for x in self.ring.live())
        return leased or self.ring.fenced(request.ns, request.gen) or bool(self.pool.budget.shut(request.ns))

    async def inventory(self) -> dict[str, Any]:
        """Everything held, per source, tier, namespace, generation and group; keys in hex."""
        return await self._in_worker(self._list)  # type: ignore[no-any-return]

    def _list(self) -> dict[str, Any]:
        lists: dict[tuple[str, str, str, int, int], list[str]] = {}
        with self.pool.lock:
            for run in self.pool.runs.values():
                for tier in run.copies:
                    space = run.space
                    key = self.pool.outboxes[tier].source, tier.value, space.ns.hex(), space.gen, space.group
                    lists.setdefault(key, []).extend(k.hex() for k in unpack(run.keys))
            positions = self.positions()
        return {
            "node": self.config.node,
            "positions": [{"source": p.source, "boot": p.boot, "stream": p.stream, "seq": p.seq} for p in positions],
            "lists": [
                {"source": s, "dp_rank": 0, "tier": t, "ns": ns, "gen": gen, "group": group, "keys": keys}
                for (s, t, ns, gen, group), keys in lists.items()
            ],
        }

    def status(self) -> dict[str, Any]:
        """What an operator may know; no secret, no key, nothing of a prompt."""
        now, pool = time.time(), self.pool
        return {
            "node": self.config.node, "name": self.config.name, "version": self.config.version, "boot": self.boot,
            "uptime_seconds": round(now - self.started_at, 1), "profile": self.config.profile,
            "idle": self._idle(),
            "console": {
                "heard_ms_ago": round((now - self.sender.heard_at) * 1000) if self.sender.heard_at else None,
                "fence_seq": self.ring.fence_seq, "leases": len(self.ring.live()),
                "halted": {f"{name}/{rank}": why for (name, rank), why in self.sender.halted.items()},
                "sent": dict(self.sender.counts), "rejected": dict(self.sender.rejected),
            },
            "sources": [
                {
                    "source": b.source, "boot": b.boot, "stream": b.stream, "idle": b.idle, "overflows": b.overflows,
                    "seq": [x.seq for x in b.lanes], "acked": [x.acked for x in b.lanes],
                    "held_bytes": sum(x.held_bytes for x in b.lanes), "given_up": sum(x.given_up for x in b.lanes),
                }
                for b in self.media.outboxes
            ],
            "tiers": {n.value: self._tier(n, now) for n in pool.order},
            "engine": {
                "kind": "reference", "requests": self.engine.requests, "running": self.engine.running,
                "prompt_tokens": self.engine.prompt_tokens, "hit_tokens": self.engine.hit_tokens,
            },
            "dropped_blocks": {f"{t.value}/{r}": n for (t, r), n in pool.dropped.copy().items()},
            "refused_blocks": dict(pool.refused_blocks),
            "not_taken_blocks": {f"{t}/{why}": n for (t, why), n in pool.budget.refused_ever.copy().items()},
            "allowances": self.media.relief.version,
            "open_steps": len(self.journal.open_steps()),
            "running_steps": {r.step: [r.done_bytes, r.total_bytes] for r in self.executor.running},
            "fences": self.ring.fences, "fences_not_kept": self.ring.unkept,
            "transfers": {
                "offers": len(self.desk.offers.open), "staged": len(self.desk.staging),
                "sent_bytes": self.desk.offers.sent_bytes, "in_flight_bytes": self.desk.credits.in_flight,
                "peak_bytes": self.desk.credits.peak,
            },
            "serving": self.serving.road.status(),
            "cleared_blocks": {t.value: n for t, n in pool.cleared.copy().items()},
        }  # fmt: skip

    def _idle(self) -> bool:
        """Nothing is being done, and everything that was done is known to the console."""
        pool = self.pool
        if not self.media.opened or self.executor.running:
            return False
        full = any(map(pool.relieving, pool.tiers))
        return not (full or self._waiting or self.engine.running) and all(b.idle for b in self.media.outboxes)

    def _tier(self, name: Tier, now: float) -> dict[str, Any]:
        store, config = self.pool.tiers[name], self.pool.configs[name]
        return {
            "used_bytes": store.used_bytes, "capacity_bytes": store.capacity_bytes, "high": config.high,
            "low": config.low, "emulated": store.emulated, "encrypted": store.encrypted,
            "locked": isinstance(store, MemoryTier) and store.locked, "up": self.pool.up(name, now),
            "blocks": sum(s.totals.get(name, (0, 0, 0))[0] for s in list(self.pool.spaces.values())),
            "reliefs": self.pool.gates[name].opened,
        }  # fmt: skip

    # What commands do

    def positions(self) -> list[SourcePosition]:
        """Where the outboxes stand; sources that were never reached are left out."""
        return [p for box in self.media.outboxes if box.boot for p in box.positions()]

    def _ping(self, command: Command) -> dict[str, Any]:
        return {"uptime_seconds": round(time.time() - self.started_at, 1), "boot": self.boot}

    def _inventory(self, command: Command) -> dict[str, Any]:
        """Every source lists what it holds, on the event road; the receipt tells how much."""
        wanted = command.args.get("source")
        for box in self.media.outboxes:
            if wanted in (None, box.source):
                box.owe_inventory()
        return {"blocks": self._blocks()}

    def _digest(self, command: Command) -> dict[str, Any]:
        with self.pool.lock:
            lines = self.pool.digests(frozenset(self.pool.order))
        return {
            "blocks": self._blocks(),
            "lines": [
                [x.ns.hex(), str(x.gen), x.group, x.tier, x.blocks, f"{x.lo:016x}", f"{x.hi:016x}"] for x in lines
            ],
        }

    def _blocks(self) -> dict[str, int]:
        with self.pool.lock:
            return {
                n.value: sum(s.totals.get(n, (0, 0, 0))[0] for s in self.pool.spaces.values()) for n in self.pool.order
            }

    # What answers bring

    def _allow(self, allowances: dict[str, Any]) -> bool:
        """Takes allowances; True once nothing is above them, which is when they count as applied."""
        told = allowances.get("policy")
        if isinstance(told, int) and told > self._policy:
            self._policy = told
            self.keeper.hurry()
        return self.media.relief.allow(allowances)

    def _refused(self) -> list[dict[str, Any]]:
        """What was refused since the last call: requests by code, blocks by what bars them."""
        counted, self.refused = self.refused, Counter()
        with self.pool.lock:
            blocks, self.pool.budget.refused = self.pool.budget.refused, Counter()
        top = Tier(self.pool.order[0]).value
        requests = [{"ns": ns, "tier": top, "reason": code, "count": n} for (ns, code), n in counted.items()]
        return requests + [
            {"ns": ns.hex(), "tier": tier.value, "reason": why, "count": n} for (ns, tier, why), n in blocks.items()
        ]

    async def close(self) -> None:
        """Everything is released; what was not acknowledged is told again by the next life."""
        await self.serving.close()
        await asyncio.to_thread(self.executor.close)
        self._worker.shutdown(wait=True, cancel_futures=True)
        self.ring.clear()
        self.media.close()
        self.journal.close()
        await self.client.aclose()


def client(token: str, *, timeout_seconds: float = 15.0) -> httpx.AsyncClient:
    """An HTTP client with the node's token that follows nothing and asks no proxy."""
    return httpx.AsyncClient(
        headers={"authorization": f"Bearer {token}"}, timeout=httpx.Timeout(timeout_seconds, connect=2.0),
        trust_env=False, follow_redirects=False, limits=httpx.Limits(max_keepalive_connections=8, keepalive_expiry=60),
    )  # fmt: skip


def new_drive_token() -> str:
    """A token for the inventory of one agent."""
    return secrets.token_urlsafe(32)


def describe_config(config: Config) -> list[dict[str, Any]]:
    """The tiers as they are told at enrolment."""
    out = []
    for name in Tier:
        if name in config.tiers:
            tier = config.tiers[name]
            out.append(
                {
                    "tier": name.value, "capacity_bytes": tier.capacity_bytes, "high": tier.high, "low": tier.low,
                    "emulated": name is Tier.HBM, "encrypted": name in (Tier.SSD, Tier.REMOTE),
                }
            )  # fmt: skip
    return out
