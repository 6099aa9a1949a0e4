"""Processes that write to the trail as the console's do: each with its own interpreter and its own connection.

The web runs as processes, so the clients of both sides, audited or not, are processes too: threads of one process would
share one interpreter lock, and the figure would be that lock's.
"""

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import psutil

ROWS = 1000
Committed = list[tuple[int, float]]
"""Id of an event, and when its commit had returned (`time.perf_counter`, one clock for all processes)."""


class Clients:
    """So many of them, started once; their environment says where the database is."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        gate = context.Barrier(count)
        self.pipes: list[Any] = []
        self.processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(number, count, gate, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self._ask("ready")

    def rate(self, seconds: float, *, audited: bool) -> int:
        """Transactions of all of them in that time, one after the other as fast as each can."""
        return sum(self._ask("rate", seconds, audited))

    def paced(self, seconds: float, per_second: float) -> list[Committed]:
        """Audited transactions of that many a second over all of them, and what each committed."""
        return self._ask("paced", seconds, per_second)

    def cpu(self) -> float:
        """CPU seconds of all of them so far."""
        spent = [psutil.Process(process.pid).cpu_times() for process in self.processes]
        return sum(one.user + one.system for one in spent)

    def close(self) -> None:
        """None of them runs."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            process.kill()

    def _ask(self, *order: Any) -> list[Any]:
        for pipe in self.pipes:
            pipe.send(order)
        return [pipe.recv() for pipe in self.pipes]


def _serve(number: int, count: int, gate: Barrier, pipe: Connection) -> None:
    import django
    from django.db import connections

    django.setup()
    transaction(1 + number, True)
    try:
        while True:
            word, *values = pipe.recv()
            rng = random.Random(number)
            gate.wait()
            if word == "rate":
                pipe.send(_rate(rng, *values))
            elif word == "paced":
                pipe.send(_paced(rng, number, count, *values))
            else:
                pipe.send(word)
    except EOFError:
        connections.close_all()


def _rate(rng: random.Random, seconds: float, audited: bool) -> int:
    done, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        transaction(rng.randrange(1, ROWS + 1), audited)
        done += 1
    return done


def _paced(rng: random.Random, number: int, count: int, seconds: float, per_second: float) -> Committed:
    committed: Committed = []
    step = count / per_second
    begin = time.perf_counter() + step * number / count
    for turn in range(int(seconds / step)):
        time.sleep(max(0.0, begin + turn * step - time.perf_counter()))
        id_ = transaction(rng.randrange(1, ROWS + 1), True)
        committed.append((id_, time.perf_counter()))
    return committed


def transaction(row: int, audited: bool) -> int:
    """One change of a row, with its event or without; the event's id."""
    from django.db import connection, transaction

    from audit.services import record

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("UPDATE bench_row SET n = n + 1 WHERE id = %s", (row,))
        if not audited:
            return 0
        made = record(
            event_type="log.note", outcome="success", actor=None, tenant_id=None, object_kind="bench",
            object_id=str(row), body={"note": "what a change says of itself, about as much as most of them"},
        )  # fmt: skip
    return int(made.id)
