"""Orders as the console records them, in the real log: what `audit.services.record` writes is what the signer takes."""

import time
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from audit import signing
from audit.models import Approval
from audit.services import APPROVAL, record
from audit.tree import node_reader
from kvconsole.infra import sql
from kvconsole.infra.access import Principal, system
from kvcore.leaf import body_hash
from kvcore.messages import PROTOCOL, Command, Signed
from kvcore.proofs import inclusion
from tests.audit.beside import ROW, operation_id, values
from tests.audit.loglab import INSERT

pytestmark = pytest.mark.django_db(transaction=True)
NODE, ASKER, DECIDER = (str(uuid.UUID(int=n)) for n in (7, 8, 9))
NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
OP = operation_id("1")


def person(number):
    return Principal(kind="user", id=number, roles=frozenset({"approver", "destructive-operator"}))


def ordered(*, actor, operation=None, approval=None, risk="R3", nodes=(NODE,), plan=bytes(32), row=None):
    """`row`: what the row says otherwise than the order; False = there is none."""
    operation = operation or str(uuid.uuid4())
    with transaction.atomic(), connection.cursor() as cursor:
        if row is not False:
            said = {"risk": risk, "approval": approval, "plan": plan} | (row or {})
            cursor.execute(ROW, values(operation, **said))
        return record(
            event_type="order.approved", outcome="success", actor=actor, tenant_id=None, object_kind="operation",
            object_id=operation, body={
                "operation": operation, "kinds": ["purge"], "nodes": list(nodes), "plan_hash": plan,
                "selector_hash": bytes(32), "risk": risk, "approval": approval,
                "not_after": datetime.now(UTC) + timedelta(hours=1),
            },
        )  # fmt: skip


def asked(approval, *, by=ASKER, operation=OP, risk="R3", what=None):
    """Somebody asks; the row of what waits."""
    with transaction.atomic():
        Approval.objects.create(
            id=approval, tenant_id=sql.PLATFORM, kind="operation", object_id=operation, what=what or {}, risk=risk,
            requested_by=f"user:{by}", requested_at=NOW, expires_at=NOW + timedelta(hours=1),
        )  # fmt: skip
        noted()


def settled(approval, *, by=DECIDER, decision="approved"):
    """In the caller's transaction."""
    Approval.objects.filter(id=approval).update(state=decision, decided_by=f"user:{by}", decided_at=NOW)


def noted():
    record(event_type="log.note", outcome="success", actor=None, tenant_id=None, object_kind="test", object_id="",
           body={"note": "asked"})  # fmt: skip


def decided(*, actor, approval, operation=OP, decision="approved", risk="R3"):
    """The event alone: the caller sees to the row."""
    return record(
        event_type="approval.decided", outcome="success", actor=actor, tenant_id=None, object_kind="approval",
        object_id=approval, flags=APPROVAL,
        body={"kind": "operation", "object": operation, "decision": decision, "risk": risk, "reason": ""},
    )  # fmt: skip


def decision(approval, *, actor=None, by=DECIDER, decision="approved", operation=OP):
    """Asked for and decided as it is done: row and event together."""
    asked(approval, operation=operation)
    with transaction.atomic():
        settled(approval, by=by, decision=decision)
        return decided(actor=actor or person(by), approval=approval, operation=operation, decision=decision)


def evidence(event, size):
    """The event as it is in the log, and its proof under the head of this size."""
    with psycopg.connect(sql.dsn("seq"), autocommit=True) as c:
        (row,) = c.execute("SELECT idx, data FROM audit_leaf WHERE event = %s", (event.id,)).fetchall()
        node = node_reader(lambda query, values: c.execute(query, values or None).fetchall())
        path = inclusion(row[0], size, node)
    return signing.evidence(leaf=bytes(row[1]), index=row[0], proof=path, body=bytes(event.body))


