"""A writer on the test database, driven in-process, and sources that keep the reference fold beside it."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg

from catalog.ingest.codes import Unavailable
from catalog.ingest.jobs import Broken, Job, Outcome
from catalog.ingest.writer import Writer, open_writer
from kvconsole.infra.sql import dsn, uuid7
from kvcore.events import Add, Frame, Item, Refused
from kvcore.fold import Place, apply, fold, reset
from kvcore.keys import NamespaceSpec, digest_add, namespace_digest
from kvcore.messages import Answer, DigestLine, DigestReport, Heartbeat, InventoryPage, SourcePosition

ZERO = (0, 0, 0)
TOKENS, BYTES = 16, 1024
Line = tuple[bytes, int, int, str]


def superuser(postgres, name: str = "kvc_test") -> psycopg.Connection:
    """A connection on which triggers rest: what tests plant is nobody's act."""
    connection = psycopg.connect(postgres.superuser_dsn(name), autocommit=True)
    connection.execute("SET session_replication_role = replica")
    return connection


def plant_node(
    cx: psycopg.Connection, name: str, *, tiers: Iterable[str] = ("hbm", "dram"), engine: dict[str, Any] | None = None
) -> uuid.UUID:
    """An enrolled node."""
    node, now = uuid7(), datetime.now(UTC)
    cx.execute(
        "INSERT INTO catalog_node (id, name, region, zone, rack, role, agent_url, state, state_since, wanted,"
        " agent_version, engine, profile, created_at, enrolled_at) VALUES"
        " (%s, %s, 'r', '', '', 'mixed', '', 'ready', %s, 'ready', '', %s, '', %s, %s)",
        (node, name, now, json.dumps(engine or {}), now, now),
    )
    for tier in tiers:
        cx.execute(
            "INSERT INTO catalog_nodetier (node_id, tier, capacity_bytes, emulated, encrypted, high, low)"
            " VALUES (%s, %s, 1048576, false, false, 0.9, 0.8)",
            (node, tier),
        )
    return node


def plant_tenant(cx: psycopg.Connection, *, residency: str = "", isolation: str = "shared",
                 classes: Iterable[str] = (), scope: str = "label") -> uuid.UUID:  # fmt: skip
    """A tenant."""
    tenant = uuid7()
    slug = f"t-{tenant.hex[-12:]}"
    cx.execute(
        "INSERT INTO tenants_tenant (id, slug, lookalike, name, residency, isolation, classes, erasure_scope,"
        " retention, state, created_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '{}', 'active', %s)",
        (tenant, slug, slug, slug, residency, isolation, list(classes), scope, datetime.now(UTC)),
    )
    return tenant


def plant_namespace(cx: psycopg.Connection, label: str, *, tokens: int = TOKENS, digest: bytes | None = None,
                    groups: Iterable[dict[str, Any]] = (), tenant: uuid.UUID | None = None,
                    data_class: str = "") -> bytes:  # fmt: skip
    """A registered namespace, of a tenant of its own unless one is named; its digest. `groups` are its model's."""
    now, model = datetime.now(UTC), uuid7()
    tenant = tenant or plant_tenant(cx)
    spec = NamespaceSpec(model="m", weights_epoch=1, scope=str(tenant), label=label, data_class=data_class)
    digest = digest or namespace_digest(spec)
    cx.execute(
        "INSERT INTO tenants_model (id, tenant_id, name, config, kv_dtype, block_tokens, tensor_parallel,"
        " bytes_per_token, per_group, base, family, layout, lookalike, created_at)"
        " VALUES (%s, %s, %s, '{}', 'bf16', %s, 1, 64, %s, '', 'm', '{}', %s, %s)",
        (model, tenant, f"m-{model.hex}", tokens, json.dumps(list(groups)), f"m-{model.hex}", now),
    )
    cx.execute(
        "INSERT INTO tenants_namespace (id, tenant_id, digest, spec, model_tenant_id, model_id, model_epoch,"
        " data_class, label, subject, session, generation, min_gen, key_scheme, state, created_at) VALUES"
        " (%s, %s, %s, '{}', %s, %s, 1, %s, %s, '', '', 1, 1, 'content', 'active', %s)",
        (uuid7(), tenant, digest, tenant, model, data_class, label, now),
    )
    return digest


