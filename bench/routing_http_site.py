"""A console whose catalog holds what 64 workers would have said, with its real router, for the bench over HTTP.

A system prompt of 256 blocks that all workers hold, repositories of 3,494 blocks with three to eight workers each, and
sessions that make a chain of 5,120 with one or two. The rows are as the writer leaves them; loads come twice a second.
"""

import contextlib
import json
import random
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import psycopg

from bench.store_sides import Cluster
from kvconsole import reaper
from kvconsole.embedded import Valkey
from kvcore.keys import chain_keys
from tests.conftest import Database
from tests.running import Console

WORKERS, BLOCK, CHAIN = 64, 16, 5_120
SYSTEM, REPOSITORY, SESSIONS, RUN = 256, 3_494, 4, 200
TAIL = CHAIN - SYSTEM - REPOSITORY
TIERS = {"dram": (25e6, 0.2, 9)}
MADE = """
import json
from tenants import selectors, services
from kvconsole.infra.access import system, tenant_context
from kvconsole.infra.keystore import keystore, namespace_name
from kvcore.keys import subkey
who = system("bench")
with tenant_context(who):
    tenant = services.tenant_create(slug="bench", name="Bench", erasure_scope="label", actor=who)
    ns = services.namespace_resolve(tenant=tenant, model="ref-64", actor=who)
    token = services.token_issue("gateway", roles=["gateway"], holder="bench", actor=who)[1]
secret = keystore().secret(namespace_name(bytes(ns.digest), ns.generation))
print(json.dumps(dict(tenant=str(tenant.id), digest=bytes(ns.digest).hex(), gen=ns.generation, token=token,
                      blk=subkey(secret, "blk").hex())))
"""
NODE = """
INSERT INTO catalog_node (id, name, region, zone, rack, role, agent_url, state, state_since, wanted, public_key,
    agent_version, engine, profile, created_at, enrolled_at, last_heard_at)
VALUES (%s, %s, 'r', 'z', 'k', 'mixed', %s, 'ready', now(), 'ready', %s, '', '{}', 'ref-64', now(), now(), now())"""
SOURCE = """
INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, state, since)
VALUES (%s, 0, %s, 'engine', 0, 'b', 's', 0, 'exact', now())"""
SEGMENTS = (
    "COPY catalog_segment (id, head, up, family, keyspace, up_off, tenant_id, parent, keys) FROM STDIN (FORMAT BINARY)"
)
PLACES = "COPY catalog_placement (seg, born, owner, keyspace, tenant_id, n) FROM STDIN"


@dataclass
class Part:
    """Blocks that lie one behind the other, from the `first` of all on; `whole` counts from the root."""

    up: int | None
    first: int
    tokens: npt.NDArray[np.uint32]
    owners: list[int]
    whole: int

    @property
    def blocks(self) -> int:
        """How many."""
        return len(self.tokens) // BLOCK


def tree(blocks: int) -> list[Part]:
    """At least so many blocks."""
    rng, made, parts = np.random.default_rng(11), 0, list[Part]()

    def part(up: int | None, count: int, owners: list[int]) -> int:
        nonlocal made
        tokens = rng.integers(1, 30_000, count * BLOCK).astype("<u4")
        parts.append(Part(up, made, tokens, owners, count + (0 if up is None else parts[up].whole)))
        made += count
        return len(parts) - 1

    root = part(None, SYSTEM, list(range(WORKERS)))
    while made < blocks:
        near = [int(w) for w in rng.choice(WORKERS, int(rng.integers(3, 9)), replace=False)]
        repository = part(root, REPOSITORY, near)
        for _ in range(SESSIONS):
            part(repository, TAIL, near[: int(rng.integers(1, 3))])
    return parts


