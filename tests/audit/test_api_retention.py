"""REST of retention: asked for by an operator with a proof, shown to readers."""

from datetime import UTC, datetime

import pytest

from tests.tenants.persons import OPERATOR, Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_it_is_asked_for_and_waits_for_a_second_person():
    operator = Person(*OPERATOR)
    made = operator.post("/audit/retentions", {"class": 1, "month": "2021-03"})
    assert (made.status_code, made.json()["state"], made.json()["what"]["month"]) == (202, "open", "2021-03")
    assert operator.post("/audit/retentions", {"class": 1, "month": "2021-03"}).json()["code"] == "retention-done"
    young = f"{datetime.now(UTC):%Y-%m}"
    assert operator.post("/audit/retentions", {"class": 1, "month": young}).json()["code"] == "retention-too-young"
    assert operator.get("/audit/retentions").json() == {"items": []}


def test_it_needs_a_proof_and_the_role():
    assert Person(*OPERATOR, proved=False).post("/audit/retentions", {}).status_code == 403
    assert Person("auditor").post("/audit/retentions", {"class": 1, "month": "2021-03"}).status_code == 403
