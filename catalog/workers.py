"""Reads what routers must know of workers: who there is, what they last reported, and where a namespace may go.

As the role of the process (kv_router), a few statements a second for the whole fleet; called by `routing.candidates`.
"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from catalog.placing import bars, class_rules, places, tenants_of
from catalog.selectors.loads import worker_loads
from kvconsole.infra.statements import fetch
from kvcore.loads import WorkerLoad
from kvcore.residency import ISOLATION, RESIDENCY, shut
from tenants.placing import namespace_places

_WORKERS = """
SELECT now(), n.id, n.name, n.region, n.zone, n.rack, n.role, n.state, n.profile, n.dedicated_to,
       n.public_key, n.agent_url, s.name, s.dp_rank, s.state
  FROM catalog_node n JOIN catalog_source s ON s.node_id = n.id
 WHERE s.name <> 'console' AND n.enrolled_at IS NOT NULL
 ORDER BY n.name, s.name, s.dp_rank"""
RIGHTS, CLASS = "rights", "class"


class Worker(NamedTuple):
    """One source of a node. `load` is None where it never reported; `age_ms` counts from when it was measured."""

    node: UUID
    name: str
    region: str
    zone: str
    rack: str
    role: str
    state: str
    profile: str
    dedicated_to: UUID | None
    public_key: bytes
    agent_url: str
    source: str
    dp_rank: int
    source_state: str
    load: WorkerLoad | None
    age_ms: float | None


def workers() -> list[Worker]:
    """All workers of nodes that ever joined, by name, as of now."""
    loads = {(r.node, r.source, r.dp_rank): (r.at, r.load) for r in worker_loads()}
    found: dict[tuple[UUID, str, int], Worker] = {}
    for row in fetch(_WORKERS):
        now: datetime = row[0]
        key = (row[1], row[12], row[13])
        at, load = loads.get(key, (None, None))
        age = None if at is None else max(0.0, (now - at).total_seconds() * 1000)
        found[key] = Worker._make((*row[1:], load, age))
    return list(found.values())


def refusals(digests: Collection[bytes]) -> dict[bytes, dict[UUID, str]]:
    """Namespace → node → why none of its requests may go there: rights, residency, class. Registered ones only."""
    found = namespace_places(digests)
    rules, known = class_rules(tenants_of(found.values())), places()
    out: dict[bytes, dict[UUID, str]] = {}
    for digest, namespace in found.items():
        told = {node: shut(bars(namespace, place, rules)) for node, place in known.items()}
        out[digest] = {node: _reason(why) for node, why in told.items() if why}
    return out


def _reason(why: str) -> str:
    return {ISOLATION: RIGHTS, RESIDENCY: RESIDENCY}.get(why, CLASS)
