"""Verify now: as sealed, or the first index that differs; goes on after a kill."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.conf import settings

from audit import rehash, verification, work
from audit.models import Job
from audit.selectors import places
from tests.audit.export.asking import ask, run
from tests.audit.loglab import Log
from tests.audit.test_selectors import told
from tests.tenants.making import a_tenant, principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def attack(postgres):
    """A superuser of the test database, past all triggers."""
    return Log(SimpleNamespace(dsn=lambda role: postgres.superuser_dsn(settings.DB_NAME))).attack


def test_an_edited_body_and_leaf_are_named(sealed, attack):
    told(20)
    size = sealed()
    assert run(ask(sealed, kind="verify")).result["verdict"] == "as sealed"
    attack(
        "UPDATE audit_event SET body = body || ' ' WHERE id = (SELECT event FROM audit_leaf WHERE idx = 9)",
        "UPDATE audit_leaf SET data = set_byte(data, 60, 1) WHERE idx = 13",
    )
    said = run(ask(sealed, kind="verify")).result
    assert (said["first_divergent"], said["size"]) == (9, size)
    assert {one["index"] for one in said["found"]} >= {9, 13}
    assert said["verdict"] == "diverges at 9"


def test_a_cut_tail_and_another_key_are_named(sealed, attack):
    told(20)
    size = sealed()
    for note in ("replace(note, '— ', '— x')", "'no note'"):
        attack(f"UPDATE audit_signing SET note = {note}")
        said = run(ask(sealed, kind="verify")).result
        assert [one["kind"] for one in said["found"]] == ["signature"]
    attack(f"DELETE FROM audit_leaf WHERE idx = {size - 1}")
    assert run(ask(sealed, kind="verify")).result["first_divergent"] is not None


def test_a_tenant_is_told_of_its_own_events_and_of_the_log_only_how_it_stands(sealed, attack):
    own, other = a_tenant(), a_tenant()
    mine, (theirs,), _ = told(3, tenant=own.id), told(1, tenant=other.id), told(2)
    sealed()
    admin = principal(own, "tenant-admin")
    spoil = "UPDATE audit_event SET body = body || ' ' WHERE id = {}"
    attack(spoil.format(theirs.id))
    said = run(ask(sealed, kind="verify", actor=admin)).result
    assert (said["verdict"], said["log"]) == ("as sealed", "diverges")
    assert (said["found"], said["divergences"], said["first_divergent"]) == ([], 0, None)
    attack(spoil.format(mine[1].id))
    said = run(ask(sealed, kind="verify", actor=admin)).result
    at = places([mine[1].id])[mine[1].id].index
    assert (said["verdict"], said["log"]) == (f"diverges at {at}", "diverges")
    assert [(one["kind"], one["index"]) for one in said["found"]] == [("body", at)]
    whole = run(ask(sealed, kind="verify")).result
    assert {one["index"] for one in whole["found"]} == {at, places([theirs.id])[theirs.id].index}


def test_it_goes_on_where_the_last_worker_stopped(sealed, monkeypatch):
    monkeypatch.setattr(rehash, "STEP", 256)
    monkeypatch.setattr(verification, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(verification, "WORK_SECONDS", 0.0)
    told(600)
    size = sealed()
    job, turns = ask(sealed, kind="verify"), 0
    while work.job_run(job.id, holder="t", now=datetime.now(UTC)) == "more":
        turns += 1
        kept = Job.objects.get(id=job.id)
        assert (kept.state, kept.done, kept.total) == ("running", turns * 256, size)
    assert turns == 2
    assert Job.objects.get(id=job.id).result["verdict"] == "as sealed"
