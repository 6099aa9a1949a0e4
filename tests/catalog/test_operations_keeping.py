"""The web process's own look: what is due is taken once, and no more at a time than it has threads for."""

import threading
import uuid

import pytest
from django.db import OperationalError, connections

from catalog.operations import keeping


class Pool:
    """Keeps what it was given, as a pool whose threads are all at work."""

    def __init__(self):
        self.given = []

    def submit(self, call, *args):
        self.given.append(args)


def test_an_operation_is_taken_once_and_no_more_than_there_are_threads(monkeypatch):
    monkeypatch.setattr(keeping, "_running", set())
    pool, due = Pool(), [uuid.uuid4() for _ in range(4)]
    keeping._look(pool, due, "h")
    keeping._look(pool, due, "h")
    assert [operation for operation, _ in pool.given] == due[: keeping.THREADS]


@pytest.mark.django_db(transaction=True)
def test_a_sweep_that_fails_keeps_no_other_from_being_made_and_is_told(caplog):
    made = []

    def broken(*, now):
        raise OperationalError("canceling statement due to statement timeout")

    def wrong(*, now):
        raise LookupError("nobody")

    keeping._sweep((broken, wrong, lambda *, now: made.append(now)))
    assert len(made) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "broken cannot be made now", "wrong failed",
    ]  # fmt: skip
    assert all(record.exc_info for record in caplog.records), "by it the log leaves out what an absence explains"


@pytest.mark.django_db(transaction=True)
def test_operations_are_looked_at_though_a_sweep_does_not_end(monkeypatch):
    looked, sweeping, stop = threading.Event(), threading.Event(), threading.Event()

    def due(**_):
        looked.set()
        if stop.is_set():
            connections.close_all()
        return []

    def endless(*, now):
        sweeping.set()
        stop.wait(20)
        connections.close_all()

    monkeypatch.setattr(keeping, "SWEEPS", (endless,))
    monkeypatch.setattr(keeping, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(keeping, "operations_due", due)
    threads = keeping.keep_reconciling(stop)
    try:
        assert sweeping.wait(5)
        looked.clear()
        assert looked.wait(5)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
