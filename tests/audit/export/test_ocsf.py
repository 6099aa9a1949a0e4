"""OCSF 1.8.0: every type of event has a class, and every event what its class requires."""

import json

import pytest

from audit.export import ocsf
from audit.registry import TYPES
from tests.audit.export.test_csvrows import a_record

BASE = ("activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid")
REQUIRED = {
    2003: ("compliance", "finding_info"), 2006: ("finding_info",), 3001: ("user",), 3002: ("user",), 3003: ("user",),
    3004: ("entity",), 3005: ("user", "privileges"), 3006: ("group",), 6002: ("app",),
    6003: ("actor", "api", "src_endpoint"), 6005: ("actor", "src_endpoint"),
}  # fmt: skip
ONE_OF = {
    3002: ("service", "dst_endpoint"), 3003: ("privileges", "group"), 3006: ("privileges", "user"),
    6005: ("database", "databucket", "table"),
}  # fmt: skip
INNER = {
    "user": ("uid", "name", "account"), "entity": ("uid", "name"), "group": ("uid", "name"), "app": ("uid", "name"),
    "src_endpoint": ("uid", "ip", "name", "hostname"), "databucket": ("uid", "name"), "service": ("uid", "name"),
}  # fmt: skip
ACTIVITIES = {
    2003: {1, 2, 3}, 2006: {1, 2, 3}, 3001: set(range(1, 12)), 3002: set(range(1, 8)), 3003: {1, 2, 3},
    3004: set(range(1, 14)), 3005: {1, 2}, 3006: set(range(1, 7)), 6002: set(range(1, 9)), 6003: {1, 2, 3, 4},
    6005: set(range(1, 11)),
}  # fmt: skip


def valid(event):
    assert not [name for name in BASE if name not in event]
    uid = event["class_uid"]
    assert event["category_uid"] == uid // 1000
    assert event["type_uid"] == uid * 100 + event["activity_id"]
    assert event["activity_id"] in ACTIVITIES[uid] | {0, 99}
    assert event["severity_id"] in range(7)
    assert event["metadata"]["version"] == "1.8.0"
    assert event["metadata"]["product"]["name"]
    assert isinstance(event["time"], int)
    assert len(str(event["time"])) == 13
    assert not [name for name in REQUIRED[uid] if not event.get(name)]
    assert any(event.get(name) for name in ONE_OF.get(uid, ())) or uid not in ONE_OF
    for name, parts in INNER.items():
        assert name not in event or any(event[name].get(part) for part in parts), name
    assert event["actor"]["user"]["uid"]
    if "finding_info" in event:
        assert event["finding_info"]["uid"]
        assert event["finding_info"]["title"]
    if "api" in event:
        assert event["api"]["operation"]


def test_every_type_of_event_is_mapped():
    assert set(ocsf.MAPPED) == set(TYPES)


@pytest.mark.parametrize("action", [*TYPES, "something.newer"])
@pytest.mark.parametrize("outcome", [0, 1, 2, 3])
def test_every_event_has_what_its_class_requires(action, outcome):
    number = TYPES[action].number if action in TYPES else 0x0EFF
    data = {"method": "DELETE", "route": "tenant", "status": 403} if action == "access.refused" else {}
    body = {"action": action, "actor": {"kind": "user", "roles": ["viewer"]}, "data": data}
    record = a_record(event_type=number, outcome=outcome, body=json.dumps(body).encode(), object_id="")
    valid(ocsf.event(record, origin="o"))


def test_rights_refusals_and_erasing_are_told_by_what_they_say():
    def of(action, **data):
        body = json.dumps({"action": action, "actor": {}, "data": data}).encode()
        return ocsf.event(a_record(event_type=TYPES[action].number, body=body), origin="o")

    assert of("user.changed", changed=["roles"], roles=["auditor"])["class_uid"] == 3005
    assert of("user.changed", changed=["email"])["class_uid"] == 3001
    assert of("access.refused", method="DELETE")["activity_id"] == 4
    assert of("command.ordered", kind="purge")["activity_id"] == 7
    assert of("command.ordered", kind="inventory")["activity_id"] == 99
    assert of("log.gap_found", producer=1)["severity_id"] == 5


def test_the_proofs_coordinates_are_under_unmapped_and_retired_bodies_pass():
    (line,) = ocsf.lines([a_record(body=b"")], origin="console/log/eu/1").splitlines()
    said = json.loads(line)
    valid(said)
    assert said["unmapped"]["kvconsole"]["leaf_index"] == 7
    assert said["unmapped"]["kvconsole"]["origin"] == "console/log/eu/1"
