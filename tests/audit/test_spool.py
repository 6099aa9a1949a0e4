"""The spool: what was refused while PostgreSQL was away is an event exactly once, and readable by nobody meanwhile."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError, connections

from audit import refusals, spool
from audit.models import Event
from audit.services import pii_open
from kvconsole.infra import keystore, sql
from kvconsole.infra.evidence import Answered
from kvconsole.infra.principals import Principal
from kvcore.leaf import LATE
from tenants import services

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = {"event_type": "user.login_refused", "outcome": "denied", "object_kind": "user", "object_id": "",
          "body": {"reason": "unavailable", "repeated": 0, "calls": 1}}  # fmt: skip
ACTOR = Principal(kind="token", id="t1", roles=frozenset({"viewer"}), user_id="0" * 8 + "-0000-7000-8000-" + "0" * 12)


@pytest.fixture(autouse=True)
def place(settings, tmp_path):
    settings.SPOOL_DIR = str(tmp_path / "spool")
    return tmp_path / "spool"


def grown(place):
    return (place / spool.OPEN).read_bytes()


def events(number=0x0113):
    return list(Event.objects.using("default").defer("pii_ct", "pii_key").filter(event_type=number).order_by("id"))


def test_a_line_is_on_disk_for_its_owner_alone_and_says_no_name(place):
    assert spool.put({**FIELDS, "pii": {"username": "alice@example.org", "address": "192.0.2.7"}})
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / spool.OPEN).stat().st_mode) == 0o600
    assert b"alice" not in grown(place)
    assert b"192.0.2" not in grown(place)


def test_each_line_is_one_late_event_with_its_time_and_its_names_sealed_anew(place):
    before = datetime.now(UTC)
    spool.put({**FIELDS, "pii": {"username": "alice"}}, request_id="r-1")
    spool.put({**FIELDS, "event_type": "access.refused", "object_kind": "route", "object_id": "nodes",
               "body": {"route": "nodes", "method": "POST", "status": 503, "code": "unavailable", "calls": 1}},
              actor=ACTOR)  # fmt: skip
    assert spool.take_in() == 2
    assert spool.take_in() == 0
    (event,) = events()
    body = json.loads(bytes(event.body))
    assert (event.flags & LATE, event.request_id) == (LATE, "r-1")
    assert before <= datetime.fromisoformat(body["happened_at"]) <= before + timedelta(seconds=30)
    assert pii_open(_whole(event.id)) == {"username": "alice"}
    (refused,) = events(0x02F0)
    assert json.loads(bytes(refused.body))["actor"] == {"kind": "token", "roles": ["viewer"]}
    (said,) = events(0x0F07)
    assert json.loads(bytes(said.body))["data"] == {"events": 2, "lost": 0}
    assert not list(place.glob("taken-*"))


def _whole(event_id):
    names = [f.column for f in Event._meta.concrete_fields]
    with sql.connect("audit") as c:
        row = c.execute(f"SELECT {', '.join(names)} FROM audit_event WHERE id = %s", (event_id,)).fetchone()
    return Event(**dict(zip(names, row, strict=True)))


def test_a_torn_last_line_is_lost_and_said_so_and_those_after_it_are_not(place):
    spool.put(FIELDS)
    with open(place / spool.OPEN, "ab") as file:
        file.write(b'{"id":"0199')
    spool.put(FIELDS)
    assert spool.take_in() == 2
    assert json.loads(bytes(events(0x0F07)[0].body))["data"] == {"events": 2, "lost": 1}


def test_it_is_bounded_and_what_did_not_fit_is_counted(place, monkeypatch):
    spool.put(FIELDS)
    monkeypatch.setattr(spool, "MOST_BYTES", len(grown(place)) + 10)
    assert all(spool.put(FIELDS) for _ in range(5))
    assert grown(place).count(b"\n") == 1
    assert spool.take_in() == 1
    assert json.loads(bytes(events(0x0F07)[0].body))["data"] == {"events": 1, "lost": 5}
    assert not (place / spool.LOST).exists()


def test_killed_in_the_middle_no_line_is_doubled_or_lost(place, monkeypatch):
    monkeypatch.setattr(spool, "AT_ONCE", 3)
    for _ in range(10):
        spool.put(FIELDS)
    done, real = [], spool._record

    def dies(line):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(line)
        real(line)

    monkeypatch.setattr(spool, "_record", dies)
    with pytest.raises(KeyboardInterrupt):
        spool.take_in()
    assert len(events()) == 6, "two batches"
    monkeypatch.setattr(spool, "_record", real)
    monkeypatch.setattr(Path, "unlink", lambda *a, **k: None)  # killed before the file went
    assert spool.take_in() == 4
    monkeypatch.undo()
    spool.put(FIELDS)
    assert len(events()) == 10
    assert len(events(0x0F07)) == 1


def test_writers_at_once_and_a_file_that_is_set_aside_under_them_lose_nothing(place, settings):
    code = f"import django,os;django.setup();from audit import spool;[spool.put({FIELDS!r}) for _ in range(40)]"
    env = {**os.environ, "KVC_SPOOL_DIR": settings.SPOOL_DIR, "KVC_KEYSTORE_DIR": settings.KEYSTORE_DIR,
           "DJANGO_SETTINGS_MODULE": "kvconsole.settings.test"}  # fmt: skip
    running = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(2)]
    while any(one.poll() is None for one in running):
        spool.take_in()
    assert [one.returncode for one in running] == [0, 0]
    spool.take_in()
    assert len(events()) == 80


def test_without_a_key_store_or_a_safe_place_no_name_is_written(place, settings):
    settings.KEYSTORE_DIR = ""
    assert spool.put({**FIELDS, "pii": {"username": "alice"}})
    assert json.loads(grown(place))["sealed"] == ""
    place.chmod(0o755)
    assert not spool.put(FIELDS)
    settings.SPOOL_DIR = ""
    assert not spool.put(FIELDS)
    assert spool.take_in() == 0


def test_while_postgresql_is_away_refusals_wait_on_disk(place, monkeypatch):
    def away(**_):
        raise OperationalError from psycopg.OperationalError("connection refused")

    refusals._calls._seen.clear()
    monkeypatch.setattr(refusals, "record", away)
    monkeypatch.setattr("tenants.services.identity.record", away)
    answered = Answered(route="nodes-api", method="POST", status=503, code="unavailable", why="unchanged")
    assert refusals.call_record(principal=None, answered=answered)
    assert services.login_refused(username="bob", now=1e9, reason="unavailable", address="192.0.2.7")
    assert grown(place).count(b"\n") == 2
    assert keystore.keystore().exists(spool.KEY)


def test_who_found_no_database_is_not_made_to_wait_for_it_a_second_time(place, django_assert_num_queries):
    refusals._calls._seen.clear()
    answered = Answered(route="page-audit", method="GET", status=503, code="unavailable", why="")
    with django_assert_num_queries(0):
        assert refusals.call_record(principal=None, answered=answered)
    assert grown(place).count(b"\n") == 1


def test_several_who_take_it_in_at_once_take_each_line_once_and_none_fails(place):
    """As web and worker do, once PostgreSQL is back."""

    def take():
        try:
            return spool.take_in()
        finally:
            connections.close_all()

    for _ in range(12):  # a file each
        assert spool.put(FIELDS)
        (place / spool.OPEN).rename(place / f"taken-{sql.uuid7()}.jsonl")
    with ThreadPoolExecutor(4) as pool:
        counts = [done.result() for done in [pool.submit(take) for _ in range(4)]]
    assert (sum(counts), len(events())) == (12, 12)
    assert not list(place.glob("taken-*"))
