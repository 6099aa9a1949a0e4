"""What a fence costs, and how long it takes to say which blocks a selector means that is finer than a namespace.

A PostgreSQL of the bench's own, set up as in production (fsync on), with sequencer and signer as processes. Blocks are
planted by the writer's store: two namespaces of 10^7 and 10^4 blocks for the fence, one of 10^6 for the selectors.
A fenced transaction (`tenants.services.namespaces_fence`: next generation with its key, entry of the fence log, event)
runs in turn with one that changes a namespace's row and records the same event. What else a deletion needs before it
is fenced, and how soon everybody has seen it, is measured in `bench.operations_fleet`.
"""

import contextlib
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.store_sides import NODES, TENANT, Cluster
from bench.tenancy_site import Figure, ms
from catalog.index.steps import Touched, Work
from catalog.store import Store
from kvconsole.embedded import Valkey
from tests.running import Console

RATIO, GROWTH, SELECT_SECONDS = 2.0, 1.2, 3.0
CHAIN, TURN, OWNERS = 2_000, 200, 8
"""Blocks of a conversation, of one of its turns; each turn is on two of so many owners."""


def run(quick: bool) -> Iterator[Figure]:
    """Fence against no fence, many blocks against few, selectors by prefix and age. `quick`: a tenth of the blocks."""
    with site() as made:
        yield from fences(made, 100_000 if quick else 10_000_000, 1_000 if quick else 10_000, 40 if quick else 200)
        yield from selectors(made, 100_000 if quick else 1_000_000, 2 if quick else 5)


def figure(name: str, value: float, unit: str, target: str, ok: bool, peer: Any = None) -> Figure:
    """A line of the bench's output, with how busy the machine was."""
    told = {**(peer or {}), "load": round(os.getloadavg()[0], 1)}
    return {"name": f"operations.{name}", "value": round(value, 3), "unit": unit, "target": target, "ok": ok,
            "peer": told}  # fmt: skip


