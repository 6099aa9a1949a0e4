"""Decisions and policies among the ids that a tenant may guess; a part of `foreign`."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from kvconsole.infra.sql import uuid7
from routing.selectors import slot_of

KINDS = {"decision_id": "decision"}
NAMED = {"policies": "policy name", "routing": "policy name"}
BODIES: dict[str, dict[str, Any]] = {"policy-api": {"kind": "random"}}
PATHS = ("decisions",)


def sites(site: Callable[..., Any]) -> Iterator[Any]:
    """Queries of the list of decisions. Whoever asks for another's gets an empty list, as for nobody's."""
    for query, kind in (("tenant", "tenant"), ("node", "node name"), ("model", "model")):
        yield site(f"decisions of a {query}", "GET", f"/api/v1/decisions?{query}=<asked>", kind, expects=200)


def plant(cx: psycopg.Connection[Any], count: int, other: UUID) -> dict[str, str]:
    """`count` of each kind that belong to the other tenant, or to the fleet; kind → the query of how they are named."""
    made = [uuid7() for _ in range(count)]
    now = datetime.now(UTC)
    with cx.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO routing_decision (id, slot, tenant_id, at, origin, router, model, answer, kept)"
            " VALUES (%s, %s, %s, %s, 'router', 'r', 'ref-64', 'compute', 'all')",
            [(one, slot_of(one), other, now) for one in made],
        )
        cursor.executemany(
            "INSERT INTO routing_policy (name, version, model, kind, document, at, by)"
            " VALUES (%s, 1, '', 'random', %s, %s, 'x')",
            [(f"p-{i}", '{"kind": "random", "params": {}}', now) for i in range(count)],
        )
    return {
        "decision": f"SELECT id::text FROM routing_decision WHERE tenant_id = '{other}'",
        "policy name": "SELECT name FROM routing_policy WHERE name LIKE 'p-%%'",
    }
