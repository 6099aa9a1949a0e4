"""Decides when what waits is folded and committed, and that every answer comes after its commit.

Frames of all sources are gathered for 50 to 200 ms, folded in one thread, and committed in another: while batch n is
written, batch n + 1 is folded. Memory is bounded; who does not fit is told to come again. When another writer took
the shard, everything held here is dropped and this process waits for its turn. Called by `hot`.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from catalog.ingest import meters
from catalog.ingest.codes import Unavailable
from catalog.ingest.folding import Batch
from catalog.ingest.jobs import Broken, BrokenBook, Job
from catalog.ingest.keymap import Touched
from catalog.ingest.poison import Suspects
from catalog.ingest.writer import Lock, Writer, open_writer
from catalog.operation_orders import OPERATIONS
from catalog.quotas import QUOTAS
from catalog.store import Deposed, Prepared
from kvconsole.infra import nudge

log = logging.getLogger("kvc.ingest")

GATHER_LEAST_S, GATHER_MOST_S = 0.05, 0.2
TICK_S = 0.25
QUEUE_BYTES, QUEUE_JOBS = 64 * 2**20, 4096
BATCH_BYTES, BATCH_JOBS = 8 * 2**20, 1024
IDLE_EVERY_S = 0.25
COLLECT_EVERY_S = 30.0
WAIT_S = 0.5
WAKE_TOPICS = (nudge.FENCES, nudge.NODES, QUOTAS, OPERATIONS, "namespaces")


def collect() -> None:
    """Cycles among what was made since the last two calls are gone: requests and their exceptions.

    What lived through that is not looked at again: it is the catalog, which makes no cycles, and a pause of its size is
    what must not be. So a call costs what happened meanwhile, however full the catalog is, and load cannot put it off.
    """
    started = time.perf_counter()
    meters.COLLECTED.inc(gc.collect(1))
    meters.COLLECT_SECONDS.observe(time.perf_counter() - started)


class Replaced(Exception):
    """The shard's lock belongs to another process now."""


