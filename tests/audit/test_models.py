"""The audit tables themselves: they only grow, whoever tries, and nothing is lost on the way to the log."""

import contextlib
import threading

import psycopg
import pytest
from django.db import transaction

from audit.models import Event, Idempotency, Pending
from audit.services import record
from kvconsole.infra import sql
from kvconsole.infra.access import system
from tests.tenants.making import a_tenant, a_user

committed = pytest.mark.django_db(transaction=True)


def note(text="x", **fields):
    with transaction.atomic():
        return record(**{
            "event_type": "log.note", "outcome": "success", "actor": system("test"), "tenant_id": None,
            "object_kind": "note", "object_id": "1", "body": {"note": text}, **fields,
        })  # fmt: skip


ATTEMPTS = (
    "UPDATE audit_event SET outcome = 2",
    "UPDATE audit_event SET time_us = 0",
    "DELETE FROM audit_event",
    "TRUNCATE audit_event",
    "TRUNCATE audit_event CASCADE",
    "DELETE FROM audit_pending",
    "UPDATE audit_pending SET time_us = 0",
    "TRUNCATE audit_pending",
    "DELETE FROM audit_producer",
)


@committed
@pytest.mark.parametrize("role", ["tenant", "operator", "ingest", "router", "seq", "audit", "migrate"])
def test_no_login_role_changes_or_deletes(role):
    note()
    refused = (psycopg.errors.InsufficientPrivilege,)
    for attempt in ATTEMPTS:
        if (role, attempt) == ("seq", "DELETE FROM audit_pending"):
            continue  # its work
        with sql.connect(role) as c:
            if role == "migrate":
                c.execute("SET ROLE kv_owner")
            with pytest.raises(refused):
                c.execute(attempt)
    assert (Event.objects.only("id").count(), pending()) == (1, 1)


def pending():
    with sql.connect("audit") as c:
        return c.execute("SELECT count(*) FROM audit_pending").fetchone()[0]


