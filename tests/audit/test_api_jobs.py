"""REST of exports and verifications."""

import hashlib
import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from audit import jobs, work
from audit.export import parquet
from audit.models import Event, Job
from audit.registry import TYPES
from tests.audit.test_selectors import told
from tests.tenants.making import a_tenant
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
KEY = {"Idempotency-Key": "k-1"}


def asked(call, body=None, path="/audit/exports", **headers):
    return call.post(path, body if body is not None else {}, **{"Idempotency-Key": str(uuid.uuid4()), **headers})


def done(job):
    work.job_run(uuid.UUID(job["id"]), holder="t", now=datetime.now(UTC))


def count(name):
    return Event.objects.filter(event_type=TYPES[name].number).count()


def test_an_export_is_asked_for_made_and_taken_away(sealed):
    told(5)
    sealed()
    call = Person("auditor")
    answer = asked(call, {"format": "csv", "filters": {"object": "thing"}})
    assert (answer.status_code, count("export.requested")) == (202, 1)
    job = answer.json()
    assert answer["Location"] == f"/api/v1/audit/jobs/{job['id']}"
    assert call.get(f"/audit/jobs/{job['id']}/download").json()["code"] == "job-open"
    done(job)
    now = call.get(f"/audit/jobs/{job['id']}").json()
    assert (now["state"], now["progress"]["percent"], count("export.made")) == ("done", 100.0, 1)
    whole = b"".join(call.get(f"/audit/jobs/{job['id']}/download").streaming_content)
    assert hashlib.sha256(whole).hexdigest() == now["result"]["sha256"]
    part = call.get(f"/audit/jobs/{job['id']}/download", Range="bytes=10-19")
    assert (part.status_code, b"".join(part.streaming_content)) == (206, whole[10:20])
    assert part["Content-Range"] == f"bytes 10-19/{len(whole)}"
    beyond = call.get(f"/audit/jobs/{job['id']}/download", Range=f"bytes={len(whole)}-")
    assert (beyond.status_code, count("export.downloaded")) == (416, 2)
    assert [j["id"] for j in call.get("/audit/jobs?kind=export").json()["items"]] == [job["id"]]
    assert call.get("/audit/jobs?kind=odd").json()["code"] == "validation-failed"


def test_the_same_key_asks_once_and_a_rehearsal_never(sealed):
    told()
    sealed()
    call = Person("auditor")
    assert call.post("/audit/exports?validate_only=true", {}, **KEY).status_code == 202
    assert Job.objects.count() == 0
    first, again = (call.post("/audit/exports", {}, **KEY).json() for _ in range(2))
    assert (first["id"], Job.objects.count()) == (again["id"], 1)
    assert call.post("/audit/exports", {}).json()["code"] == "idempotency-key-required"


def test_what_cannot_be_is_refused(sealed, settings, monkeypatch):
    call = Person("auditor", proved=False)
    assert asked(call).json()["code"] == "not-signed"
    told()
    sealed()
    assert asked(call, {"size": 10**6}).json()["code"] == "validation-failed"
    assert asked(call, {"format": "xml"}).json()["code"] == "validation-failed"
    assert asked(call, {"personal_data": True}).json()["code"] == "step-up-required"
    monkeypatch.setattr(parquet, "available", lambda: False)
    assert (asked(call, {"format": "parquet"}).status_code) == 422
    assert asked(Person("operator")).json()["code"] == "forbidden"
    settings.EXPORT_DIR = ""
    assert asked(call).json()["code"] == "exports-unconfigured"


def test_too_many_at_once_are_refused_and_one_can_be_cancelled(sealed):
    told()
    sealed()
    call = Person("auditor")
    made = [asked(call).json() for _ in range(jobs.MOST_OPEN)]
    assert asked(call).json()["code"] == "too-many-jobs"
    assert call("POST", f"/audit/jobs/{made[0]['id']}:cancel").json()["cancelling"] is True
    done(made[0])
    assert call.get(f"/audit/jobs/{made[0]['id']}").json()["state"] == "cancelled"
    assert call("POST", f"/audit/jobs/{made[0]['id']}:cancel").json()["code"] == "job-over"
    assert call.get(f"/audit/jobs/{made[0]['id']}/download").json()["code"] == "export-gone"


def test_a_tenants_people_have_their_own(sealed):
    mine = a_tenant()
    told(2, tenant=mine.id)
    sealed()
    theirs = asked(Person("auditor")).json()
    call = Person("tenant-admin", tenant=mine)
    job = asked(call).json()
    assert [j["id"] for j in call.get("/audit/jobs").json()["items"]] == [job["id"]]
    assert call.get(f"/audit/jobs/{theirs['id']}").json()["code"] == "not-found"
    done(job)
    assert len(b"".join(call.get(f"/audit/jobs/{job['id']}/download").streaming_content)) > 1_000
    assert count("export.made") == 1


def test_a_verification_says_as_sealed(sealed):
    told(30)
    size = sealed()
    call = Person("auditor")
    job = call("POST", "/audit:verify", **KEY).json()
    done(job)
    now = call.get(f"/audit/jobs/{job['id']}").json()
    assert (now["state"], now["result"]["verdict"], now["result"]["size"]) == ("done", "as sealed", size)
    event = Event.objects.only("body", "outcome").get(event_type=TYPES["log.verified"].number)
    assert (json.loads(bytes(event.body))["data"]["first_divergent"], event.outcome) == (None, 1)
    assert call.get(f"/audit/jobs/{job['id']}/download").json()["code"] == "not-found"


def test_old_files_go_and_rows_stay_a_while(sealed):
    told()
    sealed()
    call = Person("auditor")
    job = asked(call).json()
    done(job)
    path = jobs.file_of(job["id"])
    assert path.exists()
    assert jobs.directory().stat().st_mode & 0o777 == 0o700
    assert jobs.jobs_sweep(now=datetime.now(UTC)) == 0
    assert jobs.jobs_sweep(now=datetime.now(UTC) + timedelta(days=8)) == 1
    assert not path.exists()
    assert call.get(f"/audit/jobs/{job['id']}").json()["state"] == "removed"
    assert call.get(f"/audit/jobs/{job['id']}/download").json()["code"] == "export-gone"
    jobs.jobs_sweep(now=datetime.now(UTC) + timedelta(days=99))
    assert call.get(f"/audit/jobs/{job['id']}").json()["code"] == "not-found"
