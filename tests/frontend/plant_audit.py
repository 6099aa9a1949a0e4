"""Plants what processes of the log would have left: a signed head, jobs, a webhook, and a wish to decide."""

import base64
import json
from datetime import UTC, datetime, timedelta

import psycopg

from kvconsole.infra.sql import PLATFORM, uuid7
from tests.frontend.plant import _insert

SIZE = 42
ASKED = {"kind": "user", "id": "somebody", "roles": ["auditor"], "holder": None, "user_id": None}
PARAMS = {"format": "csv", "proofs": True, "personal_data": False, "filters": {}, "size": SIZE, "previous": None}
DIFFERS = {"index": 7, "kind": "body", "detail": "its hash is not what the leaf says"}


def log(dsn: str) -> None:
    """All of it, dated now."""
    now = datetime.now(UTC)
    with psycopg.connect(dsn, autocommit=True) as cx:
        head(cx)
        export = {"bytes": 9_000, "records": 30, "size": SIZE, "sha256": "ab" * 32, "manifest_sha256": "cd" * 32}
        verified = {"size": SIZE, "root": "ef" * 32, "divergences": 1, "first_divergent": 7, "found": [DIFFERS]}
        job(cx, now - timedelta(hours=2), "export", "done", PARAMS, export)
        job(cx, now - timedelta(hours=1), "verify", "done", {"size": SIZE}, verified)
        job(cx, now, "export", "running", PARAMS, {})
        webhook(cx, now)
        wish(cx, now)
        finding(cx)
        end(cx, now)


def head(cx: psycopg.Connection) -> None:
    """The newest head, signed by nobody who could be asked."""
    root, line = bytes(32), base64.b64encode(bytes(68)).decode()
    note = f"demo.invalid/log\n{SIZE}\n{base64.b64encode(root).decode()}\n\n\u2014 demo.invalid/log {line}\n"
    cx.execute("UPDATE audit_signing SET size = %s, root = %s, note = %s, signed_at = now(), signer = 'ok'",
               (SIZE, root, note))  # fmt: skip


def job(cx: psycopg.Connection, at: datetime, kind: str, state: str, params: dict, result: dict) -> None:
    """One export or verification of the fleet's."""
    _insert(
        cx, "audit_job", id=uuid7(), tenant_id=PLATFORM, kind=kind, state=state, params=json.dumps(params),
        requester=json.dumps(ASKED), created_at=at, started_at=at, done_at=at if state == "done" else None,
        expires_at=at + timedelta(days=7), done=15 if state == "running" else SIZE, total=SIZE, position="{}",
        result=json.dumps(result), problem="", cancel_asked=False, lease_holder="", lease_token=0,
    )  # fmt: skip


def webhook(cx: psycopg.Connection, at: datetime) -> None:
    """One that is told of gaps; a message reached it and one did not."""
    hook = uuid7()
    _insert(
        cx, "audit_webhook", id=hook, tenant_id=PLATFORM, url="https://demo.invalid/in", name="demo",
        events='["log.gap"]', state="active", reason="", key_version=1, created_by="user:somebody", created_at=at,
    )  # fmt: skip
    for kind, state, status, problem in (
        ("webhook.test", "delivered", 204, ""),
        ("log.gap", "failed", None, "timeout"),
    ):
        _insert(
            cx, "audit_delivery", id=uuid7(), tenant_id=PLATFORM, webhook=hook, kind=kind, payload="{}", state=state,
            attempts=1, created_at=at, status=status, problem=problem,
        )  # fmt: skip


def wish(cx: psycopg.Connection, at: datetime) -> None:
    """Somebody has asked that bodies go, and an approver can decide."""
    what = {"class": 1, "subject": "identity", "month": "2021-03", "events": 1_204}
    _insert(
        cx, "audit_approval", id=uuid7(), tenant_id=PLATFORM, kind="audit_retention", object_id="2021-03/1",
        what=json.dumps(what), risk="R3", state="open", requested_by="user:somebody", requested_at=at,
        expires_at=at + timedelta(days=14), decided_by="", reason="",
    )  # fmt: skip


def finding(cx: psycopg.Connection) -> None:
    """A leaf was changed; nobody has looked into it yet."""
    cx.execute(
        "INSERT INTO audit_finding (at, kind, subject, first_index, detail)"
        " VALUES (now(), 'leaf', 'leaf/7', 7, 'its hash is not that of its bytes')"
    )


def end(cx: psycopg.Connection, at: datetime) -> None:
    """Somebody has asked that the log ends, and an approver can decide."""
    what = {"origin": "demo.invalid/log", "reason": "restore", "kept": SIZE, "kept_root": "00" * 32}
    _insert(
        cx, "audit_approval", id=uuid7(), tenant_id=PLATFORM, kind="audit_epoch", object_id="demo.invalid/log#1",
        what=json.dumps(what), risk="R3", state="open", requested_by="user:somebody", requested_at=at,
        expires_at=at + timedelta(days=7), decided_by="", reason="",
    )  # fmt: skip
