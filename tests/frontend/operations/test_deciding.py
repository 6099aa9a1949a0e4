"""What waits for a second person: which of it is listed, and what it leads to."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approvals
from frontend.operations import deciding
from kvconsole.infra.access import system, tenant_context
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db


def listed(data, now, who):
    return [one["one"].id for one in deciding.approval_list(now, data, who)["lines"]]


def test_what_nobody_decided_in_time_is_expired_and_not_open(made):
    who, now = principal(None, "approver"), datetime.now(UTC)
    with tenant_context(system("test")):
        open_ = listed({}, now, who)
        assert open_ == sorted(open_)
        assert made["approval"] in open_
        assert listed({"state": "nonsense"}, now, who) == open_
        assert listed({"state": "expired"}, now, who) == []
        late = now + timedelta(days=2)
        assert listed({}, late, who) == []
        assert listed({"state": "expired"}, late, who) == open_[::-1]
        assert deciding.approval_list(late, {"state": "expired"}, who)["lines"][0]["state"] == "expired"


def test_what_an_approval_is_about_has_an_address_where_it_has_a_page(made):
    with tenant_context(system("test")):
        rows = {one.id: one for one in approvals()}
        assert deciding.place(rows[made["approval"]]) == f"/operations/{made['waiting']}"
        assert deciding.place(rows[made["approval-hold"]]) == f"/holds/{made['hold-awaiting_approval']}"
        assert deciding.place(rows[made["own"]]) == "", "its operation is not there"


def test_only_an_approver_who_did_not_ask_can_decide(made):
    now = datetime.now(UTC)
    with tenant_context(system("test")):
        one = next(row for row in approvals() if row.id == made["approval"])
        assert deciding.approval(one, now, principal(None, "approver"))["can"]
        assert not deciding.approval(one, now, principal(None, "viewer"))["can"]
        assert not deciding.approval(one, now + timedelta(days=2), principal(None, "approver"))["can"]
        asker = principal(None, "approver")
        one.requested_by = asker.subject
        assert not deciding.approval(one, now, asker)["can"]