def test_not_even_a_superuser_who_turns_ordinary_triggers_off(fresh_database):
    with psycopg.connect(fresh_database.dsn("superuser"), autocommit=True) as c:
        c.execute("SET session_replication_role = replica")
        month = c.execute("SELECT 'audit_event_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMM')").fetchone()[0]
        body = b'{"note":"x"}'
        digest = c.execute("SELECT sha256(%s)", (b"kvconsole/audit-body/v1\0" + body,)).fetchone()[0]
        c.execute(
            "INSERT INTO audit_event (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body, "
            "body_hash, pii_commit, object_kind, object_id, request_id) VALUES "
            "(gen_random_uuid(), 1, gen_random_uuid(), %s, %s, 1, 0, %s, %s, %s, '', '', '')",
            (bytes(16), bytes(16), body, digest, bytes(32)),
        )
        for attempt in (*ATTEMPTS, f"TRUNCATE {month}", f"DELETE FROM {month}", f"UPDATE {month} SET outcome = 3"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(attempt)
        assert c.execute("SELECT count(*) FROM audit_event").fetchone() == (1,)
        assert c.execute("SELECT count(*) FROM audit_pending").fetchone() == (1,)


@committed
def test_each_event_is_queued_once_and_in_the_same_transaction():
    made = [note(str(i)) for i in range(3)]
    with contextlib.suppress(RuntimeError), transaction.atomic():
        note("undone")
        raise RuntimeError
    with sql.connect("audit") as c:
        assert [r[0] for r in c.execute("SELECT event FROM audit_pending ORDER BY event")] == [e.id for e in made]


@committed
def test_producer_numbers_are_contiguous_over_threads_and_rollbacks():
    def work(n):
        for i in range(20):
            try:
                with sql.connect("operator", autocommit=False) as c:
                    c.execute(_RAW, _values())
                    if i % 5 == n % 5:
                        raise RuntimeError  # the connection rolls back
            except RuntimeError:
                continue

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    seqs = {}
    for producer, seq in Event.objects.values_list("producer_id", "producer_seq"):
        seqs.setdefault(producer, []).append(seq)
    assert sum(map(len, seqs.values())) == 6 * 16
    for producer, got in seqs.items():
        assert sorted(got) == list(range(1, len(got) + 1)), producer


_RAW = (
    "INSERT INTO audit_event (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body, body_hash,"
    " pii_commit, object_kind, object_id, request_id) VALUES (gen_random_uuid(), 3841, %s, %s, %s, 1, 0, %s,"
    " sha256(%s), %s, '', '', '')"
)


def _values(body=b"{}"):
    return (sql.PLATFORM, bytes(16), bytes(16), body, b"kvconsole/audit-body/v1\0" + body, bytes(32))


@committed
def test_what_the_database_sets_cannot_be_chosen():
    for column in ("id", "time_us", "producer_id", "producer_seq"):
        with sql.connect("operator") as c, pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute(f"INSERT INTO audit_event ({column}) VALUES (1)")


_BODY = b"kvconsole/audit-body/v1\0{}"
_ROW = {
    "event_id": "gen_random_uuid()", "event_type": "3841", "tenant_id": f"'{sql.PLATFORM}'",
    "tenant_ref": "decode(repeat('00', 16), 'hex')", "actor_ref": "decode(repeat('00', 16), 'hex')", "outcome": "1",
    "flags": "0", "body": "'{}'", "body_hash": f"sha256('\\x{_BODY.hex()}')", "pii_ct": "NULL",
    "pii_commit": "sha256('')", "pii_key": "NULL", "object_kind": "''", "object_id": "''", "request_id": "''",
}  # fmt: skip
_SEALED = {"flags": "1", "pii_ct": "'x'", "pii_key": "decode(repeat('00', 16), 'hex')"}


def _insert(**fields):
    row = _ROW | fields
    return f"INSERT INTO audit_event ({', '.join(row)}) VALUES ({', '.join(row.values())})"


@committed
def test_what_no_event_is_like_is_refused():
    wrong = (
        {"body_hash": "sha256('other')"}, {"body": "'{ }'"}, {"body": "''", "body_hash": "sha256('')"},
        {"tenant_ref": "'\\x00'"}, {"actor_ref": "'\\x00'"}, {"pii_commit": "'\\x00'"}, {"outcome": "4"},
        {"outcome": "-1"}, {"flags": "256"}, {"flags": "-2"}, {"event_type": "65536"}, {"event_type": "-1"},
        {"flags": "1"}, {**_SEALED, "flags": "0"}, {**_SEALED, "pii_ct": "NULL"}, {**_SEALED, "pii_key": "NULL"},
        {**_SEALED, "pii_key": "'\\x00'"},
        {"object_kind": "repeat('k', 401)"}, {"object_id": "repeat('i', 8193)"}, {"request_id": "repeat('r', 401)"},
        {**_SEALED, "pii_ct": "decode(repeat('00', 1100001), 'hex')"},
    )  # fmt: skip
    with sql.connect("operator") as c:
        for fields in wrong:
            with pytest.raises(psycopg.errors.CheckViolation):
                c.execute(_insert(**fields))
        for name in set(_ROW) - {"pii_ct", "pii_key"}:
            with pytest.raises(psycopg.errors.NotNullViolation):
                c.execute(_insert(**{name: "NULL"}))
        for good in ({}, _SEALED):
            c.execute(_insert(**good))
    assert (Event.objects.only("id").count(), pending()) == (2, 2)


SPOILING = {
    "a line of its own": '{"a":1,\n"b":2}', "a list": "[1]", "a text": '"x"', "nothing": "null", "no JSON": "{a}",
    "more behind it": '{}{"index":7}', "a key twice": '{"a":1,"a":2}', "a key twice, deep": '{"a":[{"b":1,"b":[]}]}',
    "a key twice, escaped": '{"a":1,"\\u0061":2}', "half a character": '{"a":"\\ud800"}', "no number": '{"a":NaN}',
    "too large a number": '{"a":9007199254740992}',
    "far too large a number": f'{{"a":[-1{"0" * 500}]}}', "too deep": f'{{"a":{"[" * 70}{"]" * 70}}}',
    "so deep that it cannot be read": f'{{"a":{"[" * 9_000}{"]" * 9_000}}}', "too long": f'{{"a":"{"x" * 1_052_672}"}}',
}  # fmt: skip


SOUND = (
    '{"a":"\\"\\\\","b":{"a":[{"a":"é"},{"a":9007199254740991}]}}', f'{{"a":"{"x" * 2000}","b":-0.5e-7}}',
    '{"a":"\\\\ud800 \\u001f\\u0000"}', f'{{"a":{"[" * 60}{"]" * 60}}}', f'{{"a":"{"x" * 1_048_576}"}}',
    '{"a":"\\"\\\\","b":[{"a":1},{"a":null}]}',
)  # fmt: skip


def _of(body):
    hashed = b"kvconsole/audit-body/v1\0" + body
    return {"body": f"'\\x{body.hex()}'", "body_hash": f"sha256('\\x{hashed.hex()}')"}


@committed
@pytest.mark.parametrize(("role", "kind"), [("operator", "3841"), ("ingest", "769")])
def test_no_body_comes_in_that_readers_read_differently_or_that_spoils_an_export(role, kind):
    """What is in the log stays in every export that is made of it."""
    with sql.connect(role) as c:
        for why, text in {**SPOILING, "no text": '{"a":"\udcff"}'}.items():
            statement = _insert(event_type=kind, **_of(text.encode(errors="surrogateescape")))
            with pytest.raises((psycopg.DataError, psycopg.IntegrityError, psycopg.OperationalError)):
                pytest.fail(f"{why}: {c.execute(statement).statusmessage}")
        for text in SOUND:
            c.execute(_insert(event_type=kind, **_of(text.encode())))
    assert pending() == len(SOUND)


@committed
def test_the_slow_look_at_a_body_sees_all_that_the_fast_one_does(postgres, settings):
    """Where PostgreSQL is too old for the fast one, it is the only one."""
    look = "SELECT audit_sound_slowly(%s)"
    with psycopg.connect(postgres.superuser_dsn(settings.DB_NAME), autocommit=True) as c:
        for why in set(SPOILING) - {"too long"}:
            with contextlib.suppress(psycopg.DataError, psycopg.OperationalError):
                assert c.execute(look, (SPOILING[why],)).fetchone() == (False,), why
        for text in SOUND:
            assert c.execute(look, (text,)).fetchone() == (True,)


@committed
def test_no_row_is_in_the_queue_that_is_not_in_the_trail():
    one = "'01900000-0000-7000-8000-000000000001'"
    with sql.connect("operator") as c:
        for _ in range(3):
            c.execute(f"{_insert(event_id=one)} ON CONFLICT DO NOTHING")
    assert (Event.objects.only("id").count(), pending()) == (3, 3)


@committed
def test_a_session_has_a_slot_of_its_own_and_waits_only_where_all_are_held(postgres, settings):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(sql.connect("operator", autocommit=False)) for _ in range(6)]
        for c in held:
            c.execute("SET lock_timeout = '1ms'")
            c.commit()
        seen = {c.execute(f"{_insert()} RETURNING producer_id").fetchone()[0] for c in held}
        assert len(seen) == 6
        for c in held:
            c.rollback()
        own = held[0].info.backend_pid % 64
        assert [held[0].execute(f"{_insert()} RETURNING producer_id").fetchone()[0] for _ in range(3)] == [own] * 3
        held[0].rollback()
        s = stack.enter_context(psycopg.connect(postgres.superuser_dsn(settings.DB_NAME)))
        s.execute("UPDATE audit_producer SET seq = seq WHERE id <> 33")
        assert held[0].execute(f"{_insert()} RETURNING producer_id").fetchone()[0] == 33
        held[0].rollback()
        s.execute("UPDATE audit_producer SET seq = seq")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            held[0].execute(_insert())
        held[0].rollback()
        s.rollback()
    with sql.connect("audit") as c:
        assert c.execute("SELECT sum(seq), count(xact) FROM audit_producer").fetchone() == (0, 0)