@contextlib.contextmanager
def site() -> Iterator["Site"]:
    """A console whose log is sequenced and signed, and this process as one of its own."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            console = Console(base / "site", database=cluster.postgres.env(name), broker=broker)
            try:
                console.seed()
                console.start("signer", "sequencer")
                yield Site(cluster, name, console)
            finally:
                _disconnect()
                console.stop()
    finally:
        broker.remove()
        cluster.close()
        shutil.rmtree(base, ignore_errors=True)


def _disconnect() -> None:
    from django.db import connections

    connections.close_all()


class Site:
    """Namespaces full of blocks."""

    def __init__(self, cluster: Cluster, name: str, console: Console) -> None:
        self.cluster, self.name, self.console = cluster, name, console
        os.environ.update(console.env, KVC_DB_ROLE="operator")
        import django

        django.setup()

    def namespace(self, label: str) -> Any:
        """A namespace of this label."""
        from kvconsole.infra.access import system, tenant_context
        from tenants import selectors, services

        who = system("bench")
        with tenant_context(who):
            tenant = selectors.tenant_by_slug("bench") or services.tenant_create(
                slug="bench", name="Bench", erasure_scope="label", actor=who
            )
            return services.namespace_resolve(tenant=tenant, model="ref-64", label=label, actor=who)

    def fill(self, namespace: Any, blocks: int) -> list[bytes]:
        """So many blocks in conversations, as the writer stores them; the first key of each."""
        store, first = Store(self.cluster.dsn(self.name)), Touched()
        m, heads = store.memory, list[bytes]()
        owners = [m.source(uuid.uuid5(NODES, f"ops{i}"), "engine", 0, first, time.time()).id for i in range(OWNERS)]
        space = m.keyspace(bytes(namespace.digest), namespace.generation, 0, first, tenant_id=TENANT,
                           namespace_id=namespace.id, block_tokens=16, block_bytes=1024).id  # fmt: skip
        store.commit(first)
        for at in range(0, blocks, 20_000):
            work = []
            for _ in range(min(20_000, blocks - at) // min(CHAIN, blocks)):
                keys, parent = os.urandom(32 * min(CHAIN, blocks)), None
                heads.append(keys[:32])
                for turn in range(0, len(keys), 32 * TURN):
                    part = keys[turn : turn + 32 * TURN]
                    for owner in (len(heads), len(heads) + 3):
                        work.append(Work("add", owners[owner % OWNERS], "hbm", space, part, parent=parent))
                    parent = part[-32:]
            store.commit(m.apply(work))
        store.commit(Touched(), flush=True)
        store.close()
        self.cluster.admin(self.name, "VACUUM ANALYZE")
        return heads


# --- fences --------------------------------------------------------------------------------


def fences(made: Site, many: int, few: int, turns: int) -> Iterator[Figure]:
    """Durable transactions in turn: without a fence, with one over few blocks, with one over many."""
    spaces = {count: made.namespace(f"fence-{count}") for count in (few, many)}
    for count, namespace in spaces.items():
        made.fill(namespace, count)
    acts: dict[str, Callable[[], object]] = {
        "without": lambda: _unfenced(spaces[few]),
        "few": lambda: _fenced(spaces[few]),
        "many": lambda: _fenced(spaces[many]),
    }
    times: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(-5, turns):
        names = list(acts)
        for name in names[turn % 3 :] + names[: turn % 3]:
            begin = time.perf_counter()
            acts[name]()
            if turn >= 0:
                times[name].append(time.perf_counter() - begin)
    medians = {f"{name}_ms": ms(taken, 0.5) for name, taken in times.items()}
    told = {**medians, "turns": turns, "many": many, "few": few}
    ratio = medians["few_ms"] / medians["without_ms"]
    yield figure("fence_ratio", ratio, "of the same without", f"<= {RATIO:g}", ratio <= RATIO, told)
    growth = medians["many_ms"] / medians["few_ms"]
    yield figure("fence_growth", growth, "of few blocks", f"<= {GROWTH:g}", growth <= GROWTH, told)


def _fenced(namespace: Any) -> None:
    from kvconsole.infra.access import system, tenant_context
    from tenants.services import namespaces_fence

    who = system("bench")
    with tenant_context(who):
        done = namespaces_fence(namespaces=[namespace.id], reason="deletion", actor=who, now=datetime.now(UTC))
    assert len(done) == 1


def _unfenced(namespace: Any) -> None:
    """The same row is changed and the same event recorded; nobody is fenced."""
    from django.db import connections, transaction

    from audit.services import record
    from kvconsole.infra.access import plane, system, tenant_context

    who = system("bench")
    with tenant_context(who), transaction.atomic(using=plane()), connections[plane()].cursor() as cursor:
        cursor.execute("UPDATE tenants_namespace SET label = label WHERE id = %s", (namespace.id,))
        record(
            event_type="namespaces.fenced", outcome="success", actor=who, tenant_id=namespace.tenant_id,
            object_kind="tenant", object_id=str(namespace.tenant_id),
            body={"namespaces": 1, "fence_seq": 0, "reason": "deletion", "fences_hash": bytes(32).hex()},
        )  # fmt: skip


# --- selectors -------------------------------------------------------------------------------


def selectors(made: Site, blocks: int, times: int) -> Iterator[Figure]:
    """Which blocks are meant: every tenth conversation from its first block on, all that are old, old ones of those."""
    from catalog.operation_blocks import blocks_meant
    from kvcore.plans import Selector

    namespace = made.namespace("select")
    heads = made.fill(namespace, blocks)
    generations = [(bytes(namespace.digest), namespace.generation + 1)]
    some = tuple(key[:16].hex() for key in heads[::10])
    now = time.time() + 60
    parts = {
        "prefix": ([Selector(prefix=some)], len(some) * min(CHAIN, blocks)),
        "older_than": ([Selector(older_than=now)], blocks),
        "both": ([Selector(prefix=some), Selector(older_than=now)], len(some) * min(CHAIN, blocks)),
    }
    for name, (said, expected) in parts.items():
        took, cpu, server = [], [], []
        for _ in range(times):
            begin, mine, theirs = time.perf_counter(), time.process_time(), made.cluster.cpu()
            found = blocks_meant(generations, said, sample=100)
            took.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - mine)
            server.append(made.cluster.cpu() - theirs)
        meant = sum(len(one.keys) // 16 for one in found.meant)
        value = statistics.median(took) * 1e6 / blocks
        told = {"blocks": blocks, "meant": meant, "cpu_s": round(statistics.median(cpu), 3),
                "worst_s": round(max(took), 3), "postgres_cpu_s": round(statistics.median(server), 3)}  # fmt: skip
        yield figure(f"select_{name}", value, "s per 10^6 blocks", f"<= {SELECT_SECONDS:g}",
                     value <= SELECT_SECONDS and meant == expected, told)  # fmt: skip
