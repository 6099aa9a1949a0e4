"""`python -m nodeagent listen`: speaks for an engine on whose host nothing may be installed.

Subscribes to the engine's ZMQ publisher (one socket pair a data-parallel rank), repairs losses from its ring, turns
events into canonical items and sends them like any agent. One thread receives and decodes; it never waits for the
console, and nothing here can make an engine wait. What got lost on the way to the console is repaired by listing what
is keyed. The engine itself cannot list: what it told and we never heard leaves its source `recovering` until it is
cleared or restarted.
"""

import argparse
import asyncio
import contextlib
import re
import signal
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import zmq

from kvcore.blocks import Tier
from kvcore.dialects.vllm import decode_batch
from kvcore.events import Gap, Item, Refused
from kvcore.items import named
from nodeagent.agent import TOKEN_FILE, client
from nodeagent.config import ConfigError, Home
from nodeagent.engines.endpoints import Endpoint, discovered, endpoints_of
from nodeagent.engines.gather import Gatherer
from nodeagent.engines.listing import Listing
from nodeagent.engines.stream import Apply, Lost, Reborn, Replay, Step, Stream
from nodeagent.engines.vllm import Source, Vllm
from nodeagent.keys import KeyRing, LeaseKeeper
from nodeagent.outbox import Outbox
from nodeagent.sender import Sender

END = b"\xff" * 8
REPLAY_SECONDS = 10.0
"""Longest silence of a ring that was asked."""
ADOPT_SECONDS = 0.25
ASIDE_MAX = 1000
RCVHWM = 100_000


