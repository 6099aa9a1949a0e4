"""The web process's own look: what is due is taken once, and no more at a time than it has threads for."""

import uuid

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
