"""What waits for the writer, and in which order it is folded."""

import random
import uuid

import msgspec
import pytest

from catalog.ingest.jobs import Broken, BrokenBook, Job, hint, ordered
from tests.catalog.ingest.rig import Sim

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def job(node, message) -> Job:
    return Job(node, message, 0, lambda outcome: None)


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_a_stream_rise_and_nothing_else_moves(seed):
    rng = random.Random(seed)
    sims = [Sim(A), Sim(A, dp_rank=1), Sim(B)]
    jobs = []
    for _ in range(30):
        sim = rng.choice(sims)
        if rng.random() < 0.1:
            sim.restart()
        jobs.append(job(sim.node, rng.choice((sim.frame, sim.beat))()))
    shuffled = rng.sample(jobs, len(jobs))
    out = ordered(shuffled)
    assert sorted(map(id, out)) == sorted(map(id, jobs))
    last: dict = {}
    for before, after in zip(shuffled, out, strict=True):
        m = after.message
        if not hasattr(m, "boot"):
            assert before is after
            continue
        life = (m.node, m.dp_rank, m.boot, m.stream)
        assert life == (before.message.node, before.message.dp_rank, before.message.boot, before.message.stream)
        assert m.seq > last.get(life, -1)
        last[life] = m.seq


def test_a_flood_of_the_same_is_one_entry():
    book = BrokenBook()
    for i in range(1000):
        book.add(Broken(A, "s", 0, "wrong-type", str(i)))
    (entry,) = book.take()
    assert (entry.count, entry.detail) == (1000, "999")
    assert book.take() == []


def test_a_flood_of_different_ones_is_bounded():
    book = BrokenBook()
    for i in range(12_000):
        book.add(Broken(A, f"s{i}", 0, "malformed-frame"))
    assert len(book.entries) <= 10_001
    assert sum(e.count for e in book.take()) == 12_000


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (msgspec.msgpack.encode({"source": "s", "dp_rank": 3, "v": "x"}), ("s", 3)),
        (msgspec.msgpack.encode({"source": "s", "dp_rank": -1}), ("", 0)),
        (msgspec.msgpack.encode({"source": 5}), ("", 0)),
        (msgspec.msgpack.encode({"source": "s" * 201}), ("", 0)),
        (msgspec.msgpack.encode([1]), ("", 0)),
        (b"\xc1", ("", 0)),
        (b"\x91" * 5000, ("", 0)),
        (b"", ("", 0)),
    ],
)
def test_a_hint_is_taken_only_where_it_is_legible(body, found):
    assert hint(body) == found
