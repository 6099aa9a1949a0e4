"""Pages of tenants as the server writes them: what is in them, who sees what, how many queries they cost."""

import html
import re

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db
BUDGET = {"/tenants": 14, "/tenants/acme-code": 34, "/t/acme-code": 34, "/epochs": 30, "/settings": 22}
"""Queries of a page, with session and principal; independent of how much there is."""


def text_of(answer):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


@pytest.mark.parametrize("path", list(BUDGET))
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_page_is_complete_without_scripts_and_in_its_budget(tenanted, person, model, path, language):
    client = person("operator")
    client.cookies["django_language"] = language
    client.get(path)
    with CaptureQueriesContext(connections["default"]) as spent:
        answer = client.get(path)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert text.count("<h1") == 1
    assert "style=" not in text.replace("data-style=", "")
    assert "<script>" not in text
    assert "None" not in re.sub(r"<[^>]+>", "", text)
    assert len(spent) <= BUDGET[path], "\n".join(q["sql"][:110] for q in spent)


def test_the_list_shows_use_against_quota_and_who_has_used_one_up(tenanted, person):
    answer = person("viewer").get("/tenants")
    text = text_of(answer)
    assert "acme-code has used up a quota: hbm." in text.replace(" :", ":")
    assert "64 MiB of 64 MiB" in text
    assert "75.0 %" in text
    assert "1,536,000" in text
    assert "no limit" in text
    assert "New tenant" not in text, "a viewer makes no tenants"


def test_the_list_is_searched_and_paged(tenanted, person, monkeypatch):
    from tenants import directory

    client = person("viewer")
    assert "borealis-bank" not in text_of(client.get("/tenants?q=acme"))
    empty = text_of(client.get("/tenants?q=zz-nothing"))
    assert "“zz-nothing” leaves nothing" in empty
    assert "Show all" in empty
    monkeypatch.setattr(directory.tenants_page, "__kwdefaults__", {**directory.tenants_page.__kwdefaults__, "limit": 1})
    first = client.get("/tenants")
    assert [line["tenant"].slug for line in first.context["lines"]] == ["acme-code"]
    following = client.get(f"/tenants?after={first.context['page'].after}")
    assert [line["tenant"].slug for line in following.context["lines"]] == ["borealis-bank"]
    back = client.get(f"/tenants?before={following.context['page'].before}")
    assert [line["tenant"].slug for line in back.context["lines"]] == ["acme-code"]


def test_a_tenant_is_told_in_three_units_with_a_table_that_sums_up(tenanted, person):
    answer = person("viewer").get("/tenants/acme-code?unit=bytes")
    text = text_of(answer)
    assert "The quota of hbm is used up" in text
    assert "dram is at 94 % of its quota." in text
    assert "The guarantee of hbm is worth less than promised" in text
    rows = answer.context["chart"].rows
    assert rows[-1][1:] == ["≥ 6,000", "≥ 9,216,000", "≥ 8.79 GiB", "≥ 6 min"]
    assert [row[1] for row in rows[:-1]][:6] == ["1,000"] * 6
    assert "counting began later than this time" in text, "the seventh day was counted only in part"


def test_what_was_never_counted_is_not_zero(tenanted, person):
    answer = person("viewer").get("/tenants/borealis-bank")
    assert "0 B" in text_of(answer)
    other = person("viewer", name="ann").get("/tenants/borealis-bank?range=90d")
    assert other.context["chart"].veils


def test_why_two_namespaces_share_nothing(tenanted, person, model):
    client = person("viewer")
    items = client.get("/tenants/acme-code").context["namespaces"].items
    a, b = (n.digest for n in items[:2])
    text = text_of(client.get(f"/tenants/acme-code?a={a}&b={b}"))
    assert "They share nothing: 1 field differs." in text
    assert "tools" in text
    assert "They are one namespace" in text_of(client.get(f"/tenants/acme-code?a={a}&b={a}"))
    assert "One of them is not there." in text_of(client.get(f"/tenants/acme-code?a={a}&b={'0' * 64}"))
    assert client.get("/tenants/acme-code?a=x&b=x").status_code == 200


@pytest.mark.parametrize("path", ["/tenants/nobody", "/tenants/platform", "/t/nobody", "/epochs?model=none"])
def test_what_is_not_there_is_a_page(tenanted, person, path):
    answer = person("operator").get(path)
    assert answer.status_code == 404
    assert "There is nothing here for you" in text_of(answer)


def test_a_reader_is_told_which_role_shows_people(tenanted, person):
    text = text_of(person("viewer").get("/settings"))
    assert "People are shown to operators, approvers and auditors" in text
    assert "mira-okafor" in text_of(person("auditor", name="ann").get("/settings"))
