"""What is asked of the log leaves its event, by whatever way it was asked."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from audit import selectors, wishes
from kvconsole.infra.access import tenant_context
from kvconsole.infra.rest import Problem
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
FIELDS = {"format": "csv", "proofs": True, "personal_data": False}


def test_a_search_seals_the_names_that_were_typed():
    who = principal(None, "auditor")
    with tenant_context(who):
        wishes.searched({"actor": "mira", "outcome": "denied"}, 3, actor=who)
        event = selectors.selected(selectors.EventFilter(action="log.searched")).get()
    assert b"mira" not in bytes(event.body)
    assert b'"records":3' in bytes(event.body)


def test_nothing_is_asked_for_before_something_is_signed():
    who = principal(None, "auditor")
    for ask in (
        lambda: wishes.export_request(FIELDS, actor=who, now=datetime.now(UTC)),
        lambda: wishes.verification_request(actor=who, now=datetime.now(UTC)),
    ):
        with tenant_context(who), pytest.raises(Problem) as refused:
            ask()
        assert refused.value.code == "not-signed"
    with tenant_context(who):
        assert not selectors.jobs().exists()


@pytest.mark.parametrize(("kind", "state", "code"), [
    ("verify", "done", "not-found"), ("export", "queued", "job-open"), ("export", "failed", "export-gone"),
])  # fmt: skip
def test_only_a_finished_export_has_a_file(tmp_path, settings, kind, state, code):
    settings.EXPORT_DIR = str(tmp_path / "exports")
    job = SimpleNamespace(kind=kind, state=state, id="0", params={}, result={})
    with pytest.raises(Problem) as refused:
        wishes.export_take(job, "", actor=principal(None, "auditor"))
    assert refused.value.code == code
