"""What a transaction says last goes with its COMMIT: it is there or nothing is, and whoever looks before sees it."""

import contextlib
import json

import pytest
from django.db import connection, transaction
from django.db.utils import DataError, InternalError, OperationalError
from psycopg.pq import TransactionStatus

from audit.models import Event
from audit.services import record
from kvconsole.infra import statements
from kvconsole.infra.access import tenant_context
from kvconsole.infra.ending import Insert, numbered
from tests.kvconsole.infra.test_postgres import end
from tests.tenants.making import a_tenant, principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
INT8 = 20
DIVIDED = Insert(b"divided", b"SELECT 1 / $1", (INT8,))


def note(text="x", **fields):
    return record(**{
        "event_type": "log.note", "outcome": "success", "actor": None, "tenant_id": None, "object_kind": "note",
        "object_id": "1", "body": {"note": text}, **fields,
    })  # fmt: skip


def texts():
    return sorted(json.loads(bytes(body))["data"]["note"] for (body,) in Event.objects.values_list("body"))


def divide(by, told=lambda given: None):
    statements.put(DIVIDED, [by.to_bytes(8)], told, using="default")


def waits():
    return len(connection._last)


@contextlib.contextmanager
def failing(kind):
    """A transaction that fails so, however far it comes."""
    with pytest.raises(kind), transaction.atomic():  # what it is about is which of its parts fails
        yield


class Undone(Exception):
    """Why a transaction ends."""


def test_what_is_said_last_takes_no_round_trip_of_its_own():
    pgconn, seen = connection.cursor().connection.pgconn, []
    with transaction.atomic():
        Event.objects.count()
        made = note()
        assert waits() == 1
        wait = connection.connection.wait
        connection.connection.wait = lambda *args: seen.append(pgconn.transaction_status) or wait(*args)
    del connection.connection.wait
    assert [status for status in seen if status != TransactionStatus.IDLE] == [TransactionStatus.ACTIVE]
    assert Event.objects.values_list("id").get() == (made.id,)
    assert (made.time_us, made.producer_seq) == Event.objects.values_list("time_us", "producer_seq").get()


def test_who_looks_in_the_same_transaction_sees_it():
    with transaction.atomic():
        note("first of all: nothing was said before it")
        assert Event.objects.count() == 1
        note("two")
        assert statements.fetch("SELECT count(*) FROM audit_event") == [(2,)]
        assert note("three").id > note("four").id - 2
        assert waits() == 0
    assert len(texts()) == 4


def test_if_it_fails_nothing_was_done_and_the_connection_is_good():
    for _ in range(2):
        with failing(DataError):
            note("undone").id  # noqa: B018
            divide(0)
        with failing(DataError):
            note("undone too")
            divide(0)
            note("never said")
        heard = []
        with transaction.atomic():
            divide(1, heard.extend)
        assert heard == [1]
    assert Event.objects.count() == 0


def test_what_was_undone_by_a_savepoint_is_not_said():
    with transaction.atomic():
        note("stays")
        with failing(Undone):
            note("goes")
            raise Undone
        with transaction.atomic():
            note("stays too")
    with failing(Undone):
        note("goes as well")
        raise Undone
    assert waits() == 0
    assert texts() == ["stays", "stays too"]


def test_a_broken_transaction_is_not_ended_well():
    with failing(InternalError):
        cursor = connection.cursor()
        divide(1)
        with pytest.raises(DataError):
            cursor.execute("SELECT 1 / 0")
    with transaction.atomic():
        note()
    assert Event.objects.count() == 1


def test_after_a_rollback_the_statement_is_prepared_anew():
    for turn in range(3):
        with transaction.atomic():
            note(str(turn))
        with failing(Undone):
            note("x").id  # noqa: B018
            raise Undone
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ROLLBACK; BEGIN")
    assert texts() == ["0", "1", "2"]


def test_a_server_that_went_is_told_of(postgres):
    with failing(OperationalError):
        Event.objects.count()
        note()
        end(postgres, connection.connection.info.backend_pid)
    with transaction.atomic():
        note("after")
    assert texts() == ["after"]


def test_what_was_said_for_a_tenant_is_that_tenants():
    one, other = a_tenant(slug="one"), a_tenant(slug="other")
    Event.objects.count()
    before = set(Event.objects.values_list("event_id", flat=True))
    said = {"event_type": "token.issued", "body": {"kind": "user"}}
    with tenant_context(principal(one)):
        mine = note(tenant_id=one.id, **said)
        with tenant_context(principal(other)):
            theirs = note(tenant_id=other.id, **said)
        again = note(tenant_id=one.id, **said)
    found = dict(Event.objects.exclude(event_id__in=before).values_list("event_id", "tenant_id"))
    assert found == {mine.event_id: one.id, theirs.event_id: other.id, again.event_id: one.id}


def test_places_of_values_are_numbered():
    assert numbered("INSERT INTO t VALUES (%s, %s)") == b"INSERT INTO t VALUES ($1, $2)"
