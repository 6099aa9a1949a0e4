"""Policies: the effect before the button, a version for every change, and one event for each."""

import pytest
from django.apps import apps

from routing import policies
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


def event_count():
    return apps.get_model("audit", "Event").objects.filter(object_kind="policy", object_id="default").count()


def given(answer):
    return dict(answer.context["form"].given)


def test_the_effect_stands_on_the_page_before_the_button(made, person):
    who = person("operator")
    first = who.get("/routing/policies/default")
    assert "Save as the next version" not in text(first)
    assert "Nothing was tried yet" in text(first)
    checked = who.get("/routing/policies/default", {**given(first), "kind": "least_loaded", "check": "1"})
    assert [row.kind for row in checked.context["rows"]] == ["predicted", "least_loaded"]
    assert checked.context["rows"][0].requests == 5
    assert "Save as the next version" in text(checked)
    assert policies.policy_find("default").version == 0, "a look changes nothing"


def test_what_is_saved_is_the_next_version_and_is_told_once(made, person):
    who = person("operator")
    form = {**given(who.get("/routing/policies/default")), "params-stickiness_cap": "2.5"}
    answer = who.post("/routing/policies/default", form)
    assert answer.status_code == 302
    found = policies.policy_find("default")
    assert (found.version, found.document["params"]["stickiness_cap"]) == (1, 2.5)
    assert event_count() == 1
    said = text(who.get("/routing/policies/default"))
    assert "Version 1, “predicted time”," in said
    assert "stickiness_cap 2.5" in said
    assert "default" in text(who.get("/routing/policies"))


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(made, person):
    who = person("operator")
    form = given(who.get("/routing/policies/default"))
    assert who.post("/routing/policies/default", form).status_code == 302
    again = who.post("/routing/policies/default", form)
    assert (again.status_code, again.context["code"]) == (412, "etag-mismatch")
    assert policies.policy_find("default").version == 1


@pytest.mark.parametrize(("field", "value"), [
    ("params-stickiness_cap", "0.5"), ("params-stickiness_cap", "x"), ("params-stickiness_cap", "NaN"),
    ("params-stickiness_cap", ""), ("params-use_learned", "0.5"), ("params-fresh_ms", "-1"),
    ("params-lost_ms", "1"), ("params-fresh_ms", "1" * 60),
])  # fmt: skip
def test_what_is_no_policy_is_said_beside_its_field(made, person, field, value):
    who = person("operator")
    form = {**given(who.get("/routing/policies/default")), field: value}
    checked = who.get("/routing/policies/default", {**form, "check": "1"})
    assert list(checked.context["form"].errors) == [field]
    assert checked.context["rows"] == []
    assert "Save as the next version" not in text(checked)
    assert who.post("/routing/policies/default", form).status_code in (400, 422)
    assert policies.policy_find("default").version == 0


def test_an_endless_threshold_is_an_empty_field(made, person):
    who = person("operator")
    first = who.get("/routing/policies/tree_p2c")
    assert given(first)["params-imbalanced_threshold"] == ""
    assert who.post("/routing/policies/tree_p2c", given(first)).status_code == 302
    assert policies.policy_find("tree_p2c").document["params"]["imbalanced_threshold"] is None


def test_a_model_is_decided_by_one_policy(made, person):
    who = person("operator")
    for name, status in (("one", 302), ("two", 409)):
        form = {**given(who.get(f"/routing/policies/{name}")), "model": "ref-1k"}
        assert who.post(f"/routing/policies/{name}", form).status_code == status


@pytest.mark.parametrize("role", ["viewer", "auditor", "approver", "destructive-operator"])
def test_who_may_not_change_it_may_try_it(made, person, role):
    who = person(role)
    first = who.get("/routing/policies/default")
    checked = who.get("/routing/policies/default", {**given(first), "check": "1"})
    assert len(checked.context["rows"]) == 2
    assert "Save as the next version" not in text(checked)
    assert who.post("/routing/policies/default", given(first)).status_code == 403


def test_a_name_that_cannot_be_one_is_not_there(person):
    assert person("viewer").get("/routing/policies/No%20Name").status_code == 404
    assert "There is no policy of this name yet." in text(person("viewer", name="o").get("/routing/policies/new-one"))
