"""Retention: bodies of one class and month go, for two persons and a year later at the earliest; nothing else does."""

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connections, transaction

from audit import approvals, retention
from audit.models import Event
from audit.services import pii_verdict
from kvconsole.infra import sql
from kvconsole.infra.rest import Problem
from kvcore.leaf import PII, body_hash
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime.now(UTC)
OLD = f"{NOW.year - 2}-{NOW.month:02d}"
COLUMNS = [f.column for f in Event._meta.concrete_fields]
BODY = b'{"data":{}}'


@pytest.fixture(autouse=True)
def superuser(postgres, monkeypatch):
    monkeypatch.setattr(pytest, "superuser_dsn", postgres.superuser_dsn, raising=False)


def old_events(number, count, month=OLD):
    """Events as they were two years ago: only a superuser can put them there."""
    at = int(datetime.fromisoformat(f"{month}-03T00:00:00+00:00").timestamp() * 1e6)
    settings = connections["default"].settings_dict
    with psycopg.connect(pytest.superuser_dsn(settings["NAME"]), autocommit=True) as c:
        for i in range(count):
            c.execute(
                "INSERT INTO audit_event (event_id, event_type, time_us, tenant_id, tenant_ref, actor_ref, outcome,"
                " flags, body, body_hash, pii_ct, pii_commit, pii_key, object_kind, object_id, request_id)"
                " VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s, '', '', '')",
                (number, at + i, sql.PLATFORM, bytes(16), bytes(16), PII, BODY, body_hash(BODY), b"sealed", bytes(32),
                 bytes(16)),
            )  # fmt: skip
        c.execute("ALTER TABLE audit_pending DISABLE TRIGGER drained")
        c.execute("DELETE FROM audit_pending WHERE time_us < %s", (at + 10_000_000,))
        c.execute("ALTER TABLE audit_pending ENABLE ALWAYS TRIGGER drained")


def asked(class_=1, month=OLD, who=None):
    return retention.retention_request(class_=class_, month=month, actor=who or principal(None, "operator"), now=NOW)


def approve(approval):
    approvals.approval_decide(
        approval_id=approval.id, approve=True, actor=principal(None, "approver"), now=datetime.now(UTC)
    )


def stored():
    with sql.connect("audit") as c:
        rows = c.execute(f"SELECT {', '.join(COLUMNS)} FROM audit_event ORDER BY id").fetchall()
    return [Event(**dict(zip(COLUMNS, row, strict=True))) for row in rows]


def test_bodies_of_the_class_and_month_go_and_leaves_and_all_else_stay():
    old_events(0x0112, 5)
    old_events(0x0210, 2)
    old_events(0x0112, 1, f"{NOW.year - 3}-{NOW.month:02d}")
    approve(asked())
    assert retention.retentions_due() == 1
    assert retention.retentions_due() == 0
    gone = [e for e in stored() if not bytes(e.body)]
    assert [e.event_type for e in gone] == [0x0112] * 5
    assert {pii_verdict(e) for e in gone} == {"retired"}
    assert all(bytes(e.body_hash) == body_hash(BODY) for e in gone)
    assert sum(bytes(e.body) == BODY for e in stored()) == 3
    (said,) = [e for e in stored() if e.event_type == 0x0F06]
    data = json.loads(bytes(said.body))["data"]
    assert (data["class"], data["month"], data["events"]) == (1, OLD, 5)
    (row,) = retention.retired()
    assert (row.month, row.class_, row.events, row.digest) == (OLD, 1, 5, data["digest"])


def test_young_months_and_what_nobody_approved_are_refused_by_the_database_itself():
    young = f"{NOW.year}-{NOW.month:02d}"
    with pytest.raises(Problem, match="twelve"):
        asked(month=young)
    open_ = asked()
    with sql.connect("operator") as c:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="nobody approved"):
            c.execute("SELECT * FROM audit_retire(%s)", (open_.id,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute("INSERT INTO audit_retired (month, class, approval, events, digest) VALUES (now(), 1, %s, 0, '')",
                      (open_.id,))  # fmt: skip
    with transaction.atomic():
        forged = approvals.approval_request(
            kind=retention.KIND, object_id="x", tenant_id=sql.PLATFORM, what={"class": 1, "month": young}, risk="R3",
            actor=principal(None, "operator"), expires_at=NOW + timedelta(days=1), now=NOW,
        )  # fmt: skip
        approvals.record(
            event_type="log.note", outcome="success", actor=None, tenant_id=None, object_kind="t", object_id="",
            body={"note": "t"},
        )  # fmt: skip
    approve(forged)
    with sql.connect("operator") as c, pytest.raises(psycopg.errors.InsufficientPrivilege, match="twelve months"):
        c.execute("SELECT * FROM audit_retire(%s)", (forged.id,))


def test_without_its_event_it_does_not_commit_and_nobody_empties_a_body_by_hand():
    old_events(0x0112, 2)
    approval = asked()
    approve(approval)
    with sql.connect("operator", autocommit=False) as c:
        c.execute("SELECT * FROM audit_retire(%s)", (approval.id,))
        with pytest.raises(psycopg.errors.CheckViolation, match="without an audit event"):
            c.commit()
    name = connections["default"].settings_dict["NAME"]
    with psycopg.connect(pytest.superuser_dsn(name), autocommit=True) as c:
        c.execute("SET session_replication_role = replica")
        for attempt in (
            "UPDATE audit_event SET body = '', pii_ct = NULL, pii_key = NULL",
            "INSERT INTO audit_retired (month, class, approval, events, digest) VALUES"
            " ('2020-01-01', 1, gen_random_uuid(), 0, sha256(''))",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(attempt)
        with pytest.raises(psycopg.errors.CheckViolation):
            c.execute(
                "INSERT INTO audit_event (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body,"
                " body_hash, pii_commit, object_kind, object_id, request_id) VALUES (gen_random_uuid(), 1, %s, %s, %s,"
                " 1, 0, '', %s, %s, '', '', '')",
                (sql.PLATFORM, bytes(16), bytes(16), bytes(32), bytes(32)),
            )
    assert all(bytes(e.body) for e in stored())


def test_a_month_whose_events_are_not_all_in_the_log_waits():
    old_events(0x0112, 1)
    approve(asked())
    name = connections["default"].settings_dict["NAME"]
    with psycopg.connect(pytest.superuser_dsn(name), autocommit=True) as c:
        c.execute("INSERT INTO audit_pending (event, time_us) SELECT id, time_us FROM audit_event WHERE time_us < %s",
                  (int((NOW - timedelta(days=400)).timestamp() * 1e6),))  # fmt: skip
    assert retention.retentions_due() == 0


def test_it_is_asked_for_once_and_again_after_it_was_denied():
    first = asked()
    with pytest.raises(Problem, match="went already"):
        asked()
    approvals.approval_decide(
        approval_id=first.id, approve=False, actor=principal(None, "approver"), now=datetime.now(UTC)
    )
    assert asked().id != first.id
    for class_, month in ((15, OLD), (9, OLD), (1, "2021-13"), (1, "x")):
        with pytest.raises(Problem):
            asked(class_, month)


def test_the_one_who_asked_cannot_approve():
    who = principal(None, "operator", "approver")
    with pytest.raises(Problem, match="asked for"):
        approvals.approval_decide(approval_id=asked(who=who).id, approve=True, actor=who, now=datetime.now(UTC))
