"""What the log says while PostgreSQL is away, on the errors that PostgreSQL and its driver really raise."""

import logging

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, utils

from kvconsole.infra import outage, sql
from kvconsole.infra.outage import LATE_SECONDS, REMIND_SECONDS, Absence, Quiet, is_absence


def raised(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as e:
        return e
    raise AssertionError("nothing was raised")


@pytest.fixture
def refused():
    """What a driver says where nobody listens."""
    return raised(psycopg.connect, "host=127.0.0.1 port=1 connect_timeout=2")


class Log:
    """A logger behind the filter, with a clock that tests turn."""

    def __init__(self):
        self.now, self.lines = 1000.0, []
        self.absence = Absence(clock=lambda: self.now)
        self.logger = logging.Logger("some.loop")
        handler = logging.Handler()
        handler.addFilter(Quiet(self.absence))
        handler.emit = lambda record: self.lines.append(logging.Formatter("%(levelname)s %(message)s").format(record))
        self.logger.addHandler(handler)

    def failed(self, exc, message="it failed"):
        self.logger.warning(message, exc_info=exc)

    def back(self):
        return self.absence.ended()


@pytest.fixture
def log():
    return Log()


def test_hundreds_of_failures_are_one_line_a_reminder_a_minute_and_one_at_the_end(log, refused):
    for _ in range(800):
        log.failed(refused)
        log.now += 0.125
    first, reminder = log.lines
    assert first.startswith("ERROR PostgreSQL is away (OperationalError: connection failed")
    assert "Traceback" not in first + reminder
    assert reminder == "ERROR PostgreSQL is away for 60 s; 480 failures were not listed"
    assert log.back() == "PostgreSQL is back after 100.0 s; 799 failures were not listed"
    assert log.back() is None


def test_what_broke_with_the_old_server_is_no_new_absence(log, refused):
    log.failed(refused)
    log.back()
    log.now += LATE_SECONDS - 1
    log.failed(refused)
    assert len(log.lines) == 1
    log.now += 2
    log.failed(refused)
    assert len(log.lines) == 2
    assert REMIND_SECONDS > LATE_SECONDS


def test_unexpected_exceptions_keep_their_traceback(log, refused):
    log.failed(refused)
    log.failed(raised(int, "x"), "a bug")
    try:
        try:
            raise refused
        except psycopg.Error:
            {}["key"]  # a bug in the handling is a bug
    except KeyError as e:
        log.failed(e, "another")
    log.logger.error("no exception at all")
    assert [line.splitlines()[0] for line in log.lines[1:]] == [
        "WARNING a bug", "WARNING another", "ERROR no exception at all",
    ]  # fmt: skip
    assert "ValueError" in log.lines[1]
    assert "Traceback" in log.lines[1]


def test_pages_that_answer_503_for_it_are_not_listed_and_others_are(log, refused):
    extra = {"status_code": 503}
    log.logger.error("Service Unavailable: /", extra=extra)
    log.failed(refused)
    log.logger.error("Service Unavailable: /", extra=extra)
    log.logger.error("Internal Server Error: /", extra={"status_code": 500})
    assert [line.split(":")[0] for line in log.lines] == [
        "ERROR Service Unavailable", "ERROR PostgreSQL is away (OperationalError", "ERROR Internal Server Error",
    ]  # fmt: skip


def test_what_a_pool_of_connections_says_of_it_is_counted_too(log, refused):
    pool = logging.Logger(outage.POOL_LOG)
    pool.handlers = log.logger.handlers
    pool.warning("error connecting in %r: %s", "pool-1", ValueError("no absence"))
    pool.warning("discarding closed connection: %s", object())
    for _ in range(3):
        pool.warning("error connecting in %r: %s", "pool-1", refused)
        pool.warning("discarding closed connection: %s", object())
    assert [line.split(":")[0] for line in log.lines] == [
        "WARNING error connecting in 'pool-1'", "WARNING discarding closed connection",
        "ERROR PostgreSQL is away (OperationalError",
    ]  # fmt: skip
    assert log.back() == "PostgreSQL is back after 0.0 s; 2 failures were not listed"


@pytest.mark.django_db(transaction=True)
def test_only_an_absence_is_one(postgres):
    with sql.connect("operator") as one, sql.connect("operator") as other:
        assert not is_absence(raised(one.execute, "SELECT 1/0"))
        assert not is_absence(raised(one.execute, "SELECT nothing"))
        one.execute("SET statement_timeout = 10")
        assert not is_absence(raised(one.execute, "SELECT pg_sleep(1)"))
        with psycopg.connect(postgres.superuser_dsn(), autocommit=True) as superuser:
            superuser.execute("SELECT pg_terminate_backend(%s)", (other.info.backend_pid,))
        assert is_absence(raised(other.execute, "SELECT 1"))
        assert is_absence(raised(other.execute, "SELECT 1"))  # now it is known to be closed
    with connection.cursor() as cursor:
        assert not is_absence(raised(cursor.execute, "SELECT 1/0"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
        with psycopg.connect(postgres.superuser_dsn(), autocommit=True) as superuser:
            superuser.execute("SELECT pg_terminate_backend(%s)", (pid,))
        broken = raised(cursor.execute, "SELECT 1")
        assert isinstance(broken, OperationalError)
        assert is_absence(broken)
        assert is_absence(ExceptionGroup("tasks", [broken]))
        assert not is_absence(ExceptionGroup("tasks", [broken, ValueError()]))
    connection.close()
    assert not is_absence(utils.OperationalError("without a cause"))
    assert not is_absence(None)


@pytest.mark.django_db(transaction=True)
def test_any_new_connection_ends_it(caplog):
    for connect in (lambda: sql.connect("operator").close(), lambda: (connection.close(), connection.connect())):
        outage.absence._back_at = -LATE_SECONDS
        assert outage.absence.noticed("gone")
        caplog.clear()
        connect()
        assert [r.message.partition(" after ")[0] for r in caplog.records] == ["PostgreSQL is back"]
        assert not outage.absence.lasts


def test_every_handler_of_ours_has_the_filter():
    assert all("quiet" in handler["filters"] for handler in settings.LOGGING["handlers"].values())
    assert settings.LOGGING["loggers"]["uvicorn.error"]["filters"] == ["quiet"]


def test_a_foreign_host_header_is_one_line_without_a_trace(client):
    lines = []
    handler = logging.Handler()
    handler.addFilter(Quiet(Absence()))
    handler.emit = lambda record: lines.append(logging.Formatter("%(levelname)s %(message)s").format(record))
    logging.getLogger("django").addHandler(handler)
    try:
        assert client.get("/login", headers={"host": "evil.example" + "x" * 5000}).status_code == 400
    finally:
        logging.getLogger("django").removeHandler(handler)
    (line,) = lines
    assert line.startswith("WARNING Invalid HTTP_HOST header: 'evil.examplexxx")
    assert len(line) < 220
    assert "\n" not in line
