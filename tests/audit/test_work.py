"""What a worker makes of a job that cannot be done."""

from datetime import UTC, datetime, timedelta

import pytest

from audit import work
from audit.export import making, parts
from audit.models import Job
from tests.audit.export.asking import ask, run
from tests.audit.test_selectors import told

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_a_bug_leaves_the_job_for_later_and_a_size_that_cannot_be_ends_it(sealed, monkeypatch):
    told(3)
    sealed()
    job = ask(sealed)
    with monkeypatch.context() as broken:
        broken.setattr(making.records, "read", lambda *_, **__: 1 / 0)
        assert (run(job).problem, Job.objects.get(id=job.id).state) == ("internal", "running")
    Job.objects.filter(id=job.id).update(lease_until=None)
    monkeypatch.setattr(parts, "MOST", 100)
    assert (run(job).problem, Job.objects.get(id=job.id).state) == ("export-too-large", "failed")


def test_what_waits_for_a_day_is_given_up(sealed, settings):
    told()
    sealed()
    settings.SIGNER_URL = "http://127.0.0.1:1"
    job = ask(sealed)
    tomorrow = datetime.now(UTC) + timedelta(days=1, seconds=1)
    assert work.job_run(job.id, holder="t", now=tomorrow) == "ended"
    assert Job.objects.get(id=job.id).problem == "signer-unavailable"
