"""Deny windows from their page, over the real service; what is typed becomes a cron line."""

from datetime import UTC, datetime, timedelta

import pytest
from django.http import QueryDict

from catalog.models import DenyWindow
from frontend.operations import windows
from kvconsole.infra.sql import PLATFORM
from tests.frontend.operations.test_views import text
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import a_tenant

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nobody")]
GIVEN = {"begin": "08:30", "minutes": "90", "from_risk": "R2", "reason": "release week"}


def typed(**given):
    data = QueryDict(mutable=True)
    for name, value in given.items():
        data.setlist(name, value if isinstance(value, list) else [value])
    return windows.window_form(data)


@pytest.mark.parametrize(("given", "cron"), [
    ({"begin": "8:05"}, "5 8 * * *"), ({"begin": "23:59", "days": ["1", "0"]}, "59 23 * * 0,1"),
    ({"begin": "8：05", "days": list("1234560")}, "5 8 * * *"), ({"begin": "x", "cron": " 0  0 1 * * "}, "0 0 1 * *"),
    ({"begin": "00:00", "days": ["9", "x"]}, "0 0 * * *"),
])  # fmt: skip
def test_a_time_and_days_are_a_cron_line_and_a_line_takes_their_place(given, cron):
    form = typed(**given)
    assert (windows.cron_of(form), form.code) == (cron, "")


@pytest.mark.parametrize("begin", ["", "24:00", "8", "08:60", "noon"])
def test_what_is_no_time_of_the_day_says_so(begin):
    form = typed(begin=begin)
    assert windows.cron_of(form) == ""
    assert "begin" in form.errors


def test_what_the_form_writes_is_read_as_words_and_any_other_line_as_it_stands():
    def line(cron):
        row = DenyWindow(tenant_id=PLATFORM, cron=cron, minutes=60, from_risk="R1")
        return windows.line(row, "", datetime(2026, 11, 30, 8, 30, tzinfo=UTC))

    own = line("15 8 * * 0,1")
    assert (own["time"], [str(day) for day in own["days"]]) == ("08:15", ["Monday", "Sunday"])
    assert own["until"] == datetime(2026, 11, 30, 9, 15, tzinfo=UTC)
    other = line("15 8 1 */3 *")
    assert (other["time"], other["until"]) == ("", None)


def test_a_window_is_made_listed_and_taken_away_with_a_proof(person):
    who = person("destructive-operator")
    assert "There is no deny window" in text(who.get("/deny-windows"))
    assert who.post("/deny-windows", {**GIVEN, "days": ["1", "5"]}).url == "/deny-windows"
    row = DenyWindow.objects.get()
    assert (row.cron, row.minutes, row.from_risk, row.tenant_id) == ("30 8 * * 1,5", 90, "R2", PLATFORM)
    said = text(who.get("/deny-windows"))
    for word in ("08:30", "Monday, Friday", "the whole fleet", "release week", "all from R2 on"):
        assert word in said, word
    path = f"/deny-windows/{row.id}/remove"
    assert who.post(path).url.startswith("/account/confirm"), "it lets more be destroyed, so it asks who you are"
    assert DenyWindow.objects.exists()
    assert "What it held back may start at once." in text(proved(who).get(path))
    assert who.post(path).url == "/deny-windows"
    assert not DenyWindow.objects.exists()
    assert who.post(path).status_code == 404


def test_one_that_is_open_says_until_when_and_who_only_looks_changes_nothing(person):
    now = datetime.now(UTC)
    DenyWindow.objects.create(
        tenant_id=a_tenant().id, cron="* * * * *", minutes=1, from_risk="R1", reason="now", requested_by="user:x",
        created_at=now - timedelta(hours=1),
    )  # fmt: skip
    who = person("viewer")
    page = who.get("/deny-windows")
    assert page.context["lines"][0]["until"] > now
    assert "1 deny window is open" in text(page)
    assert "/remove" not in page.content.decode()
    assert "Make the window" not in text(page)
    assert who.post("/deny-windows", GIVEN).status_code == 403


@pytest.mark.parametrize(("given", "wrong"), [
    ({"minutes": "0"}, "minutes"), ({"minutes": "x"}, "minutes"), ({"reason": ""}, "reason"),
    ({"from_risk": "R9"}, "from_risk"), ({"cron": "99 * * * *"}, "cron"), ({"tenant": "nobody-here"}, "tenant"),
])  # fmt: skip
def test_what_is_no_window_says_which_field_and_keeps_what_was_typed(person, given, wrong):
    page = person("destructive-operator").post("/deny-windows", {**GIVEN, **given})
    assert page.status_code in (400, 404)
    assert wrong in page.context["form"].errors
    assert page.context["form"].given["begin"] == "08:30"
    assert not DenyWindow.objects.exists()