class Routed:
    """The console with its planted catalog. `token` is a gateway's."""

    def __init__(self, console: Console, database: Database, parts: list[Part]) -> None:
        self.console, self.parts = console, parts
        console.start("signer")
        console.seed()
        made = json.loads(console.manage("shell", "-v", "0", "-c", MADE).splitlines()[-1])
        self.token, self.digest, self.generation = made["token"], bytes.fromhex(made["digest"]), made["gen"]
        self.tenant, self._blk = uuid.UUID(made["tenant"]), bytes.fromhex(made["blk"])
        self.keys: list[list[bytes]] = []
        for part in parts:
            before = None if part.up is None else self.keys[part.up][-1]
            self.keys.append(chain_keys(part.tokens.tobytes(), block_tokens=BLOCK, blk=self._blk, parent=before))
        self.nodes = [uuid.uuid5(self.tenant, str(i)) for i in range(WORKERS)]
        self._dsn, self._end = database.dsn("superuser"), threading.Event()
        with psycopg.connect(self._dsn, autocommit=True) as cx:
            self._plant(cx)
            self._report(cx, 1)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        console.start("router")

    def chain(self, number: int) -> bytes:
        """32 bytes a key, from the root to the end of the part."""
        up = self.parts[number].up
        return (b"" if up is None else self.chain(up)) + b"".join(self.keys[number])

    def close(self) -> None:
        """No load is reported any more."""
        self._end.set()
        self._thread.join(30)

    # ------------------------------------------------------------------ rows
    def _plant(self, cx: "psycopg.Connection[Any]") -> None:
        cx.execute(
            "INSERT INTO catalog_keyspace VALUES (1, 0, %s, NULL, %s, %s, 0, %s, %s, true)",
            (self.tenant, self.digest, self.generation, BLOCK, BLOCK * 64),
        )
        for i, node in enumerate(self.nodes):
            cx.execute(NODE, (node, f"worker-{i:02}", f"http://127.0.0.1:{20_000 + i}", bytes([i]) * 32))
            cx.execute(SOURCE, (i + 1, node))
            cx.execute("INSERT INTO catalog_owner VALUES (%s, 0, %s, 'hbm', false, now())", (i + 1, i + 1))
        ids: list[list[int]] = []
        with cx.cursor().copy(SEGMENTS) as copy:
            copy.set_types(["int8", "int8", "int8", "int8", "int4", "int2", "uuid", "bytea", "bytea"])
            number = 0
            for part, keys in zip(self.parts, self.keys, strict=True):
                up = None if part.up is None else ids[part.up][-1]
                count = 0 if part.up is None else len(self.keys[part.up])
                before, mine = b"" if part.up is None else self.keys[part.up][-1][:16], list[int]()
                offset = (count - 1) % RUN
                for low in range(0, len(keys), RUN):
                    some = keys[low : low + RUN]
                    head = int.from_bytes(some[0][:8], "little", signed=True)
                    above = (None, None, None) if up is None else (up, offset, before)
                    packed = b"".join(k[:16] for k in some)
                    family = number if up is None else 0
                    copy.write_row((number, head, above[0], family, 1, above[1], self.tenant, above[2], packed))
                    up, offset, before = number, len(some) - 1, packed[-16:]
                    mine.append(number)
                    number += 1
                ids.append(mine)
        with cx.cursor().copy(PLACES) as copy:
            for part, mine in zip(self.parts, ids, strict=True):
                for i, segment in enumerate(mine):
                    for owner in part.owners:
                        count = min(RUN, part.blocks - i * RUN)
                        copy.write_row((segment, "2026-01-01", owner + 1, 1, self.tenant, count))
        cx.execute("ANALYZE catalog_segment, catalog_placement")

    def _report(self, cx: "psycopg.Connection[Any]", number: int) -> None:
        """Every worker has said how it is; edges between all of them are measured."""
        rng = random.Random(number)
        rates = random.Random(5)
        names = [f"worker-{i:02}" for i in range(WORKERS)]
        for i, name in enumerate(names):
            edges = {n: (rates.uniform(8e6, 40e6), rates.uniform(0.1, 2.0), 9) for n in names if n != name}
            body = {"number": number, "queue_ms": rng.uniform(0, 300), "decode_queue_ms": rng.uniform(0, 20),
                    "first_decode_ms": 9.0, "waiting": rng.randrange(4), "running": rng.randrange(8),
                    "curve": (1.0, rates.uniform(0.01, 0.03), 1e-7, 9), "tiers": TIERS, "edges": edges}  # fmt: skip
            cx.execute(
                "INSERT INTO catalog_workerload VALUES (%s, 0, now(), %s) ON CONFLICT (source) DO UPDATE SET"
                " at = excluded.at, body = excluded.body",
                (i + 1, msgspec.json.encode(body).decode()),
            )

    def _keep(self) -> None:
        number = 1
        with psycopg.connect(self._dsn, autocommit=True) as cx:
            while not self._end.wait(1.0):
                number += 1
                with cx.transaction():
                    self._report(cx, number)


@contextlib.contextmanager
def routed(blocks: int) -> Iterator[Routed]:
    """The console, and nothing of it afterwards."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            database = Database(cluster.postgres, name)
            console = Console(base / "site", database=database, broker=broker)
            try:
                made = Routed(console, database, tree(blocks))
                try:
                    yield made
                finally:
                    made.close()
            finally:
                console.stop()
    finally:
        broker.remove()
        cluster.close()
        reaper.close_shared()
        shutil.rmtree(base, ignore_errors=True)
