"""Plants decisions: real questions, scored by the real scorer, kept by the real recorder, some with their outcome."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from kvconsole.infra.sql import uuid7
from kvcore.cards import NOTHING_LEARNED, Ask, Candidate, Curve, Edge, Held, TierLoad
from kvcore.policies import Policy, built_in
from kvcore.scoring import score
from routing.recorder import Outcome, Recorded, Recorder

CURVE = Curve(0.00934232, 1.033468e-7)
"""ms: 4K tokens in 40 ms, 128K in 3 s."""
TIERS = tuple(TierLoad(tier, rate, 0.2) for tier, rate in (("hbm", 2e8), ("dram", 2.5e7), ("ssd", 3e6)))
BLOCKS, BLOCK_TOKENS, BLOCK_BYTES = 71, 256, 4 << 20
EDGES = {a: {b: Edge(1.25e7, 0.1) for b in ("fra-p1", "fra-p2", "ams-m1") if a != b} for a in ("fra-p1", "fra-p2")}


def worker(name: str, *, queue_ms: float | None = 12.0, waiting: int = 1, state: str = "ready", refused: str = "",
           **more: object) -> Candidate:  # fmt: skip
    """One worker of the planted fleet that prefills and decodes."""
    known = {
        "node": name, "source": "engine", "name": name, "cls": "h100", "curve": CURVE, "queue_ms": queue_ms,
        "decode_queue_ms": 3.0, "first_decode_ms": 18.0, "load_age_ms": 400.0, "waiting": waiting, "running": 2,
        "used_share": 0.5, "high": 0.9, "tiers": TIERS, "domain": name[:3], "state": state, "refused": refused,
    }  # fmt: skip
    return Candidate(**known | more)


def question(**more: object) -> Ask:
    """A prompt of 71 blocks."""
    known = {
        "prompt_tokens": BLOCKS * BLOCK_TOKENS + 40, "block_tokens": BLOCK_TOKENS, "block_bytes": BLOCK_BYTES,
        "blocks": BLOCKS, "slo_ttft_ms": 800.0, "router_ms": 0.4, "affinity": 7, "seed": 11,
    }  # fmt: skip
    return Ask(**known | more)


def fleet(*, busy_ms: float = 1_400.0) -> tuple[Candidate, ...]:
    """fra-p2 has fourteen requests queued, fra-d2 is silent, ams-m1 may not hold this class."""
    return (
        worker("fra-p1"),
        worker("fra-p2", queue_ms=busy_ms, waiting=14),
        worker("fra-d2", state="silent"),
        worker("ams-m1", refused="residency"),
    )


HELD = (Held(0, ((62, "dram"),)), Held(1, ((71, "hbm"),)), Held(3, ((40, "ssd"),)))


def id_at(at: datetime) -> UUID:
    """An id of that moment: lists are in the order of ids."""
    later = uuid7().int & ((1 << 80) - 1)
    return UUID(int=int(at.timestamp() * 1000) << 80 | later)


def recorded(tenant: UUID, at: datetime, *, candidates: tuple[Candidate, ...] = (), held: tuple[Held, ...] = HELD,
             ask: Ask | None = None, policy: Policy | None = None, mode: str = "live", model: str = "ref-1k",
             edges: dict[str, dict[str, Edge]] | None = None) -> Recorded:  # fmt: skip
    """One decision as a router makes it."""
    ask, rule = ask or question(), policy or built_in()
    candidates, edges = candidates or fleet(), EDGES if edges is None else edges
    return Recorded(
        id=id_at(at), at=at, tenant_id=tenant, model=model, namespace=bytes(32), generation=1, holder="gateway-1",
        ask=ask, candidates=candidates, held=held, edges=edges, policy=rule, learned=NOTHING_LEARNED,
        choice=score(ask, candidates, held, edges, rule, NOTHING_LEARNED), mode=mode, index_age_ms=140,
    )  # fmt: skip


def measured(made: Recorded, late: float = 1.04) -> Outcome:
    """What a gateway measured: every term a little later than expected."""
    card = made.choice.prefill
    terms = {name: getattr(card.terms, name) * late for name in card.terms.__struct_fields__}
    return Outcome(made.at + timedelta(seconds=1), sum(terms.values()), terms, card.overlap_blocks * BLOCK_TOKENS)


@dataclass
class Planted:
    """Decisions by what they show."""

    held: UUID
    """To who holds 62 of 71 blocks; measured."""
    nobody: UUID
    """No candidate was left."""
    computed: UUID
    """Nothing is anywhere; not measured."""
    fetched: UUID
    """Some of it comes from another node."""
    foreign: UUID
    """Of the other tenant."""


def decisions(dsn: str, *, tenant: str = "acme-code", other: str = "borealis-bank") -> Planted:
    """Five kinds of decisions; a router's counters, with three that were dropped."""
    now = datetime.now(UTC)
    with psycopg.connect(dsn, autocommit=True) as cx:
        of = dict(cx.execute("SELECT slug, id FROM tenants_tenant").fetchall())
        mine, theirs = of[tenant], of[other]
        quick = tuple(worker(name, queue_ms=2.0) for name in ("fra-p1", "ams-m1"))
        slow = {"fra-p1": {"ams-m1": Edge(1.25e7, 0.1)}, "ams-m1": {"fra-p1": Edge(1.25e7, 0.1)}}
        gone = (worker("fra-d2", state="silent"),)
        whole = (Held(0, ((71, "hbm"),)),)
        far = (worker("fra-p1", queue_ms=3_000.0), worker("ams-m1", queue_ms=2.0))
        made = {
            "held": recorded(mine, now - timedelta(minutes=3)),
            "computed": recorded(mine, now - timedelta(minutes=2), candidates=quick, held=()),
            "fetched": recorded(mine, now - timedelta(minutes=1), candidates=far, held=whole, edges=slow),
            "nobody": recorded(mine, now - timedelta(seconds=50), candidates=gone, held=()),
            "foreign": recorded(theirs, now - timedelta(seconds=40)),
        }  # fmt: skip
        keeper = Recorder("router-1")
        for name, one in made.items():
            keeper.add(one, code="no-candidates" if name == "nobody" else "")
        keeper.write(cx)
        assert keeper.outcome(made["held"].id, "gateway-1", measured(made["held"])) == ""
        keeper.tallies.dropped += 3
        keeper.tallies.made += 3
        keeper.write(cx)
    return Planted(**{name: one.id for name, one in made.items()})


