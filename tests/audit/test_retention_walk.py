"""Retention from the wish to what auditors check afterwards: two persons through REST, and all proofs hold."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.conf import settings

from audit import retention, selectors
from audit.models import Event
from audit.registry import TYPES
from audit.verifier import kvc_verify
from tests.audit.export.asking import ask, files, made, run, verdict
from tests.audit.loglab import Log
from tests.audit.test_selectors import told
from tests.tenants.persons import APPROVER, OPERATOR, Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
NOW = datetime.now(UTC)
OLD = f"{NOW.year - 2}-{NOW.month:02d}"
TWO_YEARS_US = int((NOW - datetime(NOW.year - 2, NOW.month, 3, tzinfo=UTC)).total_seconds() * 1e6)


def aged(postgres, events):
    """They are of two years ago, as if the clock of then had made them, and wait to be sealed."""
    ids = ", ".join(str(event.id) for event in events)
    attack = Log(SimpleNamespace(dsn=lambda role: postgres.superuser_dsn(settings.DB_NAME))).attack
    attack(
        f"UPDATE audit_event SET time_us = time_us - {TWO_YEARS_US} WHERE id IN ({ids})",
        f"UPDATE audit_pending SET time_us = time_us - {TWO_YEARS_US} WHERE event IN ({ids})",
    )


def proof(call, event, tmp_path, keys, name):
    """The verdict on an event's proof, with its body if it is kept."""
    (tmp_path / name).write_bytes(call.get(f"/audit/proofs/{event.event_id}").content)
    options = kvc_verify.arguments().parse_args(["proof", str(tmp_path / name), *(f"--key={key}" for key in keys)])
    return kvc_verify.run(options)


def test_two_persons_through_rest_and_everything_still_verifies(sealed, postgres, tmp_path):
    old = told(4, kind="token.revoked", pii={"email": "x@example.org"})
    aged(postgres, old)
    kept = told(3)
    sealed()
    before = made(sealed)
    operator, approver, auditor = Person(*OPERATOR), Person(*APPROVER), Person("auditor")
    asked = operator.post("/audit/retentions", {"class": 1, "month": OLD})
    assert (asked.status_code, asked.json()["what"]["events"]) == (202, 4)
    decide = f"/approvals/{asked.json()['id']}:approve"
    assert retention.retentions_due() == 0, "one person is not enough"
    both = Person(*OPERATOR, *APPROVER)
    own = both.post("/audit/retentions", {"class": 2, "month": OLD}).json()
    assert both.post(f"/approvals/{own['id']}:approve", {"reason": ""}).json()["code"] == "approval-own"
    assert approver.post(decide, {"reason": "old"}).status_code == 200
    assert retention.retentions_due() == 1
    sealed()
    (gone,) = approver.get("/audit/retentions").json()["items"]
    assert (gone["class"], gone["month"], gone["events"], gone["approval"]) == (1, OLD, 4, asked.json()["id"])
    actions = set(Event.objects.values_list("event_type", flat=True))
    assert {TYPES[n].number for n in ("retention.requested", "approval.decided", "log.bodies_retired")} <= actions

    shown = auditor.get(f"/audit/events/{old[0].event_id}").json()
    assert (shown["data"], shown["index"] is None, shown["pii"]) == (None, False, "retired")
    assert auditor.get(f"/audit/events/{kept[0].event_id}").json()["data"] == {"note": "0"}
    keys = files(before)["keys.txt"].decode().splitlines()
    for n, event in enumerate((old[0], kept[0])):
        assert proof(auditor, event, tmp_path, keys, f"proof-{n}").verdict == "valid"
    code, said = verdict(before, tmp_path)
    assert (code, said["verdict"]) == (0, "valid"), "what was exported before is whole"
    code, said = verdict(made(sealed), tmp_path)
    assert (code, said["verdict"], said["retired"]) == (3, "incomplete", 4), "and now says what is gone"
    assert [one["code"] for one in said["reasons"]] == ["body-not-kept"]
    assert said["problems"] == []
    places = {place.index for place in selectors.places([event.id for event in old]).values()}
    bodies = {r["index"]: r["body"] for r in map(json.loads, files(made(sealed))["events.jsonl"].splitlines())}
    assert {index for index, body in bodies.items() if body is None} == places
    checked = run(ask(sealed, kind="verify")).result
    assert (checked["verdict"], checked["divergences"]) == ("as sealed", 0)
