"""The list of decisions: filters, pages, what became of them, and a counter that leaves nothing out."""

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from frontend.routing import decisions
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


def ids(answer):
    return [str(line["one"].id) for line in answer.context["rows"]]


def test_the_newest_come_first_and_say_what_became_of_them(made, person):
    answer = person("viewer").get("/routing")
    assert ids(answer) == [str(one) for one in (made.foreign, made.nobody, made.fetched, made.computed, made.held)]
    said = text(answer)
    assert "3 decisions were made and could not be recorded." in said
    assert "5 decisions in the last hour, 60.0 % of them with something that was there already." in said
    assert answer.context["mix"].answers == {"compute": 1, "fetch": 3, "refused": 1}


def test_what_was_made_is_what_was_recorded_left_out_and_dropped(made, person):
    counted = person("viewer").get("/routing").context["counted"]
    assert counted["made"] == counted["recorded"] + counted["sampled_out"] + counted["dropped"]
    assert counted["dropped"] == 3


@pytest.mark.parametrize(("query", "names"), [
    ("answer=refused", ["nobody"]), ("node=ams-m1", ["fetched"]), ("tenant=borealis-bank", ["foreign"]),
    ("tenant=acme-code&answer=fetch", ["held", "fetched"]), ("kept=refusal", ["nobody"]), ("model=none", []),
    ("tenant=none", []), ("policy=predicted&answer=compute", ["computed"]),
])  # fmt: skip
def test_a_filter_leaves_what_it_says(made, person, query, names):
    answer = person("viewer").get(f"/routing?{query}")
    found = ids(answer)
    assert sorted(found) == sorted(str(getattr(made, name)) for name in names)
    if not found:
        assert "This filter leaves nothing" in text(answer)


def test_a_filter_that_is_none_is_left_out(made, person):
    assert person("viewer").get("/routing?answer=nonsense&kept=x").context["used"] == {}


def test_pages_are_walked_there_and_back_and_none_is_left_out(made, person, monkeypatch):
    monkeypatch.setattr(decisions, "ROWS", 2)
    who, path, walked = person("viewer"), "/routing", []
    while path:
        answer = who.get(path)
        walked += ids(answer)
        after = answer.context["page"].after
        path = f"/routing{after}" if after else ""
    assert len(walked) == len(set(walked)) == 5
    back = who.get(f"/routing{answer.context['page'].before}")
    assert ids(back) == walked[2:4]
    assert ids(who.get("/routing?after=nonsense")) == walked[:2]


def test_the_page_stays_in_its_budget_of_queries(made, person):
    who = person("viewer")
    who.get("/routing")
    with CaptureQueriesContext(connections["default"]) as spent:
        assert who.get("/routing?tenant=acme-code").status_code == 200
    assert len(spent) <= 14, "\n".join(q["sql"][:110] for q in spent)


def test_nobody_is_logged_in(client):
    assert client.get("/routing", headers={"accept": "text/html"}).url.startswith("/login?next=")
