"""Two bad brokers over a real Valkey: one that loses and doubles messages, and one that somebody else writes.

What is sent goes into one of its databases and the worker reads another; `Between` carries messages over. Wake-ups are
published and belong to no database, so that both sides hear them.
"""

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from tests.running import Console

QUEUE = "kvc-celery:celery"
BUILT_IN = ("celery.map", "celery.starmap", "celery.chunks", "celery.group", "celery.chain", "celery.chord",
            "celery.accumulate", "celery.chord_unlock", "celery.backend_cleanup")  # fmt: skip
SENDER, READER = 0, 1
"""Databases of Valkey: where messages are sent, and where the worker reads."""


class Between:
    """Carries messages over while it is entered. `lossy`: of three it loses one and doubles one, the last one first."""

    def __init__(self, console: Console) -> None:
        self.console, self.lossy = console, False
        self.taken, self.lost, self.doubled = 0, 0, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Between":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)

    def start_worker(self) -> None:
        """The worker runs, behind this broker."""
        site = self.console.site
        url = f"{site.valkey_url.rpartition('/')[0]}/{READER}"
        self.console._spawn("worker", site.command("worker"), site.env("worker") | {"KVC_VALKEY_URL": url})

    def client(self, database: int) -> "redis.Redis[bytes]":
        """A connection to one side."""
        return redis.Redis.from_url(f"{self.console.site.valkey_url.rpartition('/')[0]}/{database}")

    def _run(self) -> None:
        held: list[bytes] = []
        with self.client(SENDER) as sent, self.client(READER) as read:
            while not self._end.is_set():
                try:
                    raw = sent.rpop(QUEUE)
                    if raw is None:
                        self._end.wait(0.01)
                    else:
                        held += [raw] * self._copies()
                    if held and (raw is None or len(held) >= 3):
                        read.lpush(QUEUE, *(held[::-1] if self.lossy else held))
                        held = []
                except redis.RedisError:  # it was killed
                    self._end.wait(0.1)

    def _copies(self) -> int:
        self.taken += 1
        copies = (1, 0, 2)[self.taken % 3] if self.lossy else 1
        self.lost, self.doubled = self.lost + (copies == 0), self.doubled + (copies == 2)
        return copies


# --- what somebody else writes ----------------------------------------------------------------


def message(task: str, args: Any, *, content: str = "application/json", body: bytes = b"", **headers: Any) -> bytes:
    """A message as Celery's own clients write it."""
    number = str(uuid.uuid4())
    raw = body or json.dumps([args, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]).encode()
    told = {"lang": "py", "task": task, "id": number, "root_id": number, "parent_id": None, "group": None, "retries": 0,
            "eta": None, "expires": None, "timelimit": [None, None], "argsrepr": "", "kwargsrepr": "",
            **headers}  # fmt: skip
    place = {"exchange": "", "routing_key": "celery"}
    return json.dumps(
        {
            "body": base64.b64encode(raw).decode(), "content-encoding": "utf-8", "content-type": content,
            "headers": told,
            "properties": {
                "correlation_id": number, "reply_to": number, "delivery_mode": 2, "delivery_info": place, "priority": 0,
                "body_encoding": "base64", "delivery_tag": number,
            },
        }
    ).encode()  # fmt: skip


def forged(ids: list[str], tasks: list[str], trap: Path) -> Iterator[bytes]:
    """Messages that nobody of ours sent: every task with every id, tasks in tasks, programs, and what is no message.

    Args:
        ids: of what exists.
        tasks: names of the console's tasks.
        trap: a file that a program in a message would make.
    """
    words = [*ids, "", "x", "../../etc", "'; DROP TABLE catalog_step; --", "9" * 5000]
    for task in tasks:
        yield message(task, [])
        yield from (message(task, [word]) for word in words)
        yield message(task, [{"id": ids[0]}, None, [1]])
    signature = {"task": "catalog.reconcile", "args": [ids[0]], "kwargs": {}, "options": {}, "subtask_type": None}
    for task in BUILT_IN:
        yield message(task, [signature, [[one] for one in ids]])
    program = b"cposix\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    yield message("catalog.reconcile", [], content="application/x-python-serialize", body=program)
    yield message("os.system", [f"touch {trap}"])
    yield message("builtins.eval", [f"open({str(trap)!r}, 'w')"])
    yield message("catalog.reconcile", [ids[0]], eta="not a time", expires="neither")
    yield message("catalog.reconcile", [ids[0]], retries=10**9, timelimit=[-1, -1])


def told_falsely(broker: "redis.Redis[bytes]") -> None:
    """Workers are told to end and to forget, and everybody is woken for what never was."""
    for method in ("shutdown", "pool_shrink", "cancel_consumer", "revoke"):
        body = base64.b64encode(json.dumps({"method": method, "arguments": {}, "destination": None}).encode()).decode()
        content = {"body": body, "content-encoding": "utf-8", "content-type": "application/json", "headers": {},
                   "properties": {"body_encoding": "base64", "delivery_info": {"exchange": "celery.pidbox",
                                  "routing_key": ""}, "delivery_tag": "x"}}  # fmt: skip
        for channel in ("/0.celery.pidbox", "kvc-celery:/0.celery.pidbox", f"kvc-celery:/{READER}.celery.pidbox"):
            broker.publish(channel, json.dumps(content))
    for topic in (b"fences", b"ledger", b"nodes", b"operations", b"\xff"):
        broker.publish("kvc:wake", b"\x92" + bytes([0xA0 + len(topic)]) + topic + b"\xcf" + b"\xff" * 8)
    broker.publish("kvc:wake", b"\x91" * 4000)