class Pipeline:
    """The queue in front of one shard's writer, and the life of that writer. All methods belong to the event loop."""

    def __init__(
        self,
        dsn: str,
        shard: int,
        *,
        defer: float = 2.0,
        gather: tuple[float, float] = (GATHER_LEAST_S, GATHER_MOST_S),
        url: str = "",
    ) -> None:
        self.dsn, self.shard, self.defer, self.gather, self.url = dsn, shard, defer, gather, url
        self.queue: deque[tuple[float, Job]] = deque()
        self.queued_bytes = 0
        self.broken = BrokenBook()
        self.kick = asyncio.Event()
        self.writer: Writer | None = None
        self.lock = Lock(dsn, shard)
        self.suspects = Suspects()
        self.stopping = False
        self.last_commit_at = 0.0
        self.ledger_seq = 0
        self._fold_pool = ThreadPoolExecutor(1, "fold")
        self._write_pool = ThreadPoolExecutor(1, "write")
        self._side_pool = ThreadPoolExecutor(1, "side")
        self._wake_due = False

    # ------------------------------------------------------------------ queue
    def submit(self, job: Job) -> None:
        """The job waits for its batch.

        Raises:
            Unavailable: this process is not the writer, or more waits than it may hold; the job was not taken.
        """
        if self.writer is None or self.stopping:
            raise Unavailable("shard-unavailable")
        if self.queued_bytes + job.size > QUEUE_BYTES or len(self.queue) >= QUEUE_JOBS:
            raise Unavailable("queue-full")
        self.queue.append((time.monotonic(), job))
        self.queued_bytes += job.size
        meters.QUEUED_BYTES.set(self.queued_bytes)
        self.kick.set()

    def note(self, broken: Broken) -> None:
        """A request that could not be read is counted with the next batch."""
        self.broken.add(broken)

    def _take(self) -> list[Job]:
        jobs: list[Job] = []
        size = 0
        most = 1 if self.suspects.careful else BATCH_JOBS
        while self.queue and len(jobs) < most and size < BATCH_BYTES:
            _, job = self.queue.popleft()
            self.queued_bytes -= job.size
            if not job.given_up:
                size += job.size
                jobs.append(job)
        if not self.queue:
            self.kick.clear()
        meters.QUEUED_BYTES.set(self.queued_bytes)
        return jobs

    def _refuse_waiting(self) -> None:
        while self.queue:
            _, job = self.queue.popleft()
            job.settle(Unavailable("shard-unavailable"))
        self.queued_bytes = 0
        self.kick.clear()

    # ------------------------------------------------------------------- life
    async def run(self) -> None:
        """Waits for the shard, writes it until deposed or stopped, and begins again."""
        wakes = asyncio.create_task(self._wakes())
        try:
            while not self.stopping:
                if not await self._lead():
                    await asyncio.sleep(WAIT_S)
        finally:
            wakes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await wakes
            await self._on(self._side_pool, self.lock.release)
            for pool in (self._fold_pool, self._write_pool, self._side_pool):
                pool.submit(connections.close_all)  # a connection belongs to the thread that opened it
                pool.shutdown(wait=True)

    async def _lead(self) -> bool:
        """One term as the writer; False if there was none."""
        try:
            if not await self._on(self._side_pool, self.lock.acquire):
                return False
            self.writer = await self._on(self._fold_pool, self._open)
        except Deposed as e:
            log.warning("the shard cannot be opened: %s", e)
            return False
        except (psycopg.Error, DatabaseError):
            log.warning("the shard cannot be opened", exc_info=True)
            return False
        meters.WRITING.set(1)
        log.info("writing shard %s as writer %s", self.shard, self.writer.store.writer)
        keeper = asyncio.create_task(self._keep_lock())
        try:
            await self._batches(self.writer, keeper)
        except (Deposed, Replaced) as e:
            log.warning("no longer the writer: %s", type(e).__name__)
        except (psycopg.Error, DatabaseError):
            log.exception("the shard's database failed; its memory is loaded anew")
        except Exception:
            meters.CRASHES.inc()
            log.exception("a batch could not be folded; the memory is loaded anew")
        finally:
            meters.WRITING.set(0)
            writer, self.writer = self.writer, None
            keeper.cancel()
            self._refuse_waiting()
            with contextlib.suppress(psycopg.Error):
                await self._on(self._write_pool, writer.close)
        return True

    def _open(self) -> Writer:
        close_old_connections()
        writer = open_writer(self.dsn, self.shard, defer=self.defer, now=time.time(), url=self.url)
        gc.collect()
        gc.freeze()  # what was loaded makes no cycles; looking through it would cost more than the fold
        return writer

    async def _keep_lock(self) -> None:
        """Returns when another process has the lock; a database that is away is waited for."""
        while True:
            await asyncio.sleep(1.0)
            try:
                if not await self._on(self._side_pool, self.lock.acquire):
                    return
            except psycopg.OperationalError:
                log.warning("whether the shard's lock is held cannot be said", exc_info=True)

    # ---------------------------------------------------------------- batches
    async def _batches(self, writer: Writer, keeper: "asyncio.Task[None]") -> None:
        write: asyncio.Task[None] | None = None
        idle_at = collect_at = time.monotonic()
        jobs: list[Job] = []
        try:
            while not self.stopping:
                if keeper.done():
                    raise Replaced
                if write is not None and write.done():
                    await write
                    write = None
                jobs = await self._gather(write)
                batch = await self._fold(writer, jobs)
                if write is not None:
                    await write
                    write = None
                now = time.monotonic()
                house: Prepared | None = None
                if now - idle_at >= IDLE_EVERY_S:  # nothing is being written now: the store's connection is free
                    house = await self._on(self._fold_pool, writer.store.prepare_idle)
                    idle_at = now if house is None or not house.more else now - IDLE_EVERY_S
                if now - collect_at >= COLLECT_EVERY_S:
                    collect()
                    collect_at = now
                if batch is not None or house is not None:
                    write = asyncio.create_task(self._write(writer, batch, house))
                jobs = []
            if write is not None:
                await write
                write = None
            await self._on(self._write_pool, writer.store.commit, Touched(), (), None, True)
        finally:
            if write is not None:
                await asyncio.gather(write, return_exceptions=True)
            for job in jobs:
                job.settle(Unavailable("shard-unavailable"))

    async def _gather(self, write: "asyncio.Task[None] | None") -> list[Job]:
        """What has come: after 50 ms if nothing is being written, else when that is done, at the latest after 200."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.kick.wait(), TICK_S)
        if not self.queue:
            self.kick.clear()
            return []
        least, most = self.gather
        first = self.queue[0][0]
        while (left := first + least - time.monotonic()) > 0 and not self._full():
            await asyncio.sleep(min(left, 0.01))
        left = first + most - time.monotonic()
        if write is not None and not write.done() and left > 0:
            await asyncio.wait({write}, timeout=left)
        return self._take()

    def _full(self) -> bool:
        return self.queued_bytes >= BATCH_BYTES or len(self.queue) >= BATCH_JOBS

    async def _fold(self, writer: Writer, jobs: list[Job]) -> Batch | None:
        now = time.time()
        if not jobs and not self.broken.entries and not writer.folder.due(now):
            return None
        jobs = self.suspects.disarm(jobs)
        broken = self.broken.take()
        started = time.perf_counter()
        try:
            batch: Batch = await self._on(self._fold_pool, writer.folder.fold, jobs, broken, now)
        except Unavailable as e:
            for job in jobs:
                job.settle(e)
            for entry in broken:
                self.broken.add(entry)
            await asyncio.sleep(0.2)
            return None
        except Exception:
            self.suspects.crashed(jobs)
            raise
        self.suspects.passed(jobs)
        meters.FOLD_SECONDS.observe(time.perf_counter() - started)
        return batch

    async def _write(self, writer: Writer, batch: Batch | None, house: Prepared | None) -> None:
        """The batch is durable, then answered, then others are woken; the store's housework follows."""
        outcomes = batch.outcomes if batch is not None else []
        try:
            if batch is not None and batch.prepared is not None:
                started = time.perf_counter()
                self.ledger_seq = await self._on(self._write_pool, writer.store.write, batch.prepared)
                meters.COMMIT_SECONDS.observe(time.perf_counter() - started)
                meters.COMMITS.inc()
        except BaseException:
            for job, _ in outcomes:
                job.settle(Unavailable("shard-unavailable"))
            raise
        self.last_commit_at = time.monotonic()
        for job, outcome in outcomes:
            job.settle(outcome)
        if batch is not None and batch.prepared is not None:
            self._wake(batch.states_changed)
        if house is not None:
            self.ledger_seq = await self._on(self._write_pool, writer.store.write, house)
            self._wake(False)
        meters.LEDGER_SEQ.set(self.ledger_seq)

    def _wake(self, states: bool) -> None:
        if not self._wake_due:
            self._wake_due = True
            self._side_pool.submit(self._wake_others)
        if states:
            self._side_pool.submit(nudge.wake, nudge.NODES)

    def _wake_others(self) -> None:
        self._wake_due = False
        nudge.wake(nudge.LEDGER, self.ledger_seq)

    async def _wakes(self) -> None:
        """Fences, namespaces and nodes are read again as soon as somebody changed them."""
        async for wake in nudge.subscribe(WAKE_TOPICS):
            if wake is not None and wake.topic == OPERATIONS and self.writer is not None:
                self.writer.folder.purges.dirty = True
                self.kick.set()
            elif wake is not None and self.writer is not None:
                self.writer.registry.dirty = True
                self.writer.nodes.dirty |= wake.topic in (nudge.NODES, QUOTAS)
                if wake.topic == QUOTAS:
                    self.writer.folder.policies.dirty = self.writer.folder.dealer.dirty = True
                self.kick.set()

    async def _on(self, pool: ThreadPoolExecutor, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, call, *args)

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """(HTTP status, JSON): 200 while this process writes the shard."""
        writing = self.writer is not None
        body = {
            "status": "ok" if writing else "waiting",
            "writer": writing,
            "shard": self.shard,
            "ledger_seq": self.ledger_seq,
            "queued_bytes": self.queued_bytes,
            "last_commit_age_ms": int((time.monotonic() - self.last_commit_at) * 1000) if self.last_commit_at else None,
        }
        return (200 if writing else 503), body

    async def stop(self) -> None:
        """No more is taken; what is being written is finished by `run`."""
        self.stopping = True
        self.kick.set()
