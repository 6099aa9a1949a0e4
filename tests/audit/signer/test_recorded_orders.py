"""Orders as the console records them, in the real log: what `audit.services.record` writes is what the signer takes."""

import time
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import transaction

from audit import signing
from audit.services import APPROVAL, record
from audit.tree import node_reader
from kvconsole.infra import sql
from kvconsole.infra.access import Principal, system
from kvcore.messages import PROTOCOL, Command, Signed
from kvcore.proofs import inclusion

pytestmark = pytest.mark.django_db(transaction=True)
NODE, ASKER, DECIDER = (str(uuid.UUID(int=n)) for n in (7, 8, 9))


def person(number):
    return Principal(kind="user", id=number, roles=frozenset({"approver", "destructive-operator"}))


def ordered(*, actor, operation="op-1", approval=None, risk="R3", nodes=(NODE,)):
    with transaction.atomic():
        return record(
            event_type="order.approved", outcome="success", actor=actor, tenant_id=None, object_kind="operation",
            object_id=operation, body={
                "operation": operation, "kinds": ["purge"], "nodes": list(nodes), "plan_hash": bytes(32),
                "selector_hash": bytes(32), "risk": risk, "approval": approval,
                "not_after": datetime.now(UTC) + timedelta(hours=1),
            },
        )  # fmt: skip


def decided(*, actor, approval, operation="op-1", decision="approved", risk="R3"):
    with transaction.atomic():
        return record(
            event_type="approval.decided", outcome="success", actor=actor, tenant_id=None, object_kind="approval",
            object_id=approval, flags=APPROVAL,
            body={"kind": "operation", "object": operation, "decision": decision, "risk": risk, "reason": ""},
        )  # fmt: skip


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
    approval, own = str(uuid.uuid4()), str(uuid.uuid4())
    decision = decided(actor=person(DECIDER), approval=approval)
    order = ordered(actor=person(ASKER), approval=approval)
    by_itself = decided(actor=person(ASKER), approval=own)
    of_itself = ordered(actor=person(ASKER), approval=own)
    of_worker = ordered(actor=system("worker"), approval=approval)
    small = ordered(actor=system("worker"), risk="R1")
    denied = decided(actor=person(DECIDER), approval=approval, decision="denied")
    size = sealed()
    assert isinstance(purge(order, size, decision), Signed)
    assert isinstance(purge(small, size), Signed)
    assert purge(order, size).code == "approval-missing"
    assert purge(of_itself, size, by_itself).code == "approval-own"
    assert purge(of_worker, size, decision).code == "approval-without-persons"
    assert purge(order, size, denied).code == "approval-denied"
    assert purge(order, size, by_itself).code == "approval-of-another-order"
    assert purge(order, size, decision, node=ASKER).code == "order-of-another-node"
    assert purge(order, size, decision, kind="erase").code == "order-of-another-kind"
    assert purge(decision, size, decision).code == "order-of-another-type"


def test_an_order_waits_for_the_head_that_holds_it(sealed):
    early = ordered(actor=system("worker"), risk="R0")
    first = sealed()
    ordered(actor=system("worker"), risk="R0")
    assert isinstance(purge(early, first), Signed)
    second = sealed()
    stale = purge(early, first)
    assert (stale.code, stale.size, stale.final) == ("stale-size", second, False)
    assert isinstance(purge(early, second), Signed)
