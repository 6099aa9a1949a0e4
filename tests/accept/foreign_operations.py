"""Where somebody can name plans, operations, evidence, holds, pins, windows, subjects and sessions of others."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from audit.models import Certificate
from catalog.models import DenyWindow, Hold, Operation, OperationTarget, Pin, Plan, Step
from kvconsole.infra.sql import uuid7
from tests.accept.tenancy import clone
from tests.frontend.plant_operations import ASKED, SOMEBODY, put

KINDS = {
    "plan_id": "plan", "operation_id": "operation", "step_id": "receipt", "certificate_id": "certificate",
    "hold_id": "hold", "pin_id": "pin", "window_id": "window", "digest": "subject", "session": "session",
    "model": "model",
}  # fmt: skip
"""Parameter of a path → what it names."""
OWN = {"digest": "0" * 64, "session": "own", "model": "ref-64", "epoch": "1"}
EXPECTS = {
    "subject.digest": 422, "session-hints.session": 422, "GET session-hints.session": 200, "epoch-retire.model": 404,
}  # fmt: skip
"""Place (with its method where that matters) → what is answered where it is not that something is not there: a tenant
without subjects has none apart, and of a session nothing was announced."""
BODIES: dict[str, dict[str, Any]] = {
    "epoch-retire": {"reason": "x"},
    "session-hints": {"event": "end"},
    "operation": {"throttle": 1},
    "hold-release": {"reason": "x"},
    "node-drain": {},
    "node-cordon": {},
    "node-uncordon": {},
}
"""Route → a body that is not at fault."""
PATHS = ("operations", "holds", "pins", "deny-windows")
"""Lists with cursors."""


def sites(site: Any, own_tenant: str) -> Iterator[Any]:
    """Bodies and the selectors in them. `site` makes one."""
    at, later = "/api/v1", "2100-01-01T00:00:00Z"
    kinds = {"tenant": "tenant", "namespace": "namespace", "epoch": "epoch"}
    holding = {"authority": "x", "reason": "x", "review_at": later}
    moving = {"from_tier": "dram", "to_tier": "ssd"}
    for path, more in (("deletion-plans", {}), ("holds", holding), ("migrations", moving)):
        for field, kind in kinds.items():
            body = {"selector": {field: "<asked>"}, **more}
            yield site(f"{path} selector {field}", "POST", f"{at}/{path}", kind, body)
    yield site("part of a selector", "POST", f"{at}/deletion-plans", "namespace",
               {"selector": {"tenant": own_tenant, "and": [{"namespace": "<asked>"}]}})  # fmt: skip
    yield site("digest in a selector", "POST", f"{at}/deletion-plans", "digest", {"selector": {"namespace": "<asked>"}})
    yield site("plan of a deletion", "POST", f"{at}/deletions", "plan",
               {"plan_id": "<asked>", "plan_hash": "0" * 64})  # fmt: skip
    fetching = {"prefix": ["0" * 64], "to_tier": "dram", "need_at": later}
    yield site("namespace of a prefetch", "POST", f"{at}/prefetches", "namespace",
               {"namespace": "<asked>", "to_node": "first", **fetching})  # fmt: skip
    yield site("node of a migration", "POST", f"{at}/migrations", "node name",
               {"selector": {"tenant": own_tenant}, "to_node": "<asked>", **moving})  # fmt: skip
    yield site("tenant of an export", "POST", f"{at}/audit/exports", "tenant",
               {"format": "csv", "filters": {"tenant": "<asked>"}}, expects=409)  # fmt: skip
    # (nothing is signed on this console yet: no export begins)
    for kind in ("namespace", "digest"):
        yield site(f"pins of a {kind}", "GET", f"{at}/pins?namespace=<asked>", kind, expects=200)
    until = (datetime.now(UTC) + timedelta(days=7)).isoformat()
    for kind in ("namespace", "digest"):
        yield site(f"{kind} of a pin", "POST", f"{at}/pins", kind, {"namespace": "<asked>", "until": until})
    window = {"cron": "0 3 * * 0", "minutes": 60, "reason": "x"}
    yield site("window of a tenant", "POST", f"{at}/deny-windows", "tenant", {"tenant": "<asked>", **window})
    yield site("tenant of a session", "POST", f"{at}/sessions/own/hints", "tenant",
               {"event": "end", "tenant": "<asked>"})  # fmt: skip


def plant(cx: psycopg.Connection, count: int, other: UUID) -> dict[str, str]:
    """`count` of each kind that belong to the other tenant; kind → the query of how they are named."""
    now = datetime.now(UTC)
    far, whose = now + timedelta(days=2), {"tenant_id": other}
    asked = {"requested_by": SOMEBODY, "created_at": now, **whose}
    pk, digest = uuid7(), hashlib.sha256(b"other").digest()
    put(cx, Plan, id=uuid7(), kind="deletion", selector={"label": "x"}, options={}, body={}, plan_hash=bytes(32),
        risk="R1", expires_at=far, **asked)  # fmt: skip
    put(cx, Operation, id=pk, kind="deletion", plan_hash=bytes(32), risk="R1", selector={"label": "x"},
        requester=ASKED, deadline=far, not_after=far, due_at=far, fenced_at=now, concluded_at=now, outcome="stopped",
        stopped_at=now, finalizers=[], **asked)  # fmt: skip
    put(cx, OperationTarget, operation=pk, digest=digest, min_gen=2, fence_seq=1, **whose)
    put(cx, Step, id=uuid7(), operation=pk, intent_generation=1, kind="erase", state="done", tier="dram",
        source="ref", args={}, created_at=now, due_at=far, done_at=now, receipt={}, receipt_hash="0" * 64,
        **whose)  # fmt: skip
    put(cx, Certificate, id=uuid7(), operation=pk, body=b"{}", body_hash=digest, note="x", erasure=2, flags=[],
        seal=False, exceptions=0, event=1, issued_at=now, **whose)  # fmt: skip
    put(cx, Hold, id=uuid7(), selector={"label": "x"}, namespaces=[], authority="x", reason="x", state="active",
        review_at=far, requested_by=SOMEBODY, requested_at=now, **whose)  # fmt: skip
    put(cx, Pin, id=uuid7(), namespace=uuid7(), digest=digest, keys=None, until=far, reason="x", **asked)
    put(cx, DenyWindow, id=uuid7(), cron="0 3 * * 0", minutes=60, reason="x", **asked)
    of, new = f"tenant_id = '{other}'", {"id": "gen_random_uuid()"}
    fresh = {"audit_certificate": {"operation": "gen_random_uuid()", "body_hash": "sha256(({i}::text)::bytea)"}}
    tables = {"plan": "catalog_plan", "operation": "catalog_operation", "receipt": "catalog_step",
              "certificate": "audit_certificate", "hold": "catalog_hold", "pin": "catalog_pin",
              "window": "catalog_denywindow"}  # fmt: skip
    for table in tables.values():
        clone(cx, table, count, of, **new, **fresh.get(table, {}))
    queries = {kind: f"SELECT id::text FROM {table} WHERE {of}" for kind, table in tables.items()}
    named = "FROM tenants_namespace WHERE " + of
    return queries | {
        "epoch": f"SELECT name || '/1' FROM tenants_model WHERE {of}",
        "subject": f"SELECT encode(digest, 'hex') {named}",
        "session": f"SELECT 's-' || substr(encode(digest, 'hex'), 1, 12) {named}",
    }