def purge(order, size, approval=None, **fields):
    now = time.time()
    command = Command(**{"v": PROTOCOL, "step": "s", "kind": "purge", "node": NODE,
                         "order_hash": bytes(order.body_hash).hex(), "issued_at": now, "expires_at": now + 60,
                         **fields})  # fmt: skip
    proved = evidence(approval, size) if approval else None
    return signing.sign_command(command, evidence(order, size), proved, size=size)


def test_what_two_persons_recorded_is_signed_and_nothing_else(sealed):
    one, other, own, no = (str(uuid.uuid4()) for _ in range(4))
    yes = decision(one)
    order = ordered(actor=person(ASKER), operation=OP, approval=one)
    agreed = decision(other, operation=operation_id("2"))
    of_worker = ordered(actor=system("worker"), approval=other, operation=operation_id("2"))
    by_itself = decision(
        own, actor=person(ASKER), operation=operation_id("3")
    )  # the row says another person, the event does not
    of_itself = ordered(actor=person(ASKER), approval=own, operation=operation_id("3"))
    small = ordered(actor=system("worker"), risk="R1")
    denied = decision(no, decision="denied", operation=operation_id("4"))
    size = sealed()
    assert isinstance(purge(order, size, yes), Signed)
    assert isinstance(purge(small, size), Signed)
    assert purge(order, size).code == "approval-missing"
    assert purge(of_itself, size, by_itself).code == "approval-own"
    assert purge(of_worker, size, agreed).code == "approval-without-persons"
    assert purge(of_worker, size, yes).code == "approval-of-another-order"
    assert purge(order, size, denied).code == "approval-of-another-order"
    assert purge(order, size, by_itself).code == "approval-of-another-order"
    assert purge(order, size, yes, node=ASKER).code == "order-of-another-node"
    assert purge(order, size, yes, kind="erase").code == "order-of-another-kind"
    assert purge(yes, size, yes).code == "order-of-another-type"


def test_an_order_waits_for_the_head_that_holds_it(sealed):
    early = ordered(actor=system("worker"), risk="R0")
    first = sealed()
    ordered(actor=system("worker"), risk="R0")
    assert isinstance(purge(early, first), Signed)
    second = sealed()
    stale = purge(early, first)
    assert (stale.code, stale.size, stale.final) == ("stale-size", second, False)
    assert isinstance(purge(early, second), Signed)


# --- what the database takes ------------------------------------------------------------------


def refused(detail, write, **fields):
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        write(**fields)
    assert caught.value.__cause__.diag.message_detail == detail


def test_no_decision_is_recorded_but_with_its_row_in_the_same_transaction():
    """As who has the console's login would write one, without anybody who decided."""
    one = str(uuid.uuid4())
    refused("not-decided", decided, actor=person(DECIDER), approval=one)
    asked(one)
    refused("not-decided", decided, actor=person(DECIDER), approval=one)
    with transaction.atomic():
        settled(one, decision="denied")
        for wrong in ({}, {"decision": "denied", "operation": operation_id("5")}, {"decision": "denied", "risk": "R1"},
                      {"decision": "denied", "approval": str(uuid.uuid4())}):  # fmt: skip
            refused("not-decided", decided, **{"actor": person(DECIDER), "approval": one, **wrong})
        decided(actor=person(DECIDER), approval=one, decision="denied")
    refused("not-decided", decided, actor=person(DECIDER), approval=one, decision="denied")


def test_an_order_goes_by_one_approval_of_its_own_and_an_approval_serves_one_order():
    one, plan = str(uuid.uuid4()), bytes(31) + b"\1"
    asked(one, what={"plan_hash": plan.hex()})
    order = {"actor": person(ASKER), "operation": OP, "approval": one, "plan": plan}
    refused("not-approved", ordered, **order)
    with transaction.atomic():
        settled(one)
        decided(actor=person(DECIDER), approval=one)
    for wrong in (
        {"operation": operation_id("5")},
        {"risk": "R2"},
        {"plan": bytes(32)},
        {"approval": str(uuid.uuid4())},
    ):
        refused("not-approved", ordered, **order | wrong)
    ordered(**order)
    refused("not-approved", ordered, **order, row=False)
    denied = str(uuid.uuid4())
    decision(denied, decision="denied", operation=operation_id("6"))
    refused("not-approved", ordered, actor=person(ASKER), approval=denied, operation=operation_id("6"))


