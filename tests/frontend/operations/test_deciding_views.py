"""Two persons, legal holds and the end of epochs on their pages, over the real services."""

import re

import pytest

from audit.approvals import approvals
from catalog.models import Hold, Operation, Plan
from tests.frontend.operations.test_asking import planned
from tests.frontend.operations.test_views import text
from tests.frontend.tenancy.conftest import proved

pytestmark = [pytest.mark.django_db(databases=["default", "tenant"]), pytest.mark.usefixtures("nobody")]


def asked(who, acme):
    row = planned(who, tenant=acme[0].slug, label="contracts", crypto_erase="yes")
    assert row.risk == "R3"
    phrase = re.search(r'Type <b class="mono">([^<]+)</b>', who.get(f"/plans/{row.id}/confirm").content.decode())[1]
    assert who.post(f"/plans/{row.id}/confirm", {"confirm_phrase": phrase, "reason": "Art. 17"}).status_code == 302
    return Operation.objects.get()


def test_who_asked_is_refused_in_every_way_and_another_person_decides(person, acme):
    who = proved(person("destructive-operator", "approver", name="asker"))
    operation = asked(who, acme)
    at = f"/approvals/{operation.approval}"
    assert operation.fenced_at is None
    for path in (at, f"{at}/approve"):
        page = who.get(path)
        assert "You asked for it, so somebody else decides." in text(page)
        assert '<form method="post" action="' + at not in page.content.decode()
    for act in ("approve", "deny"):
        answer = who.post(f"{at}/{act}", {"reason": "mine"})
        assert (answer.status_code, answer.context["code"]) == (403, "approval-own")
    assert approvals("open").count() == 1
    assert "You asked for 1 of them yourself." in text(who.get("/approvals"))
    assert "somebody else decides" in text(who.get("/approvals"))
    second = person("approver", name="second")
    assert second.get(f"{at}/approve").status_code == 302, "the second person proves who they are"
    page = proved(second).get(f"{at}/approve")
    assert f'action="{at}/approve"' in page.content.decode()
    assert "asker" in text(page)
    assert second.post(f"{at}/approve", {"reason": "seen"}).url == at
    assert "A second person agreed." in text(who.get(at))
    late = second.post(f"{at}/deny", {})
    assert (late.status_code, late.context["code"]) == (409, "approval-decided")


def test_a_viewer_sees_what_waits_and_no_button(person, acme):
    operation = asked(proved(person("destructive-operator", name="asker")), acme)
    who = person("viewer", name="looker")
    page = who.get(f"/approvals/{operation.approval}")
    assert "An approver decides." in text(page)
    assert f"/approvals/{operation.approval}/approve" not in page.content.decode()
    assert who.post(f"/approvals/{operation.approval}/approve").status_code == 403


def test_a_hold_is_asked_for_placed_and_its_end_asked_for(person, acme):
    who = proved(person("destructive-operator", name="asker"))
    wrong = who.post("/holds/new", {"tenant": acme[0].slug, "review_at": "soon"})
    assert wrong.context["form"].errors.keys() >= {"authority", "reason", "review_at"}
    given = {"tenant": acme[0].slug, "label": "contracts", "authority": "7 K 1/26", "reason": "x",
             "review_at": "2099-06-30"}  # fmt: skip
    answer = who.post("/holds/new", given)
    hold = Hold.objects.get()
    assert answer.url == f"/holds/{hold.id}"
    assert "Until then it keeps nothing." in text(who.get(answer.url))
    asked = approvals("open").get()
    assert f"/holds/{hold.id}" in who.get(f"/approvals/{asked.id}").content.decode()
    assert who.post(f"/approvals/{asked.id}/approve").status_code == 403
    Hold.objects.update(state="active")
    assert "stays where it lies" in text(who.get(answer.url))
    page = who.post(f"{answer.url}/release", {})
    assert page.context["form"].errors.keys() == {"reason"}
    assert who.post(f"{answer.url}/release", {"reason": "over"}).url == answer.url
    assert "its end was asked for" in text(who.get("/holds"))
    again = who.post(f"{answer.url}/release", {"reason": "over"})
    assert (again.status_code, again.context["code"]) == (409, "hold-over")


def test_the_end_of_an_epoch_begins_with_a_plan_and_ends_nothing(person, acme):
    from tenants.models import Epoch

    who = proved(person("destructive-operator"))
    epoch = Epoch.objects.select_related(None).first()
    name = epoch.model.name
    assert "End an epoch" in text(who.get("/epochs/retire", {"model": name}))
    assert f"{name}/{epoch.epoch}" in text(who.get("/epochs/retire")), "those that can end are named"
    answer = who.post("/epochs/retire", {"model": name, "number": str(epoch.epoch), "policy": "immediate"})
    row = Plan.objects.get()
    assert answer.url == f"/plans/{row.id}"
    assert row.kind == "epoch"
    epoch.refresh_from_db()
    assert epoch.state == "open"
    assert f"/plans/{row.id}/retire" in who.get(answer.url).content.decode()
    assert who.get(f"/plans/{row.id}/confirm").status_code == 404, "epochs have an address of their own"
    drained = who.post("/epochs/retire", {"model": name, "number": str(epoch.epoch), "policy": "drain",
                                          "drain_seconds": "5"})  # fmt: skip
    assert drained.context["form"].errors.keys() == {"drain_seconds"}
    none = who.post("/epochs/retire", {"model": name, "number": "99", "policy": "immediate"})
    assert none.status_code == 404
    assert who.post("/epochs/retire", {"model": name, "number": "x"}).context["form"].errors.keys() == {"number"}
