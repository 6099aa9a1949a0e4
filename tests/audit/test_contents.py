"""Bodies that somebody wrote past the services, or edited: they stop no page, no export and no message."""

import csv
import io
import json
import uuid

import pytest

from audit import selectors
from audit.contents import UNREADABLE, content_of, whole_number
from audit.export import csvrows, ocsf, parquet
from audit.export.making import _gaps
from audit.models import Event
from audit.registry import TYPES
from audit.webhooks.kinds import event_message
from tests.audit.export.test_csvrows import a_record

GAP = TYPES["log.gap_found"].number
NONE_OF_OURS = {
    "no text": b"\xff\xfe", "no JSON": b"{a}", "a list": b"[1]", "nothing": b"null", "no number": b'{"data":{"a":NaN}}',
    "an actor in a word": b'{"actor":"x"}', "roles in a number": b'{"actor":{"kind":5,"roles":7}}',
    "data in a word": b'{"data":"x"}', "half a character": b'{"data":{"a":"\\ud800"}}',
    "beyond numbers": b'{"data":{"a":1e999}}', "as deep as can be": b'{"data":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}  # fmt: skip
ODD = {
    "roles": {"roles": 7, "scopes": "x"}, "changed": {"changed": 5, "roles": None},
    "a gap of words": {"expected": "x", "producer": []}, "far too large": {"expected": 2**70, "producer": 1},
    "a gap of halves": {"expected": 1.5, "found": True, "producer": 1},
    "below zero": {"expected": -5, "found": -2, "producer": -1},
}  # fmt: skip


def an_event(body, number):
    return Event(
        event_id=uuid.UUID(int=1), event_type=number, time_us=1, tenant_id=uuid.UUID(int=2), tenant_ref=bytes(16),
        actor_ref=bytes(16), outcome=1, flags=0, producer_id=1, producer_seq=1, body=body, body_hash=bytes(32),
        object_kind="k", object_id="i", request_id="",
    )  # fmt: skip


@pytest.mark.parametrize("name", [*NONE_OF_OURS, *ODD])
@pytest.mark.parametrize(
    "action", ["log.gap_found", "token.issued", "user.changed", "access.refused", "sharing.requested"]
)
def test_every_reader_goes_on(name, action):
    odd, number = name in ODD, TYPES[action].number
    body = NONE_OF_OURS.get(name) or json.dumps({"action": "order.approved", "data": ODD[name]}).encode()
    record = a_record(event_type=number, body=body)
    (_, row) = csv.reader(io.StringIO((csvrows.header() + csvrows.lines([record])).decode()))
    assert row[3] == action, "its type is that of the leaf"
    assert odd or "unreadable" in row[6] or row[14] in ('"x"', '{"a":"\\ud800"}', '{"a":1e999}'), "verbatim, as text"
    (line,) = ocsf.lines([record], origin="o").splitlines()
    assert json.loads(line)["metadata"]["event_code"] == action
    assert parquet._row(record)[3] == action
    view = selectors.event_view(an_event(body, number), None, None, opened=False)
    assert (view.action, view.actor_roles, "unreadable" in view.flags) == (action, [], not odd)
    assert view.data == (ODD[name] if odd else {})
    said = json.loads(event_message("log.gap", action=action, index=1, event_id="e", time="t", body=body))
    assert said["data"]["action"] == action
    assert _gaps([record]) == []


def test_what_services_write_is_read_as_it_was_written():
    said = {"action": "log.gap_found", "actor": {"kind": "system", "roles": []}, "outcome": "failure",
            "data": {"producer": 3, "expected": 5, "found": 9}, "object": {"id": "1", "kind": "p"}}  # fmt: skip
    body = json.dumps(said).encode()
    said = content_of(body)
    assert (said.actor.kind, said.object.id, said.outcome) == ("system", "1", "failure")
    assert whole_number(said.data, "expected") == 5
    assert _gaps([a_record(event_type=GAP, body=body)]) == [{"first": 5, "index": 7, "last": 8, "producer": 3}]
    assert content_of(b"") is not UNREADABLE
    assert selectors.event_view(an_event(b"", GAP), None, None, opened=False).data is None
