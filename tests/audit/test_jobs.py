"""The life of long work: one worker at a time, leases that end, files of nobody else."""

from datetime import UTC, datetime, timedelta

import pytest

from audit import jobs, work
from audit.models import Job
from kvconsole.infra.rest import Problem
from tests.audit.export.asking import AUDITOR, ask
from tests.audit.test_selectors import told
from tests.tenants.making import a_tenant, principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def now():
    return datetime.now(UTC)


def test_one_worker_at_a_time_and_the_next_one_when_the_lease_is_over(sealed):
    told()
    sealed()
    job = ask(sealed)
    assert jobs.jobs_due(now=now()) == [job.id]
    taken, lease = jobs.job_take(job.id, holder="a", now=now())
    assert taken.state == "running"
    assert jobs.job_take(job.id, holder="b", now=now()) is None
    assert work.job_run(job.id, holder="b", now=now()) == "not-due"
    assert jobs.jobs_due(now=now()) == []
    later = now() + timedelta(seconds=jobs.LEASE_SECONDS + 1)
    assert jobs.jobs_due(now=later) == [job.id]
    assert jobs.job_take(job.id, holder="b", now=later) is not None
    assert not jobs.job_keep(taken, lease, now=later, done=1), "overtaken"
    assert not jobs.job_end(taken, lease, now=later, state="done")


def test_whoever_asked_acts_and_the_log_is_read_as_the_tenant(sealed):
    told()
    sealed()
    mine = a_tenant()
    actor = principal(mine, "tenant-admin")
    job = ask(sealed, actor=actor)
    assert jobs.principal_of(job).subject == actor.subject
    assert jobs.reader_of(job).tenant_id == mine.id
    assert jobs.principal_of(ask(sealed)).tenant_id is None
    assert jobs.principal_of(ask(sealed)).roles == AUDITOR.roles


def test_a_directory_that_others_can_open_is_refused(settings, tmp_path):
    settings.EXPORT_DIR = str(tmp_path / "open")
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(Problem, match="0700"):
        jobs.directory()


def test_what_failed_or_was_cancelled_leaves_no_parts(sealed):
    told()
    sealed()
    job = ask(sealed)
    place = jobs.work_directory(job.id)
    (place / "events.jsonl").write_bytes(b"x")
    Job.objects.filter(id=job.id).update(state="failed", position={"at": "records"})
    jobs.jobs_sweep(now=now())
    assert not place.exists()
    assert Job.objects.get(id=job.id).position == {}
