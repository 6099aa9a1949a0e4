"""What an operation came to stays what it was: no login of the console makes an end another, or a step done."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connections, transaction

from audit.certifying import Drafted, certificate_issue
from audit.services import record
from catalog.models import Operation, Step
from catalog.operation_orders import operation_change, operation_conclude
from kvconsole.infra.access import FLEET_PLANE, system
from tests.catalog.test_operation_believing import _nobody as _nobody
from tests.catalog.test_operation_believing import tenant as tenant
from tests.catalog.test_operation_requests import planned, started
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
NOW = datetime.now(UTC)
TIMES = ("routed_at", "erased_at", "verified_at")
ENDS = "outcome = 'completed', concluded_at = now(), finalizers = '{}'"


def asked(tenant, **options):
    who = principal(at=NOW - timedelta(seconds=30))
    more = {"reason": "why", "confirm_phrase": "delete 0 objects"} if options else {}
    with transaction.atomic():
        return started(planned(who, tenant=tenant.slug, label="a", options=options), who, **more)


def event(operation):
    body = {"change": "paused", "generation": 2, "bytes_per_second": None}
    record(event_type="operation.changed", outcome="success", actor=system("test"), tenant_id=operation.tenant_id,
           object_kind="operation", object_id=str(operation.id), body=body)  # fmt: skip


def said(row, what, *values, evented=True):
    """What the database answers to it, beside an event or without: "" = it is done."""
    table = row._meta.db_table
    try:
        with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
            if evented:
                event(row)
            cursor.execute(f"UPDATE {table} SET {what} WHERE id = %s", (*values, row.id))
    except DatabaseError as refused:
        return refused.__cause__.sqlstate
    return ""


def certified(operation):
    with transaction.atomic():
        return certificate_issue(
            draft=Drafted(b"{}", uuid.uuid4().bytes * 2, "note"), operation=operation.id, erasure=2, flags=[],
            tenant_id=operation.tenant_id, seal=False, exceptions=0, receipts=0, supplements=None,
            actor=system("test"), now=NOW,
        )  # fmt: skip


def test_what_was_denied_is_never_shown_completed(tenant):
    denied = asked(tenant, crypto_erase=True)
    assert (denied.needs_approval, denied.fenced_at) == (True, None)
    for at in ("fenced_at", *TIMES):
        assert said(denied, f"{at} = now()") == "42501", at
    assert said(denied, ENDS) == "42501"
    assert said(denied, "outcome = 'completed'") == "42501"
    with transaction.atomic():
        operation_conclude(Operation.objects.get(id=denied.id), "denied", NOW)
    foreign = certified(asked(tenant))
    for what in (
        "outcome = 'completed'", "fenced_at = now()", "problem = 'x'", "reason = 'x'", "generation = 2",
        "paused = true",
        "stopped_at = now()", "throttle = 1", "observed_generation = 0", *(f"{at} = now()" for at in TIMES),
        f"certificate = '{foreign}'", "concluded_at = NULL, outcome = ''",
        f"{ENDS}, fenced_at = now(), verified_at = now(), certificate = '{foreign}'",
    ):  # fmt: skip
        before = Operation.objects.filter(id=denied.id).values().get()
        told = said(denied, what)
        assert told == "42501" or Operation.objects.filter(id=denied.id).values().get() == before, what
    assert said(denied, "due_at = now()", evented=False) == ""


def test_what_runs_is_concluded_by_its_own_certificate_and_beside_an_event(tenant):
    running = asked(tenant)
    assert running.fenced_at
    assert running.order_event
    other = certified(asked(tenant))
    assert said(running, "certificate = %s", other) == "42501"
    assert said(running, "certificate = %s", uuid.uuid4()) == "42501"
    assert said(running, ENDS) == "42501"  # it claims that something is gone
    assert said(running, "fenced_at = NULL") == "42501"
    own = certified(running)
    assert said(running, "certificate = %s", own, evented=False) == "23514"
    assert said(running, f"{ENDS}, certificate = %s", own, evented=False) == "23514"
    assert said(running, "verified_at = now()", evented=False) == ""
    assert said(running, "verified_at = now() - interval '1 hour'") == "42501"
    assert said(running, f"{ENDS}, certificate = %s", own) == ""
    assert said(running, "certificate = NULL") == "42501"


def test_what_was_stopped_is_never_completed(tenant):
    stopped = asked(tenant)
    own = certified(stopped)
    with transaction.atomic():
        operation_change(operation=stopped, change="stopped", actor=principal(), now=NOW)
    assert said(stopped, f"{ENDS}, certificate = %s", own) == "42501"


def a_step(operation, **said_):
    return Step(id=uuid.uuid4(), operation=operation.id, tenant_id=operation.tenant_id, intent_generation=1,
                args={}, created_at=NOW, due_at=NOW, **said_)  # fmt: skip


def refused(call, **more):
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        call(**more)
    return caught.value.__cause__.sqlstate


def test_a_node_s_step_is_done_by_its_receipt_which_stays(tenant):
    operation = asked(tenant)
    for kind in ("erase", "verify", "probe"):
        assert refused(a_step(operation, kind=kind, state="done").save, force_insert=True) == "42501"
        step = a_step(operation, kind=kind)
        step.save(force_insert=True)
        for state in ("done", "partial"):
            assert said(step, "state = %s", state) == "42501"
        assert said(step, "receipt = '{}'") == "42501"
        came = "state = 'done', receipt = '{\"key\": \"k\"}', receipt_hash = 'ab', receipt_event = 7"
        assert said(step, came, evented=False) == "23514"
        assert said(step, came) == ""
        for what in (
            "state = 'failed'", "receipt = '{}'", "receipt_hash = 'cd'", "receipt_event = 8", "done_blocks = 9",
            "told = '{\"a\": 1}'", "done_at = now()", "receipt = NULL, receipt_event = NULL",
        ):  # fmt: skip
            assert said(step, what) == "42501", what
        assert said(step, "code = 'doubted:x', args = '{\"compared\": true}'", evented=False) == ""
    purge = a_step(operation, kind="purge")
    purge.save(force_insert=True)
    assert said(purge, "state = 'done'", evented=False) == ""
    assert said(purge, "operation = gen_random_uuid()") == "42501"
