"""What hostile input becomes on its way through trail, log, bundle and renderings: text of one line, and provable."""

import csv
import io
import json

import psycopg
import pytest
from django.conf import settings
from django.db import transaction

from audit.drafts import MOST_BYTES
from audit.export import csvrows
from audit.services import EventRefused, record
from kvcore.leaf import body_hash
from tests.audit.export.asking import files, made, verdict
from tests.audit.export.test_csvrows import PAYLOADS
from tests.audit.loglab import INSERT, PLATFORM
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
HOSTILE = (
    *PAYLOADS, "a\nb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i", "".join(map(chr, range(32))), "\x7f\x9b31m",
    "\u202e\u2066", "\x1b]0;title\x07", "</script><img src=x>", "{{7*7}}", '","index":0,"leaf":"',
    "\U0001f9ea" * 50, "é" * 2000,
)  # fmt: skip


def told(text, place=None):
    """An event with the text wherever an event has some; a NUL is none that a column of PostgreSQL holds."""
    place = text.replace("\0", "") if place is None else place
    with transaction.atomic():
        return record(
            event_type="log.note", outcome="success", actor=principal(None, "operator"), tenant_id=None,
            object_kind="thing", object_id=place, body={"note": text}, pii={"name": text}, request_id=place[:64],
        )  # fmt: skip


def an_hour_ago(postgres):
    """An event of a machine whose clock went back."""
    body, back = b'{"action":"log.note","actor":{"kind":"system","roles":[]},"data":{"note":"back"}}', 3_600_000_000
    with psycopg.connect(postgres.superuser_dsn(settings.DB_NAME)) as c:
        c.execute(
            f"{INSERT.replace('(event_id', '(time_us, event_id')} VALUES"
            " ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %s, gen_random_uuid(), 3841, %s, %s, %s, 1,"
            " 0, %s, %s, %s, 'thing', 'back', '')",
            (back, PLATFORM, bytes(16), bytes(16), body, body_hash(body), bytes(32)),
        )


def test_whatever_was_written_is_one_line_and_no_cell_is_active_and_all_of_it_is_proven(sealed, postgres, tmp_path):
    for text in HOSTILE:
        told(text)
    told("x" * (MOST_BYTES - 1_000), "large")
    with pytest.raises(EventRefused, match="a body of"):
        told("x" * MOST_BYTES, "large")
    an_hour_ago(postgres)
    told("after")
    size = sealed()
    for form in ("csv", "ocsf"):
        path = made(sealed, format=form, personal_data=True)
        code, said = verdict(path, tmp_path)
        assert (code, said["records"], said["problems"]) == (0, size, []), said
        (back,) = said["remarks"]
        assert (back["code"], back["index"]) == ("clock-back", size - 2)
        found = files(path)
        lines = found["events.jsonl"].decode().split("\n")
        assert len(lines) == size + 1
        notes = [json.loads(line) for line in lines[:-1]]
        assert [one["body"]["data"]["note"] for one in notes[: len(HOSTILE)]] == list(HOSTILE)
        assert [one["pii"]["data"]["name"] for one in notes[: len(HOSTILE)]] == list(HOSTILE)
    assert [json.loads(line)["metadata"]["uid"] for line in found["renderings/ocsf.jsonl"].decode().split("\n")[:-1]]
    assert found["renderings/ocsf.jsonl"].count(b"\n") == size


def test_a_table_program_sees_text(sealed):
    for text in HOSTILE:
        told(text)
    size = sealed()
    text = files(made(sealed, format="csv", personal_data=True))["renderings/events.csv"].decode()
    assert not [c for c in text if ord(c) < 32 and c not in "\r\n"]
    head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert (len(rows), {len(row) for row in rows}) == (size, {len(head)})
    assert text.count("\r\n") == text.count("\n") == text.count("\r") == size + 1
    active = [cell for row in rows for cell in row if cell.lstrip(" \u00a0\u3000")[:1] in set(csvrows._ACTIVE)]
    assert not active