@committed
def test_a_change_of_rights_without_an_event_cannot_commit():
    tenant = a_tenant()
    person = a_user(tenant=tenant, roles=["tenant-member"])
    token = (
        "INSERT INTO tenants_token (id, kind, tenant_id, user_id, holder, name, secret_hash, roles, scopes, cidr,"
        f" created_at, expires_at) VALUES ('x', 'user', %s, '{person.id}', '', '', '', '{{}}', '{{}}', '', now(),"
        " now())"
    )
    for role, change in (("operator", "UPDATE tenants_tenant SET name = 'x' WHERE id = %s"), ("tenant", token)):
        with sql.connect(role, autocommit=False) as c:
            sql.enter(c, tenant.id)
            assert c.execute(change, (tenant.id,)).rowcount == 1
            with pytest.raises(psycopg.errors.CheckViolation, match="without an audit event"):
                c.commit()


@committed
def test_an_event_of_another_transaction_or_one_that_was_undone_is_none(postgres, settings):
    tenant = a_tenant()
    change, refused = f"UPDATE tenants_tenant SET name = 'x' WHERE id = '{tenant.id}'", "without an audit event"
    with sql.connect("operator", autocommit=False) as c:
        with contextlib.suppress(RuntimeError), c.transaction():
            c.execute(_insert())
            raise RuntimeError
        c.execute(_insert())
        c.commit()
        for statements in ([change], ["SAVEPOINT s", _insert(), "ROLLBACK TO s", change]):
            for statement in statements:
                c.execute(statement)
            with pytest.raises(psycopg.errors.CheckViolation, match=refused):
                c.commit()
        with psycopg.connect(postgres.superuser_dsn(settings.DB_NAME)) as s:  # its own slot is held: it has another
            s.execute("UPDATE audit_producer SET seq = seq WHERE id = %s", (c.info.backend_pid % 64,))
            c.execute(_insert())
            c.execute(change)
            c.commit()
            s.rollback()


