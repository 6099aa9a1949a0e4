"""CSV that no program takes for anything but text."""

import csv
import io
import json
import uuid

import pytest

from audit.export import csvrows
from audit.export.records import Record

PAYLOADS = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\0=1", "＝1+1", "－1", "  =1+1", "\u00a0=1", "|cmd", "%x",
    "=cmd|' /C calc'!A0", '"=1+1"', '";=1+1', "a\r\nb", "a\nb,c", 'say "x"', "\u202e=1", "\ufeff=1", "\x1b[31m",
)  # fmt: skip


def a_record(**fields):
    body = {"action": "log.note", "actor": {"kind": "user", "roles": ["viewer"]}, "data": {"note": "=1"}}
    known = {
        "index": 7, "hash": bytes(32), "leaf": bytes(148), "event_id": uuid.UUID(int=1), "event_type": 0x0F01,
        "time_us": 1_700_000_000_123_456, "tenant_ref": bytes(16), "actor_ref": bytes(16), "outcome": 1, "flags": 17,
        "producer_id": 3, "producer_seq": 2**60, "body": json.dumps(body).encode(), "object_kind": "thing",
        "object_id": "o", "request_id": "r", "personal": None,
    }  # fmt: skip
    return Record(**known | fields)


def rows(*records):
    text = (csvrows.header() + csvrows.lines(records)).decode()
    return list(csv.reader(io.StringIO(text, newline=""), strict=True)), text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_cell_is_active_and_no_line_is_broken(payload):
    ((head, line), text) = rows(a_record(object_id=payload, request_id=payload))
    assert text.count("\r\n") == 2
    assert not any(ord(c) < 32 and c not in "\r\n" for c in text)
    for cell in (line[head.index("object_id")], line[head.index("request_id")]):
        assert cell.lstrip(" \u00a0\u3000")[:1] not in csvrows._ACTIVE


def test_plain_text_and_numbers_stay_as_they_are():
    ((head, line), _) = rows(a_record())
    said = dict(zip(head, line, strict=True))
    assert (said["index"], said["producer_seq"], said["object_id"]) == ("7", str(2**60), "o")
    assert said["time"] == "2023-11-14T22:13:20.123456Z"
    assert (said["action"], said["type"], said["flags"]) == ("log.note", "3841", "personal_data approval")
    assert json.loads(said["data"]) == {"note": "=1"}


def test_a_body_that_went_leaves_empty_cells():
    ((head, line), _) = rows(a_record(body=b""))
    assert dict(zip(head, line, strict=True))["data"] == ""
