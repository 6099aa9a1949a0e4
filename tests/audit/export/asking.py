"""Exports as tests ask for them, and the verifier that judges them."""

import json
import subprocess
import sys
import zipfile
from datetime import UTC, datetime

from audit import jobs, work
from audit.models import Job
from audit.verifier import kvc_verify
from kvconsole.infra.access import tenant_context
from tests.tenants.making import principal

AUDITOR = principal(None, "auditor")


def ask(sealed, *, actor=AUDITOR, kind="export", **params):
    """A job that nobody works on yet; `sealed` is the fixture."""
    said = {"format": "jsonl", "proofs": True, "personal_data": False, "filters": {}, "previous": None, **params}
    said.setdefault("size", sealed.size)
    with tenant_context(actor):
        return jobs.job_request(
            kind=kind, params=said, actor=actor, now=datetime.now(UTC), event_type="job.cancelled",
            body={"kind": kind},
        )  # fmt: skip


def run(job):
    """A worker does it; the job as it then is."""
    work.job_run(job.id, holder="test", now=datetime.now(UTC))
    return Job.objects.get(id=job.id)


def made(sealed, **params):
    """The finished export's path; it must succeed."""
    done = run(ask(sealed, **params))
    assert (done.state, done.problem) == ("done", ""), done.problem
    return jobs.file_of(done.id)


def files(path):
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        return {name: bundle.read(name) for name in bundle.namelist()}


def verdict(path, tmp_path, *more):
    """What the offline verifier says, in a process of its own, with keys from elsewhere."""
    keys = tmp_path / "keys.txt"
    keys.write_bytes(files(path)["keys.txt"])
    done = subprocess.run(
        [sys.executable, kvc_verify.__file__, "bundle", str(path), "--keys", str(keys), "--json", *more],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)