class Lane:
    """One rank: its sockets, its sequence, its engine's hashes, its outbox."""

    def __init__(self, endpoint: Endpoint, engine: Vllm, outbox: Outbox, *, ranks: int, context: Any) -> None:
        self.endpoint, self.engine, self.outbox, self.ranks = endpoint, engine, outbox, ranks
        self.gatherer = Gatherer()
        self.listing = outbox.lister = Listing(
            engine.map, bytes_per_token=engine.source.bytes_per_token, settle=self.finish
        )
        self.stream = Stream(has_ring=endpoint.replay is not None)
        self.counts: Counter[str] = Counter()
        self.aside: deque[tuple[float, int]] = deque(maxlen=ASIDE_MAX)
        """Batches set aside because they do not say whose they are: (time, bytes); their content is not kept."""
        self.asked_at: float | None = None
        self._context = context
        self.sub: Any = None
        self.dealer: Any = None

    def open(self) -> None:
        """The rank is heard from now on.

        Raises:
            zmq.ZMQError: the endpoint cannot be used.
        """
        endpoint = self.endpoint
        self.sub = self._context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.LINGER, 0)
        self.sub.setsockopt(zmq.RCVHWM, RCVHWM)
        self.sub.setsockopt(zmq.SUBSCRIBE, endpoint.topic.encode())
        (self.sub.bind if endpoint.bind else self.sub.connect)(endpoint.engine)

    def start(self) -> None:
        """The ring is asked for what it has."""
        self._do(self.stream.start())

    def receive(self) -> int:
        """Takes what the publisher has sent, at most some hundred messages; how many there were."""
        for n in range(256):
            try:
                parts = self.sub.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return n
            if len(parts) != 3 or len(parts[1]) != 8 or parts[1] == END:
                self._lost("malformed-frame", "decode")
                continue
            self._do(self.stream.live(int.from_bytes(parts[1], "big"), parts[2]))
        return 256

    def receive_replay(self) -> None:
        """Takes what the ring has sent: `["", topic, seq, payload]`, or without the topic from older engines."""
        while self.dealer is not None:
            try:
                parts = self.dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.asked_at = time.monotonic()
            if len(parts) not in (3, 4) or len(parts[-2]) != 8:
                self.counts["malformed-replay"] += 1
                continue
            if parts[-2] == END:
                self._over()
                return
            self._do(self.stream.replayed(int.from_bytes(parts[-2], "big"), parts[-1]))

    def tick(self, now: float) -> None:
        """Gives up a ring that does not answer; adopts what waited for a lease."""
        if self.asked_at is not None and now - self.asked_at > REPLAY_SECONDS:
            self.counts["replay-timeout"] += 1
            self._over()
        with self.listing.lock:
            self._put(self.engine.adopt())
            self._tell(self.gatherer.due(now))

    def finish(self) -> None:
        """Nothing is held back any more."""
        with self.listing.lock:
            self._tell(self.gatherer.flush())

    def close(self) -> None:
        """The sockets are closed."""
        if self.sub is not None:
            self.sub.close()
        self._hang_up()

    def _over(self) -> None:
        self._hang_up()
        self._do(self.stream.replay_over())

    def _hang_up(self) -> None:
        self.asked_at = None
        if self.dealer is not None:
            self.dealer.close()
            self.dealer = None

    def _do(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Apply(payload=payload):
                    self._apply(payload)
                case Reborn():
                    self.counts["reborn"] += 1
                    self._hang_up()
                    self._begin_anew()
                case Lost(reason=reason):
                    self._lost(f"lost-{reason}", reason)
                case Replay(start=start):
                    self._ask(start)

    def _begin_anew(self) -> None:
        with self.listing.lock:
            self.engine.reset()
            self.gatherer.forget()
            self.listing.forget()
            self.outbox.reborn(str(uuid.uuid4()))

    def _ask(self, start: int) -> None:
        """A fresh DEALER per question: what still comes for an older one must not be taken for an answer."""
        self._hang_up()
        self.counts["replays"] += 1
        self.dealer = self._context.socket(zmq.DEALER)
        self.dealer.setsockopt(zmq.LINGER, 0)
        self.dealer.setsockopt(zmq.RCVHWM, 0)  # the ring is bounded, and what it sends must not be dropped
        self.dealer.connect(self.endpoint.replay)
        with contextlib.suppress(zmq.Again):  # not connected yet and no room: the time-out sees to it
            self.dealer.send_multipart([b"", start.to_bytes(8, "big")], zmq.NOBLOCK)
        self.asked_at = time.monotonic()

    def _apply(self, payload: bytes) -> None:
        self.counts["batches"] += 1
        try:
            batch = decode_batch(payload, ids=True)
        except Refused as e:
            self._lost(e.code, "decode")
            return
        if self.ranks > 1 and batch.rank != self.endpoint.rank:
            self.aside.append((time.time(), len(payload)))
            self._lost("missing-dp-rank" if batch.rank is None else "rank-mismatch", "decode")
            return
        with self.listing.lock:
            self._put(self.engine.items(batch))

    def _put(self, items: list[Item]) -> None:
        if items:
            self._tell(self.gatherer.put(items, time.monotonic()))

    def _tell(self, items: list[Item]) -> None:
        if items:
            self.listing.told(items)
            self.outbox.put(*items)

    def _lost(self, code: str, reason: str) -> None:
        self.counts[code] += 1
        with self.listing.lock:
            self._put([Gap(since=time.time(), reason=reason)])


class Listener:
    """All ranks of one engine, in a thread of its own until `stop`."""

    def __init__(
        self, source: Source, endpoints: Sequence[Endpoint], ring: KeyRing, outboxes: Sequence[Outbox]
    ) -> None:
        self._context = zmq.Context()
        self.lanes = [
            Lane(e, Vllm(source, ring), box, ranks=len(endpoints), context=self._context)
            for e, box in zip(endpoints, outboxes, strict=True)
        ]
        self._stopping = threading.Event()
        self.failed: BaseException | None = None
        self._told: Counter[tuple[int, str]] = Counter()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)

    def start(self) -> None:
        """Receives from now on.

        Raises:
            zmq.ZMQError: an endpoint cannot be used; `stop` has to be called all the same.
        """
        for lane in self.lanes:
            lane.open()
        self._thread.start()

    def stop(self) -> None:
        """The thread has ended and the sockets are closed."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for lane in self.lanes:
            lane.finish()
            lane.close()
        self._context.term()

    def status(self) -> dict[str, Any]:
        """Counts per rank; codes and numbers only."""
        return {
            "ranks": len(self.lanes),
            "ranks_heard": sum(lane.stream.heard for lane in self.lanes),
            "lanes": [
                {
                    "rank": lane.endpoint.rank, "next_seq": lane.stream.expected, "replaying": lane.stream.replaying,
                    "held": lane.stream.held, "gathering": lane.gatherer.held, "aside": len(lane.aside),
                    "blocks": len(lane.engine.map), "gap": lane.listing.gap,
                    "quarantined": lane.engine.map.waiting, "quarantined_bytes": lane.engine.map.waiting_bytes,
                    "counts": dict(lane.counts), "events": dict(lane.engine.counts),
                }
                for lane in self.lanes
            ],
        }  # fmt: skip

    def refused(self) -> list[dict[str, Any]]:
        """For heartbeats: what was refused since the last one, by code."""
        now: Counter[tuple[int, str]] = Counter()
        for lane in self.lanes:
            for counts in (dict(lane.counts), dict(lane.engine.counts)):  # copies: the other thread goes on counting
                now.update({(lane.endpoint.rank, c): n for c, n in counts.items() if c not in _ORDINARY})
        fresh, self._told = now - self._told, now
        source, tier = self.lanes[0].outbox.source, Tier.HBM.value
        return [
            {"source": source, "dp_rank": rank, "ns": "", "tier": tier, "reason": c, "count": n}
            for (rank, c), n in fresh.most_common(256)
        ]

    def _run(self) -> None:
        try:
            for lane in self.lanes:
                lane.start()
            next_tick = time.monotonic()
            while not self._stopping.is_set():
                poller = zmq.Poller()
                for lane in self.lanes:
                    for socket in (lane.sub, lane.dealer):
                        if socket is not None:
                            poller.register(socket, zmq.POLLIN)
                poller.poll(100)
                for lane in self.lanes:
                    lane.receive_replay()
                    lane.receive()
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + ADOPT_SECONDS
                    for lane in self.lanes:
                        lane.tick(now)
        except BaseException as e:
            self.failed = e
            raise


_ENDPOINT = re.compile(r"tcp://[^\s/]+:\d{1,5}|(?:ipc|inproc)://\S+")
_ORDINARY = frozenset({"batches", "replays", "reborn", "stored", "removed", "cleared", "adopted", "quarantined"})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nodeagent listen", description=__doc__)
    parser.add_argument("--dir", required=True, help="the agent's directory, made by join")
    parser.add_argument("--source", required=True, help="name of the engine on this node")
    parser.add_argument("--engine", help="tcp://host:port of the publisher of rank 0")
    parser.add_argument("--bind", action="store_true", help="the engine connects to us")
    parser.add_argument("--replay", help="tcp://host:port of the replay endpoint of rank 0")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks; ports count up from rank 0's")
    parser.add_argument("--topic", default="")
    parser.add_argument("--sources-url", help="http://…/kv_event_sources: the engine tells its endpoints")
    parser.add_argument("--namespace-default", help="hex digest of the namespace of chains without a salt")
    parser.add_argument("--bytes-per-token", type=int, default=0, help="what a token costs on one rank")
    parser.add_argument("--reannounces", action="store_true", help="the engine reports blocks again that it has")
    parser.add_argument("--supervised", action="store_true", help="end when standard input is closed")
    return parser


def _endpoints(args: argparse.Namespace) -> list[Endpoint]:
    if args.sources_url:
        with httpx.Client(timeout=10, trust_env=False, follow_redirects=False) as http:
            answer = http.get(args.sources_url)
            answer.raise_for_status()
            return discovered(answer.json(), urlsplit(args.sources_url).hostname or "127.0.0.1")
    if not args.engine or not 1 <= args.ranks <= 1024:
        raise ConfigError("--engine or --sources-url is needed, and 1 to 1024 ranks")
    for name in ("engine", "replay"):
        url = getattr(args, name)
        if url and not _ENDPOINT.fullmatch(url):
            raise ConfigError(f"--{name}: {url!r} is not tcp://host:port")
    return endpoints_of(args.engine, args.replay, ranks=args.ranks, bind=args.bind, topic=args.topic)


def main(argv: Sequence[str] | None = None) -> int:
    """Listens until SIGTERM or SIGINT; 1 if it cannot begin or the receiving thread failed."""
    args = _parser().parse_args(argv)
    try:
        home = Home(Path(args.dir))
        endpoints = _endpoints(args)
        if args.namespace_default and not re.fullmatch("[0-9a-fA-F]{64}", args.namespace_default):
            raise ConfigError("--namespace-default is not 64 hex digits")
        if not 0 <= args.bytes_per_token < 2**31:
            raise ConfigError("--bytes-per-token is 0 (not known) or more")
        if not named(args.source):
            raise ConfigError("--source: a name of 1 to 200 printable characters")
        default = bytes.fromhex(args.namespace_default) if args.namespace_default else None
        return asyncio.run(_serve(args, home, endpoints, default))
    except ConfigError as e:
        print(f"nodeagent listen: {e}", file=sys.stderr)
        return 1
    except (ValueError, httpx.HTTPError, httpx.InvalidURL, zmq.ZMQError) as e:
        print(f"nodeagent listen: {type(e).__name__}: {e}", file=sys.stderr)
        return 1


async def _serve(args: argparse.Namespace, home: Home, endpoints: list[Endpoint], default: bytes | None) -> int:
    config = home.load()
    ring = KeyRing()
    source = Source(
        name=args.source, default=default, bytes_per_token=args.bytes_per_token, reannounces=args.reannounces
    )
    outboxes = [
        Outbox(args.source, e.rank, boot=str(uuid.uuid4()), shards=config.shards, limit_bytes=config.outbox_bytes)
        for e in endpoints
    ]
    http = client(home.read_secret(TOKEN_FILE).decode().strip())
    listener = Listener(source, endpoints, ring, outboxes)
    keeper = LeaseKeeper(ring, http, config.console_url.rstrip("/") + "/api/v1/key-leases")
    sender = Sender(config.node, outboxes, ring, client=http, ingest=config.ingest, refused=listener.refused)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if args.supervised:
        threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    tasks = [asyncio.create_task(sender.run()), asyncio.create_task(keeper.keep()), asyncio.create_task(over.wait())]
    try:
        await keeper.renew()
        listener.start()
        print(f"nodeagent listen: {args.source}, {len(endpoints)} rank(s)", flush=True)
        while not over.is_set() and listener.failed is None and not any(t.done() for t in tasks):
            home.write("listen.json", msgspec.json.encode(listener.status()))
            await asyncio.wait(tasks, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(listener.stop)
        await http.aclose()
        ring.clear()
    return 0 if over.is_set() else 1
