"""Exports are made as described, by whoever goes on with them, and the offline verifier agrees."""

import base64
import json
import uuid

import pytest

from audit import jobs, work
from audit.export import making
from audit.models import Event, Job
from audit.registry import TYPES
from audit.selectors import moment
from kvconsole.infra import keystore
from kvconsole.infra.access import tenant_context
from kvcore.leaf import parse_leaf
from tests.audit.export.asking import AUDITOR, ask, files, made, run, verdict
from tests.audit.test_selectors import sealed_of, told
from tests.tenants.making import a_tenant, principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def records(path):
    return [json.loads(line) for line in files(path)["events.jsonl"].splitlines()]


@pytest.mark.parametrize("format", ["jsonl", "csv", "ocsf"])
def test_a_whole_log_is_a_full_bundle_that_verifies(sealed, tmp_path, format):
    told(30)
    size = sealed()
    path = made(sealed, format=format)
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, size), said
    assert [one["index"] for one in records(path)] == list(range(size))
    manifest = json.loads(files(path)["manifest.json"])
    assert (manifest["full"], manifest["proof"], manifest["range"]) == (True, "range", {"first": 0, "last": size - 1})
    assert ("renderings/events.csv" in files(path)) == (format == "csv")
    assert ("renderings/ocsf.jsonl" in files(path)) == (format == "ocsf")


def test_the_same_checkpoint_makes_the_same_bytes(sealed, monkeypatch):
    monkeypatch.setattr(making, "SLICE", 7)
    told(40)
    size = sealed()
    first = made(sealed, format="csv").read_bytes()
    told(5)
    sealed()
    assert made(sealed, format="csv", size=size).read_bytes() == first


def test_a_few_records_of_many_carry_their_own_proofs(sealed, tmp_path):
    told(200)
    told(2, object_id="rare")
    told(200)
    sealed()
    path = made(sealed, filters={"object": "thing:rare"})
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, 2), said
    told(outcome="denied", object_id="first")
    told(200)
    told(outcome="denied", object_id="last")
    sealed()
    path = made(sealed, filters={"outcome": "denied"})
    assert json.loads(files(path)["manifest.json"])["proof"] == "inclusion"
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, 2), said


def test_some_records_of_a_range_stand_among_the_hashes_of_all(sealed, tmp_path):
    for _ in range(10):
        told(2, object_id="mine")
        told()
    sealed()
    path = made(sealed, filters={"object": "thing:mine"})
    found = files(path)
    assert json.loads(found["manifest.json"])["full"] is False
    assert len(found["hashes.bin"]) % 32 == 0
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, 20), said


def test_a_span_of_time_is_one_run_and_an_empty_one_says_that_nothing_happened(sealed, tmp_path):
    events = told(20)
    sealed()
    since, until = moment(events[5].time_us).isoformat(), moment(events[15].time_us).isoformat()
    path = made(sealed, filters={"from": since, "to": until})
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, 10), said
    path = made(sealed, filters={"from": "2001-01-01T00:00:00+00:00", "to": "2001-01-02T00:00:00+00:00"})
    code, said = verdict(path, tmp_path)
    assert (code, said["records"]) == (0, 0), said
    path = made(sealed, filters={"object": "thing:never"})
    assert verdict(path, tmp_path)[0] == 0


def test_the_next_bundle_shows_that_the_log_only_grew(sealed, tmp_path):
    told(9)
    sealed()
    first = run(ask(sealed))
    told(9)
    sealed()
    previous = {"manifest_sha256": first.result["manifest_sha256"], "size": first.result["size"]}
    path = made(sealed, previous=previous)
    assert {"checkpoint.prev", "consistency.txt"} <= set(files(path))
    assert verdict(path, tmp_path)[0] == 0


