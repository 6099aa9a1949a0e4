"""The row of the catalog beside which an order stands: without it the database takes none."""

import uuid
from typing import Any

from kvconsole.infra.sql import PLATFORM

ROW = (
    "INSERT INTO catalog_operation (id, tenant_id, kind, trigger, about, selector, options, plan_hash, risk,"
    " requested_by, requester, reason, generation, observed_generation, finalizers, paused, windows_passed, deadline,"
    " not_after, approval, needs_approval, fence_seq, created_at, fenced_at, outcome, problem, due_at)"
    " VALUES (%(id)s, %(tenant)s, 'deletion', 'user', '', '{}', '{}', %(plan)s, %(risk)s, 'user:x',"
    " '{\"kind\": \"user\"}', '', 1, 0, '{catalog}', false, false, now(), now() + interval '1 hour', %(approval)s,"
    " %(needs)s, 0, now(), now(), '', '', now() + interval '30 days')"
)
"""It is fenced, and nobody looks at it before long."""

TARGET = (
    "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, min_gen, fence_seq, part, keys_hash, key_count,"
    " below) VALUES (%s, %s, sha256(gen_random_uuid()::text::bytea), 2, 1, 0, '', 0, false)"
)


def operation_id(name: str) -> str:
    """The same id for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def values(operation: str, *, risk: str = "R3", approval: str | None = None, plan: bytes = bytes(32)) -> dict[str, Any]:
    """Placeholders of `ROW`."""
    needs = risk == "R3" or approval is not None
    return {"id": operation, "tenant": PLATFORM, "risk": risk, "approval": approval, "plan": plan, "needs": needs}
