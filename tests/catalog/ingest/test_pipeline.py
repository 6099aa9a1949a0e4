"""The queue in front of the writer: answers after commits, bounds, failures of the fold, and losing the shard."""

import asyncio
import contextlib
import gc

import psycopg
import pytest

from catalog.ingest import pipeline as module
from catalog.ingest.codes import Unavailable
from catalog.ingest.jobs import Job
from catalog.ingest.pipeline import Pipeline, collect
from catalog.store import Store
from kvconsole.infra.sql import dsn
from kvcore.events import Drop, Refused
from kvcore.messages import Answer
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node


@contextlib.asynccontextmanager
async def running(**options):
    pipeline = Pipeline(dsn("ingest"), 0, defer=0.0, **{"gather": (0.0, 0.05), **options})
    task = asyncio.create_task(pipeline.run())
    try:
        await until(lambda: pipeline.writer is not None)
        yield pipeline
    finally:
        await pipeline.stop()
        await task


async def until(truth, seconds: float = 30.0):
    async with asyncio.timeout(seconds):
        while not truth():
            await asyncio.sleep(0.01)


async def send(pipeline: Pipeline, sim: Sim, message):
    future = asyncio.get_running_loop().create_future()
    pipeline.submit(Job(sim.node, message, 100, lambda o: future.done() or future.set_result(o)))
    return await asyncio.wait_for(future, 30)


@pytest.fixture
def sims(planted):
    ns = plant_namespace(planted, "a")
    made = [Sim(plant_node(planted, f"n{i}")) for i in range(3)]
    for sim in made:
        sim.ns = ns
    return made


def held(sim: Sim) -> int:
    with psycopg.connect(dsn("ingest"), autocommit=True) as cx:
        query = (
            "SELECT coalesce(sum(h.blocks), 0)::int FROM catalog_holding h JOIN catalog_owner o ON o.id = h.owner"
            " JOIN catalog_source s ON s.id = o.source_id WHERE NOT o.retired AND s.node_id = %s"
        )
        return cx.execute(query, (sim.node,)).fetchone()[0]


def test_every_answer_comes_after_its_commit(sims):
    async def main():
        async with running() as pipeline:

            async def one(sim):
                for i in range(12):
                    answer = await send(pipeline, sim, sim.frame(add(sim.ns, 10 * i + 1, 10 * i + 2)))
                    assert isinstance(answer, Answer)
                    assert answer.committed_seq >= sim.seq
                    assert await asyncio.to_thread(held, sim) == len(sim.held)

            await asyncio.gather(*map(one, sims))
            status, body = pipeline.readiness()
            assert (status, body["writer"]) == (200, True)

    asyncio.run(main())


def test_what_does_not_fit_is_told_to_come_again(sims, monkeypatch):
    monkeypatch.setattr(module, "QUEUE_JOBS", 5)

    async def main():
        pipeline = Pipeline(dsn("ingest"), 0)
        with pytest.raises(Unavailable, match="shard-unavailable"):
            pipeline.submit(Job(sims[0].node, sims[0].frame(), 1, print))
        async with running(gather=(5.0, 5.0)) as pipeline:
            outcomes: list = []
            for _ in range(5):
                pipeline.submit(Job(sims[0].node, sims[0].frame(), 1, outcomes.append))
            with pytest.raises(Unavailable, match="queue-full"):
                pipeline.submit(Job(sims[0].node, sims[0].frame(), 1, outcomes.append))
            assert pipeline.readiness()[1]["queued_bytes"] == 5

    asyncio.run(main())


def test_a_fold_that_fails_costs_its_cause_and_nothing_else(sims, monkeypatch):
    """A fault is planted in the fold of one frame: it is set aside, the others are folded, the process goes on."""
    from catalog.ingest.folding import Folder

    whole = Folder._items

    def planted_fault(self, batch, source, job, rejected):
        if source.name == "bad" and job.message.seq == 1 and not any(isinstance(i, Refused) for i in job.items):
            raise ZeroDivisionError
        whole(self, batch, source, job, rejected)

    monkeypatch.setattr(Folder, "_items", planted_fault)
    good, bad = sims[0], Sim(sims[1].node, "bad")

    async def until_taken(pipeline, sim, frame):
        while True:
            with contextlib.suppress(Unavailable):
                outcome = await send(pipeline, sim, frame)
                if isinstance(outcome, Answer):
                    return outcome
            await asyncio.sleep(0.02)

    async def main():
        async with running() as pipeline:
            await until_taken(pipeline, bad, bad.frame(add(good.ns, 1)))
            second, others = bad.frame(add(good.ns, 2)), [good.frame(add(good.ns, i)) for i in range(3, 8)]
            answers = await asyncio.gather(
                until_taken(pipeline, bad, second), *(until_taken(pipeline, good, f) for f in others[:1])
            )
            assert [(r.index, r.code) for r in answers[0].rejected] == [(0, "unfoldable")]
            for frame in others[1:]:
                assert (await until_taken(pipeline, good, frame)).rejected == []
            third = await until_taken(pipeline, bad, bad.frame(add(good.ns, 9)))
            assert (third.state, third.rejected) == ("next", [])
            assert await asyncio.to_thread(held, good) == 5
            assert await asyncio.to_thread(held, bad) == 2

    asyncio.run(main())


def test_who_loses_the_shard_drops_everything_and_waits(sims, planted):
    sim = sims[0]

    async def main():
        async with running() as pipeline:
            await send(pipeline, sim, sim.frame(add(sim.ns, 1)))
            first = pipeline.writer
            thief = await asyncio.to_thread(Store, dsn("ingest"))  # fences, without the lock
            frame = sim.frame(add(sim.ns, 2))
            outcome = None
            with contextlib.suppress(Unavailable):
                outcome = await send(pipeline, sim, frame)
            assert not isinstance(outcome, Answer)
            await until(lambda: pipeline.writer not in (None, first))
            thief.close()
            assert (await send(pipeline, sim, frame)).state == "next"
            assert await asyncio.to_thread(held, sim) == 2

    asyncio.run(main())


def test_cycles_are_freed_and_what_stays_is_looked_at_twice_at_most():
    """The pause is that of what was made meanwhile, however much is held; cycles of requests do not pile up."""

    class Cycle:
        def __init__(self):
            self.me = self

    def cycles():
        return sum(type(x) is Cycle for x in gc.get_objects())

    gc.disable()
    try:
        collect()
        collect()
        held = [[n] for n in range(1000)]
        for _ in range(100):
            Cycle()
        assert cycles() == 100
        collect()
        assert cycles() == 0
        collect()
        young = {id(x) for generation in (0, 1) for x in gc.get_objects(generation)}
        assert not any(id(x) in young for x in held)
    finally:
        gc.enable()


def test_memory_stays_flat_over_minutes_of_steady_frames(rig, sim, ns):
    """Two minutes of frames, as the clock of the writer has it: nothing is kept of a frame that leaves no block."""
    gc.collect()
    sizes = []
    for _ in range(4):
        for n in range(60):
            rig.send(
                sim.node, sim.frame(add(ns, n), Drop(ns=ns, gen=1, keys=keys(n), tier="hbm", reason="ttl")), step=0.5
            )
            sim.frames.clear()
            while rig.writer.store.idle(rig.now):
                pass
        gc.collect()
        sizes.append(len(gc.get_objects()))
    assert sizes[3] - sizes[1] < 400, sizes