def test_no_order_is_recorded_but_beside_its_operation_and_of_each_there_is_one():
    """As who has the console's login would write one for an operation that nobody asked for, or another one."""
    worker = system("worker")
    refused("not-asked", ordered, actor=worker, risk="R1", row=False)
    refused("not-asked", ordered, actor=worker, risk="R1", operation="op-1", row=False)
    for wrong in ({"risk": "R2"}, {"plan": bytes(31) + b"\1"}, {"approval": str(uuid.uuid4())}):
        refused("not-asked", ordered, actor=worker, risk="R1", row=wrong)
    one = str(uuid.uuid4())
    event = ordered(actor=worker, risk="R1", operation=one)
    refused("not-asked", ordered, actor=worker, risk="R1", operation=one, row=False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT order_event, order_hash FROM catalog_operation WHERE id = %s", (one,))
        number, body = cursor.fetchone()
    assert (number, bytes(body)) == (event.id, bytes(event.body_hash))


def test_what_was_ordered_stays_what_it_was():
    one = str(uuid.uuid4())
    ordered(actor=system("worker"), risk="R1", operation=one)
    for change in ("order_event = NULL", "order_event = 7", "risk = 'R0'", "plan_hash = '\\x00'", "deadline = now()",
                   "selector = '{\"tenant\": \"x\"}'", "needs_approval = true", "approval = gen_random_uuid()",
                   "not_after = now() + interval '1 year'", "requested_by = 'user:y'", "fence_seq = 9"):  # fmt: skip
        refused(None, changed, operation=one, change=change)
    refused(None, target, operation=one)
    refused(None, target, operation=str(uuid.uuid4()))


def changed(operation, change):
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE catalog_operation SET {change} WHERE id = %s", (operation,))


def target(operation):
    noted()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, min_gen, fence_seq, part, keys_hash,"
            " key_count, below) VALUES (%s, %s, %s, 2, 1, 0, '', 0, false)", (sql.PLATFORM, operation, bytes(32)),
        )  # fmt: skip


def test_an_approval_begins_open_and_is_decided_once():
    one = str(uuid.uuid4())
    asked(one)
    for born in ({"state": "approved", "decided_by": "user:x", "decided_at": NOW}, {"decided_by": "user:x"}):
        refused(None, planted, **born)
    with transaction.atomic():
        noted()
        settled(one, decision="denied")
    for again in ("approved", "open"):
        refused(None, Approval.objects.filter(id=one).update, state=again)
    assert Approval.objects.get(id=one).state == "denied"


def planted(**fields):
    noted()
    Approval.objects.create(tenant_id=sql.PLATFORM, kind="operation", object_id="op-9", what={}, risk="R3",
                            requested_by="user:a", requested_at=NOW, expires_at=NOW, **fields)  # fmt: skip


@pytest.mark.parametrize(("role", "kinds"), [
    ("ingest", (0x0501, 0x0230, 0x0110, 0x0240, 0x0703, 0x0F03, 0x0F09)),
    ("seq", (0x0501, 0x0230, 0x0110, 0x0411, 0x0601)),
    ("operator", (0x0F02, 0x0F03, 0x0F04, 0x0F05, 0x0F09, 0x0F06)),
])  # fmt: skip
def test_each_kind_of_process_records_its_own_events_alone(role, kinds):
    with psycopg.connect(sql.dsn(role), autocommit=True) as c:
        for kind in kinds:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(f"{INSERT} VALUES (gen_random_uuid(), %s, %s, %s, %s, 1, 0, %s, %s, %s, '', '', '')",
                          (kind, sql.PLATFORM, bytes(16), bytes(16), b"{}", body_hash(b"{}"), bytes(32)))  # fmt: skip
