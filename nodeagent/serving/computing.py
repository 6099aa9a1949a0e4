"""Decides how a prompt becomes blocks on this node: what is here is loaded, the rest is computed in its turn.

Keys, bytes and moves are real work; what a real engine would compute beside takes the declared time, and is marked
emulated. Everything of the pool happens in its worker thread, run by run, so that ranges can be published as they come.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from kvcore.blocks import TIERS, Tier
from kvcore.keys import KEY_BYTES
from nodeagent.engines.base import Request, Result
from nodeagent.engines.reference import ReferenceEngine
from nodeagent.keys import Lease
from nodeagent.meters import Meters
from nodeagent.pool import Pool
from nodeagent.runs import RUN_BLOCKS, Copy, Run, Space
from nodeagent.serving.words import Refused
from nodeagent.watermarks import Curve, load_ms, touch

_T = TypeVar("_T")
Worker = Callable[..., Awaitable[Any]]
"""Runs a call in the pool's worker thread."""
Progress = Callable[[int], None]
"""Called with the number of leading blocks that are here."""


class Prompt(NamedTuple):
    """A request as this node understands it."""

    request: Request
    lease: Lease
    space: Space
    chain: bytes
    """Packed keys of its full blocks."""

    @property
    def blocks(self) -> int:
        """Full blocks."""
        return len(self.chain) // KEY_BYTES

    def key(self, block: int) -> bytes:
        """Key of one block."""
        return self.chain[block * KEY_BYTES : (block + 1) * KEY_BYTES]

    def before(self, block: int) -> bytes | None:
        """Key of the block before, None at the start."""
        return self.key(block - 1) if block else None


