"""Decisions, policies, announcements and lost hits among what a tenant may guess; a part of `foreign`."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from kvconsole.infra.sql import uuid7
from routing.selectors import slot_of

KINDS = {"decision_id": "decision"}
NAMED = {"policies": "policy name", "routing": "policy name"}
BODIES: dict[str, dict[str, Any]] = {"policy-api": {"kind": "random"}}
PATHS = ("decisions",)
OWN = {"policy": "default"}


def sites(site: Callable[..., Any]) -> Iterator[Any]:
    """Queries and bodies. Whoever asks for another's decisions gets an empty list, as for nobody's."""
    for query, kind in (("tenant", "tenant"), ("node", "node name"), ("model", "model")):
        yield site(f"decisions of a {query}", "GET", f"/api/v1/decisions?{query}=<asked>", kind, expects=200)
    at, now = "/api/v1", datetime.now(UTC)
    keys = {"block_keys": ["0" * 64]}
    coming = {"node": "first", "need_at": (now + timedelta(hours=2)).isoformat(),
              "expires_at": (now + timedelta(hours=3)).isoformat(), **keys}  # fmt: skip
    tool = {"event": "tool_start", "eta_ms": 1000, **keys}
    for kind in ("namespace", "digest"):
        yield site(f"{kind} of an advisory", "POST", f"{at}/advisories", kind, {"namespace": "<asked>", **coming})
        yield site(f"{kind} of a hint", "POST", f"{at}/sessions/own/hints", kind, {"namespace": "<asked>", **tool})
        yield site(f"lost hits of a {kind}", "GET", f"{at}/lost-hits?namespace=<asked>", kind)
    yield site("model of a policy", "PUT", f"{at}/policies/{OWN['policy']}", "model",
               {"kind": "random", "model": "<asked>"})  # fmt: skip
    yield site("lost hits of a tenant", "GET", f"{at}/lost-hits?tenant=<asked>", "tenant")
    yield site("tenant of a session's hints", "GET", f"{at}/sessions/own/hints?tenant=<asked>", "tenant")


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
    cx.execute(
        "INSERT INTO routing_announcement (id, tenant_id, kind, about, blocks, said_at, until, believed, effect,"
        " reason, bytes, pins, state) SELECT gen_random_uuid(), tenant_id, 'tool',"
        " sha256(('s-' || substr(encode(digest, 'hex'), 1, 12))::bytea), 1, now(), now() + interval '1 minute', 1,"
        " 'nothing', 'not-separable', 0, '[]', 'open' FROM tenants_namespace WHERE tenant_id = %s", (other,),
    )  # of the sessions that `foreign_operations` names  # fmt: skip
    return {
        "decision": f"SELECT id::text FROM routing_decision WHERE tenant_id = '{other}'",
        "policy name": "SELECT name FROM routing_policy WHERE name LIKE 'p-%%'",
    }