class Rig:
    """The writer, and the clock it sees."""

    def __init__(self, now: float = 1_790_000_000.0, *, defer: float = 0.0) -> None:
        self.now, self.defer = now, defer
        self.writer: Writer
        self.opened: list[Writer] = []
        self.open()

    def open(self) -> None:
        """A new writer takes the shard over."""
        self.writer = open_writer(dsn("ingest"), 0, defer=self.defer, now=self.now)
        self.folder = self.writer.folder
        self.opened.append(self.writer)

    def close(self) -> None:
        """Every writer that was opened is closed."""
        for writer in self.opened:
            writer.close()

    def batch(
        self, *messages: tuple[uuid.UUID, Any], broken: Iterable[Broken] = (), step: float = 0.01
    ) -> list[Outcome]:
        """All of it in one batch; the outcomes in the order of the messages."""
        self.now += step
        got: dict[int, Outcome] = {}
        jobs = []
        for i, (node, message) in enumerate(messages):
            jobs.append(Job(node, message, 0, lambda outcome, i=i: got.__setitem__(i, outcome)))
        done = self.folder.fold(jobs, list(broken), self.now)
        if done.prepared is not None:
            self.writer.store.write(done.prepared)
        for job, outcome in done.outcomes:
            job.settle(outcome)
        return [got[i] for i in range(len(messages))]

    def send(self, node: uuid.UUID, message: Any, *, step: float = 0.01) -> Answer:
        """One message in a batch of its own."""
        outcome = self.batch((node, message), step=step)[0]
        if isinstance(outcome, Refused | Unavailable):
            raise outcome
        return outcome

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes; the writer looks around."""
        self.batch(step=seconds)

    # ----------------------------------------------------------------- reads
    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn("ingest"), autocommit=True) as cx:
            return cx.execute(query, parameters).fetchall()

    def holdings(self, node: uuid.UUID, name: str = "ref", dp_rank: int = 0) -> dict[Line, tuple[int, int, int]]:
        """What the tables say a source holds, fences aside."""
        rows = self.rows(
            "SELECT k.digest, k.generation, k.cache_group, o.tier, h.blocks, h.lo, h.hi FROM catalog_holding h"
            " JOIN catalog_owner o ON o.id = h.owner JOIN catalog_keyspace k ON k.id = h.keyspace"
            " JOIN catalog_source s ON s.id = o.source_id"
            " WHERE NOT o.retired AND h.blocks > 0 AND s.node_id = %s AND s.name = %s AND s.dp_rank = %s",
            node, name, dp_rank,
        )  # fmt: skip
        return {(bytes(d), g, c, t): (b, lo % 2**64, hi % 2**64) for d, g, c, t, b, lo, hi in rows}

    def state(self, node: uuid.UUID, name: str = "ref", dp_rank: int = 0) -> tuple[str, str]:
        return self.rows(
            "SELECT state, reason FROM catalog_source WHERE node_id = %s AND name = %s AND dp_rank = %s",
            node, name, dp_rank,
        )[0]  # fmt: skip

    def refused(self) -> dict[str, int]:
        return dict(self.rows("SELECT code, sum(count)::int FROM catalog_refusal GROUP BY code"))


class Sim:
    """A source with its outbox and the reference fold of everything it ever said."""

    def __init__(self, node: uuid.UUID, name: str = "ref", dp_rank: int | None = 0) -> None:
        self.node, self.name, self.dp_rank = node, name, dp_rank
        self.held: dict[Place, str] = {}
        self.boot = self.stream = ""
        self.frames: dict[int, Frame] = {}
        self.seq = -1
        self.restart()

    def restart(self) -> None:
        """The process that owns the memory begins anew."""
        self.boot, self.stream, self.seq = str(uuid.uuid4()), str(uuid.uuid4()), -1
        self.frames = {}
        apply(self.held, reset(self.held)[0])

    def new_stream(self) -> None:
        """The outbox was lost, the memory was not."""
        self.stream, self.seq, self.frames = str(uuid.uuid4()), -1, {}

    def frame(self, *items: Item | bytes, fence_seq: int = 0) -> Frame:
        """The next frame; what its items do has happened here."""
        self.seq += 1
        for item in items:
            if not isinstance(item, bytes):
                apply(self.held, fold(self.held, item)[0])
        raw = [msgspec.Raw(i if isinstance(i, bytes) else msgspec.msgpack.encode(i)) for i in items]
        made = Frame(
            v=1, node=str(self.node), source=self.name, dp_rank=self.dp_rank, boot=self.boot, stream=self.stream,
            seq=self.seq, ts=1_790_000_000.0, items=raw, fence_seq=fence_seq,
        )  # fmt: skip
        self.frames[self.seq] = made
        return made

    def inventory(self, *, pages: int = 1) -> list[InventoryPage]:
        """Everything that is held now, exact as of the last frame."""
        items = [
            Add(ns=p.ns, gen=p.gen, group=p.group, keys=p.key, tier=p.tier, tokens=TOKENS, bytes=BYTES)
            for p in self.held
        ]
        name = str(uuid.uuid4())
        cut = [items[i::pages] for i in range(pages)]
        return [
            InventoryPage(
                v=1, node=str(self.node), source=self.name, dp_rank=self.dp_rank, boot=self.boot, stream=self.stream,
                seq=self.seq, inventory=name, page=i, last=i == pages - 1, ts=1_790_000_000.0,
                items=[msgspec.Raw(msgspec.msgpack.encode(x)) for x in part],
            )
            for i, part in enumerate(cut)
        ]  # fmt: skip

    def sums(self) -> dict[Line, tuple[int, int, int]]:
        out: dict[Line, tuple[int, int, int]] = defaultdict(lambda: ZERO)
        for p in self.held:
            at = (p.ns, p.gen, p.group, p.tier)
            out[at] = digest_add(out[at], p.key)
        return dict(out)

    def digest(self) -> DigestReport:
        lines = [DigestLine(*at, *sums) for at, sums in self.sums().items()]
        return DigestReport(
            v=1, node=str(self.node), source=self.name, dp_rank=self.dp_rank, boot=self.boot, stream=self.stream,
            seq=self.seq, ts=1_790_000_000.0, lines=lines,
        )  # fmt: skip

    def beat(self, fence_seq: int = 0, **more: Any) -> Heartbeat:
        at = SourcePosition(
            source=self.name, dp_rank=self.dp_rank or 0, boot=self.boot, stream=self.stream, seq=self.seq
        )
        return Heartbeat(sources=[at], fence_seq=fence_seq, **more)


def keys(*numbers: int) -> bytes:
    """Keys that look like a keyed digest's."""
    import hashlib

    return b"".join(hashlib.blake2b(n.to_bytes(8, "little"), digest_size=32).digest() for n in numbers)


def add(ns: bytes, *numbers: int, tier: str = "hbm", gen: int = 1, parent: int | None = None, **kw: Any) -> Add:
    """An `add` of a chain of numbered keys."""
    size = {"tokens": TOKENS, "bytes": BYTES} | kw
    return Add(ns=ns, gen=gen, keys=keys(*numbers), tier=tier, parent=keys(parent) if parent else None, **size)