class Computer:
    """What computes on this node."""

    def __init__(
        self, pool: Pool, engine: ReferenceEngine, meters: Meters, worker: Worker, *, curve: Curve, scale: float
    ) -> None:
        self.pool, self.engine, self.meters, self.worker = pool, engine, meters, worker
        self._curve, self._scale = curve, scale
        self.prefills = 0
        """Prompts of which something was computed."""
        self.computed_blocks = 0

    async def open(self, request: Request) -> Prompt:
        """The prompt.

        Raises:
            Refused: lease-over, block-size-mismatch, request-malformed, or what bars it.
        """
        found = await self.worker(self._open, request)
        if isinstance(found, Result):
            raise Refused(found.code)
        return Prompt(request, *found)

    def _open(self, request: Request) -> Any:
        with self.pool.lock:
            return self.engine.open(request)

    def known(self, prompt: Prompt, most: int) -> int:
        """How many leading blocks, at most so many, are committed somewhere on this node."""
        at, most = 0, min(most, prompt.blocks)
        with self.pool.lock:
            while at < most and (run := self.pool.index.get(prompt.key(at))) is not None:
                if run.space is not prompt.space:
                    break
                at += run.agrees(prompt.chain, at)
        return min(at, most)

    async def load(self, prompt: Prompt, upto: int, held: list[Copy], at: int = 0) -> tuple[int, dict[str, int]]:
        """Brings blocks from `at` to `upto` up and holds them; answers how far it came, and tokens by tier."""
        tiers: dict[str, int] = {}
        used: list[Run] = []
        while at < upto:
            began = time.perf_counter()
            found = await self.worker(self._load_one, prompt, at, held)
            if found is None:
                break
            run, tier, agree = found
            agree = min(agree, upto - at)
            size = agree * prompt.space.block_bytes
            declared = load_ms(tier, size) * self._scale
            await self._spend(declared, began)
            if tier is not Tier.HBM:
                self.meters.loaded(tier.value, size, (time.perf_counter() - began) * 1000.0)
            tiers[tier.value] = tiers.get(tier.value, 0) + agree * prompt.space.block_tokens
            at += agree
            used.append(run)
        await self.worker(self._touch, prompt, at, used)
        return at, tiers

    def _load_one(self, prompt: Prompt, at: int, held: list[Copy]) -> tuple[Run, Tier, int] | None:
        pool, now = self.pool, time.time()
        with pool.lock:
            run = pool.index.get(prompt.key(at))
            if run is None or run.space is not prompt.space or prompt.space.fenced:
                return None
            agree, tier = run.agrees(prompt.chain, at), pool.use(run, now)
            if tier is not None:
                self.engine.hold(run, held)
            pool.teller.flush()
            return None if tier is None else (run, tier, agree)

    def _touch(self, prompt: Prompt, at: int, used: list[Run]) -> None:
        now, size = time.time(), prompt.space.block_tokens
        with self.pool.lock:
            saved = self._curve.ms(at * size)
            for run in used:
                touch(run, now, saved - self._curve.ms(run.depth * size))
            self.pool.admission.learn(prompt.space, prompt.chain, at, RUN_BLOCKS)

    async def compute(self, prompt: Prompt, start: int, held: list[Copy], progress: Progress, upto: int = -1) -> int:
        """Computes from block `start` to `upto` (-1 = the end, with what is behind the last full block).

        Answers tokens. `progress` is called after every run.

        Raises:
            Refused: stale or lease-over: the keys are not this node's any more.
        """
        began, at = time.perf_counter(), start
        size, end = prompt.space.block_tokens, prompt.blocks if upto < 0 else upto
        whole = prompt.request.input_length if upto < 0 else end * size
        while at < end:
            stop = min((at // RUN_BLOCKS + 1) * RUN_BLOCKS, end)
            before = time.perf_counter()
            await self.worker(self._produce, prompt, at, stop, held)
            await self._spend((self._curve.ms(stop * size) - self._curve.ms(at * size)) * self._scale, before)
            at = stop
            progress(at)
        rest = self._curve.ms(whole) - self._curve.ms(at * size)
        if rest > 0:
            await self._spend(rest * self._scale, time.perf_counter())
        tokens = whole - start * size
        if tokens:
            self.prefills += 1
            self.computed_blocks += end - start
            self.meters.prefill(start * size, tokens, (time.perf_counter() - began) * 1000.0)
        return tokens

    def _produce(self, prompt: Prompt, at: int, stop: int, held: list[Copy]) -> None:
        pool = self.pool
        with pool.lock:
            if prompt.space.fenced or self.engine.ring.fenced(prompt.lease.ns, prompt.lease.gen):
                raise Refused("lease-over")
            part = prompt.chain[at * KEY_BYTES : stop * KEY_BYTES]
            self.engine.produce(
                prompt.space, prompt.lease, part, held, time.time(), parent=prompt.before(at), depth=at
            )  # fmt: skip
            pool.teller.flush()

    async def _spend(self, ms: float, began: float) -> None:
        """Waits until so much time has passed since `began`: what the work took is part of it."""
        left = ms / 1000.0 - (time.perf_counter() - began)
        if left > 0:
            await asyncio.sleep(left)

    async def release(self, held: list[Copy]) -> None:
        """Nothing of it is held any more."""

        def free() -> None:
            with self.pool.lock:
                self.engine.release(held)

        await self.worker(free)

    async def begin(self, prompt: Prompt, held: list[Copy], hits: int, tiers: dict[str, int]) -> float:
        """The decode began, and what is held is let go when it ends; answers the milliseconds that hits have saved.

        Raises:
            Refused: lease-over: the generation is not this node's any more.
        """
        return float(await self.worker(self._begin, prompt, held, hits, tiers))

    def _begin(self, prompt: Prompt, held: list[Copy], hits: int, tiers: dict[str, int]) -> float:
        engine, request = self.engine, prompt.request
        with self.pool.lock:
            if prompt.space.fenced or engine.ring.fenced(prompt.lease.ns, prompt.lease.gen):
                raise Refused("lease-over")
            told = {name: tokens for name, tokens in tiers.items() if name in TIERS}
            saved = engine.account(request, prompt.space, prompt.chain, hits, told).saved_ms
            engine.decoding.begin(request, prompt.lease, prompt.space, prompt.chain, held, time.time())
            self.pool.teller.flush()
        return saved

    def flush(self, ns: bytes, session: str) -> bool:
        """What requests of the session hold back of their output is committed; whether there was anything."""
        with self.pool.lock:
            done = self.engine.decoding.finish(ns, session, time.time())
            self.pool.teller.flush()
            return done