@committed
def test_a_month_is_made_by_the_sequencer_and_is_as_safe_as_the_others(settings):
    with sql.connect("operator") as c, pytest.raises(psycopg.errors.InsufficientPrivilege):
        c.execute("SELECT audit_partition('2044-02-01')")
    with sql.connect("seq") as c:
        assert c.execute("SELECT audit_partition('2044-02-17')").fetchone() == ("audit_event_204402",)
        assert c.execute("SELECT audit_partition('2044-02-01')").fetchone() == ("audit_event_204402",)
        triggers = dict(
            c.execute(
                "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'audit_event_204402'::regclass"
            ).fetchall()
        )
    assert set(triggers) == {"enter", "immutable", "ordered", "ordered_beside", "retired", "untruncatable"}
    assert set(triggers.values()) == {"A"} or set(triggers.values()) == {b"A"}


@committed
def test_only_the_sequencer_drains():
    event = note()
    with sql.connect("seq") as c:
        assert c.execute("DELETE FROM audit_pending WHERE event = %s", (event.id,)).rowcount == 1
    assert pending() == 0


@pytest.mark.django_db
def test_models_name_the_columns_that_are_there():
    note()
    for model, role in ((Event, "audit"), (Pending, "audit"), (Idempotency, "operator")):
        columns = ", ".join(f.column for f in model._meta.concrete_fields)
        with sql.connect(role) as c:
            c.execute(f"SELECT {columns} FROM {model._meta.db_table}")


def test_the_router_has_nothing_of_the_audit_trail(db):
    """Whoever routes neither reads what others did nor can say that it was done."""
    with sql.connect("router") as c:
        for attempt in ("SELECT event_id FROM audit_event", "SELECT body FROM audit_event_rest",
                        "INSERT INTO audit_event (object_kind) VALUES ('node')",
                        "SELECT nextval('audit_event_id_seq')"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(attempt)
