"""Reads the last load report of each worker, with whose it is: one statement, for routers and pages."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from kvconsole.infra.statements import fetch
from kvcore.loads import WorkerLoad, load_of

_LOADS = """
SELECT s.node_id, s.id, s.name, s.dp_rank, l.at, l.body::text
FROM catalog_workerload l JOIN catalog_source s ON s.id = l.source
ORDER BY s.node_id, s.name, s.dp_rank"""


class Reported(NamedTuple):
    """A worker's report and when it was measured, by the writer's clock."""

    node: UUID
    source_id: int
    source: str
    dp_rank: int
    at: datetime
    load: WorkerLoad


def worker_loads(*, using: str = "") -> list[Reported]:
    """The last report of every worker that ever made one; whoever is not in it never reported."""
    out = []
    for node, source_id, name, rank, at, body in fetch(_LOADS, using=using):
        load = load_of(msgspec.json.decode(body) | {"source": name, "dp_rank": rank})
        if isinstance(load, WorkerLoad):  # a row of a later version of the form may say what this one cannot read
            out.append(Reported(node, source_id, name, rank, at, load))
    return out