def loads(dsn: str) -> None:
    """What workers report: one curve and two edges with samples, one edge of too few, one declared curve."""
    now = datetime.now(UTC)
    bodies = {
        "fra-p1": {"number": 7, "queue_ms": 12.0, "waiting": 1, "curve": [0.0, 0.02, 2e-7, 40],
                   "edges": {"fra-p2": [2.5e6, 0.3, 12], "ams-m1": [1.25e6, 4.0, 30]}},
        "fra-p2": {"number": 9, "queue_ms": 1_400.0, "waiting": 14, "curve": [0.0, 0.05, 0.0, 0],
                   "edges": {"fra-p1": [2.5e6, 0.3, 9], "fra-d2": [9e6, 0.1, 2]}},
    }  # fmt: skip
    with psycopg.connect(dsn, autocommit=True) as cx:
        for name, body in bodies.items():
            cx.execute(
                "INSERT INTO catalog_workerload (source, dp_rank, at, body) SELECT s.id, s.dp_rank, %s, %s"
                " FROM catalog_source s JOIN catalog_node n ON n.id = s.node_id WHERE n.name = %s",
                (now, Jsonb(body), name),
            )


def prefixes(dsn: str) -> None:
    """First runs of four families of the planted map: on one node, on two, on three, and with a hole in the first."""
    now = datetime.now(UTC)
    places = {0: (10, 22), 1: (12,), 2: (10, 20, 43), 3: (23,)}
    with psycopg.connect(dsn, autocommit=True) as cx:
        tenant = cx.execute("SELECT tenant_id FROM catalog_keyspace WHERE id = 1").fetchone()[0]
        for family, owners in places.items():
            cx.execute(
                "INSERT INTO catalog_segment (id, head, family, keyspace, tenant_id, keys)"
                " VALUES (%s, %s, %s, 1, %s, %s)",
                (family, family, family, tenant, bytes(16 * 64)),
            )
            for owner in owners:
                held = (2**64 - 2).to_bytes(8, "little") if family == 3 else None
                cx.execute(
                    "INSERT INTO catalog_placement (seg, born, owner, keyspace, tenant_id, n, held)"
                    " VALUES (%s, %s, %s, 1, %s, 64, %s)", (family, now, owner, tenant, held),
                )  # fmt: skip
