"""That somebody looked into a finding is an event; it closes nothing."""

import pytest

from audit import explaining
from kvconsole.infra.sql import connect
from tests.frontend import plant_audit
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def found():
    with connect("migrate") as cx:
        plant_audit.finding(cx)
    return explaining.findings().get()


def test_through_rest_an_auditor_alone_acknowledges_and_the_last_word_counts(found):
    auditor, operator = Person("auditor"), Person("operator")
    path = f"/audit/findings/{found.id}"
    assert operator.get(path).json()["acknowledged"] is None
    assert operator.get(path).json()["id"] == str(found.id)  # greater than what JSON readers keep whole
    assert operator.post(f"{path}:acknowledge", {"note": "x"}).status_code == 403
    first, second = (auditor.post(f"{path}:acknowledge", {"note": note}).json() for note in ("a", "b"))
    assert first["acknowledged"] != second["acknowledged"]
    assert (second["closed_at"], operator.get(path).json()) == (None, second)
    assert operator.get("/audit/findings").json()["items"] == [second]
    said = auditor.get(f"/audit/events/{second['acknowledged']}").json()
    assert (said["action"], said["pii"]) == ("finding.acknowledged", {"note": "b"})
    assert auditor.post(f"{path}:acknowledge", {}).json()["code"] == "validation-failed"
    assert auditor.get(f"/audit/findings/{2**63}").status_code == 404
    assert auditor.post(f"/audit/findings/{found.id + 1}:acknowledge", {"note": "x"}).status_code == 404


def test_what_is_closed_is_not_acknowledged(found):
    with connect("migrate") as cx:
        cx.execute("UPDATE audit_finding SET resolved_at = now()")
    answer = Person("auditor").post(f"/audit/findings/{found.id}:acknowledge", {"note": "x"})
    assert (answer.status_code, answer.json()["code"]) == (409, "finding-closed")