def test_a_kill_anywhere_leaves_a_job_that_ends_with_the_same_bytes(sealed, monkeypatch):
    monkeypatch.setattr(making, "SLICE", 3)
    monkeypatch.setattr(making, "KEEP_SECONDS", 0.0)
    told(25)
    size = sealed()
    whole = made(sealed, format="ocsf").read_bytes()
    job, steps, read = ask(sealed, format="ocsf", size=size), [], making.records.read

    class Killed(BaseException):
        """As nobody catches a kill."""

    def dying(*arguments, **named):
        steps.append(1)
        if len(steps) % 4 == 0:
            raise Killed
        return read(*arguments, **named)

    monkeypatch.setattr(making.records, "read", dying)
    kills = 0
    while Job.objects.get(id=job.id).state != "done":
        Job.objects.filter(id=job.id).update(lease_until=None)
        try:
            work.job_run(job.id, holder="another", now=job.created_at)
        except Killed:
            kills += 1
        part = jobs.work_directory(job.id) / "events.jsonl"
        if part.exists():
            with part.open("ab") as file:
                file.write(b"what was not on disk when the row was written")
        assert kills < 20
    assert kills >= 2
    assert jobs.file_of(job.id).read_bytes() == whole


def test_a_job_that_is_cancelled_leaves_nothing(sealed):
    told(3)
    sealed()
    job = ask(sealed)
    with tenant_context(AUDITOR):
        jobs.job_cancel(job_id=job.id, actor=AUDITOR)
    assert run(job).state == "cancelled"
    assert list(jobs.directory().iterdir()) == []


def test_it_waits_for_a_signer_that_is_away(sealed, settings):
    told(3)
    sealed()
    url, settings.SIGNER_URL = settings.SIGNER_URL, "http://127.0.0.1:1"
    job = run(ask(sealed))
    assert (job.state, job.problem) == ("running", "signer-unavailable")
    settings.SIGNER_URL = url
    Job.objects.filter(id=job.id).update(lease_until=None)
    assert run(job).state == "done"


def test_personal_data_is_disclosed_sealed_or_shredded_and_all_of_it_verifies(sealed, tmp_path):
    (event,) = told(actor=principal(None, "operator"), pii={"name": "Ada"})
    sealed()
    assert [r["pii"] for r in records(made(sealed)) if "pii" in r][-1] == "sealed"
    opened = made(sealed, personal_data=True)
    (said,) = [r["pii"] for r in records(opened) if isinstance(r.get("pii"), dict) and "name" in r["pii"]["data"]]
    assert said["data"] == {"name": "Ada"}
    code, told_ = verdict(opened, tmp_path)
    assert code == 0, told_
    key = sealed_of(Event.objects.only("id", "time_us").get(id=event.id)).key
    keystore.keystore().destroy(f"subject-{key.hex()}")
    shredded = made(sealed, personal_data=True)
    assert b"Ada" not in files(shredded)["events.jsonl"]
    assert [r for r in records(shredded) if r.get("pii") == "shredded"]
    code, told_ = verdict(shredded, tmp_path)
    assert code == 0, told_


def test_a_tenants_export_has_its_own_events_only(sealed, tmp_path):
    mine, other = a_tenant(), a_tenant()
    told(5, tenant=mine.id)
    told(5, tenant=other.id)
    sealed()
    theirs = set(Event.objects.filter(tenant_id=mine.id).values_list("event_id", flat=True))
    path = made(sealed, actor=principal(mine, "tenant-admin"))
    ids = {uuid.UUID(bytes=parse_leaf(base64.b64decode(record["leaf"])).event_id) for record in records(path)}
    assert ids == theirs
    code, said = verdict(path, tmp_path)
    assert code == 0, said


def test_the_export_is_an_event(sealed):
    told(3)
    sealed()
    job = run(ask(sealed))
    event = Event.objects.only("body").filter(event_type=TYPES["export.made"].number).get()
    said = json.loads(bytes(event.body))
    assert said["data"]["manifest_sha256"] == job.result["manifest_sha256"]
    assert said["data"]["records"] == job.result["records"]
    assert said["actor"]["kind"] == "user"


def test_without_proofs_there_is_only_the_rendering(sealed):
    told(3)
    sealed()
    assert set(files(made(sealed, format="csv", proofs=False))) == {"renderings/events.csv"}


def test_what_was_cut_out_of_the_log_ends_the_export(sealed, monkeypatch):
    told(3)
    sealed()
    job = ask(sealed)
    monkeypatch.setattr(making.records, "_EVENTS", making.records._EVENTS + " AND id > 1")
    assert (run(job).state, Job.objects.get(id=job.id).problem) == ("failed", "log-torn")
