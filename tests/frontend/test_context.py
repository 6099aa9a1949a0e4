"""What every page knows: where one can go, who is there."""

import dataclasses

import pytest

from frontend import context


@pytest.mark.parametrize(
    ("name", "letters"), [("Mira Okafor", "MO"), ("mira-okafor", "MO"), ("operator", "OP"), ("x", "X"), ("", "")]
)
def test_initials(name, letters):
    assert context.initials(name) == letters


def test_keys_of_the_rail_are_unique():
    keys = [entry.keys for entry in context.RAIL]
    assert len(set(keys)) == len(keys)
    assert {"o", "m", "a", "e", "n", "s", "u", "v"} <= set(keys)


@pytest.mark.django_db
def test_the_rail_has_only_what_the_role_may_see(client, person):
    stranger = client.get("/docs/problems", headers={"accept": "text/html"}).context["console"]
    assert [e["entry"].route for e in stranger["entries"]] == ["page-verify", "page-ui", "page-problems"]
    viewer = person("viewer").get("/docs/problems").context["console"]
    first = [e["entry"].route for e in viewer["entries"]][:4]
    assert first == ["page-overview", "page-map", "page-prefixes", "page-nodes"]
    assert "page-portal" not in [e["entry"].route for e in viewer["entries"]], "that is a tenant's own people's"
    assert [e["entry"].route for e in viewer["entries"] if e["current"]] == ["page-problems"]


@pytest.mark.django_db
def test_every_link_of_a_page_leads_somewhere(planted, person):
    import re

    viewer, seen = person("viewer"), set()
    for page in ("/", "/map", "/nodes", "/nodes/fra-p2", "/docs/ui", "/docs/problems", "/tenants", "/epochs"):
        seen |= set(re.findall(r'(?:href|data-href)="(/[^"#]*)"', viewer.get(page).content.decode()))
    seen = {link.replace("&amp;", "&") for link in seen if not link.startswith("/static/")}
    assert len(seen) > 40
    accepts = {link: "*/*" if link.startswith("/api/") else "text/html" for link in seen}  # a picture is no page
    assert not [x for x in seen if viewer.get(x, headers={"accept": accepts[x]}).status_code != 200]


@pytest.mark.django_db
def test_nodes_are_named_only_to_who_may_see_them(planted, person):
    console = person("viewer").get("/docs/ui").context["console"]
    assert "fra-d2" in console["nodes"]()
    assert context.nodes_of(console["principal"]) == console["nodes"]()
    assert context.nodes_of(None) == []
    assert context.nodes_of(dataclasses.replace(console["principal"], roles=frozenset({"tenant-admin"}))) == []
