"""Pins and migrations from their pages, over the real services."""

import pytest

from catalog.map_selection import row_meant
from catalog.models import HeatRow, Operation, Pin
from tests.frontend.operations.test_views import text
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nobody")]


def test_something_is_pinned_listed_and_taken_away(person):
    namespace = a_namespace(a_tenant(), a_model())
    who = person("operator")
    assert "Nothing is pinned" in text(who.get("/pins"))
    given = {"namespace": str(namespace.id), "days": "7", "reason": "launch"}
    assert who.post("/pins", given).url == "/pins"
    pin = Pin.objects.get()
    page = who.get("/pins")
    assert "launch" in text(page)
    assert f"/pins/{pin.id}/remove" in page.content.decode()
    looker = person("viewer", name="looker")
    assert "/remove" not in looker.get("/pins").content.decode()
    assert looker.post(f"/pins/{pin.id}/remove").status_code == 403
    assert who.post(f"/pins/{pin.id}/remove").status_code == 302
    assert not Pin.objects.exists()
    assert who.post(f"/pins/{pin.id}/remove").status_code == 404


@pytest.mark.parametrize(("given", "wrong"), [
    ({"days": "0"}, "days"), ({"days": "120"}, "days"), ({"prefix": "abc"}, "prefix"),
])  # fmt: skip
def test_what_cannot_be_pinned_says_why(person, given, wrong):
    namespace = a_namespace(a_tenant(), a_model())
    page = person("operator").post("/pins", {"namespace": str(namespace.id), "days": "7", **given})
    assert page.status_code == 400
    assert wrong in page.context["form"].errors
    assert not Pin.objects.exists()


def test_a_migration_of_nothing_is_refused_and_says_so(person):
    tenant = a_tenant()
    a_namespace(tenant, a_model())
    who = person("operator")
    assert who.get(f"/migrations/new?tenant={tenant.slug}").status_code == 200
    page = who.post("/migrations/new", {"tenant": tenant.slug, "from_tier": "dram", "to_tier": "ssd"})
    assert (page.status_code, page.context["code"]) == (409, "nothing-selected")
    assert who.post("/migrations/new", {"tenant": tenant.slug, "from_tier": "x"}).status_code == 400
    assert not Operation.objects.exists()
    assert person("viewer", name="looker").get("/migrations/new").status_code == 403


def test_a_prefetch_that_cannot_be_there_in_time_or_of_nothing_is_refused_and_says_so(person, planted):
    namespace = a_namespace(a_tenant(), a_model())
    who = person("operator")
    given = {"namespace": str(namespace.id), "prefix": "ab" * 16, "to_node": "fra-p1", "to_tier": "dram", "need": "10"}
    page = who.post("/prefetches/new", given)
    assert (page.status_code, page.context["code"]) == (409, "nothing-selected")
    assert page.context["form"].given["prefix"] == "ab" * 16
    for wrong in ({"need": "0"}, {"need": "2000"}, {"prefix": "words"}, {"prefix": ""}, {"to_tier": "tape"}):
        page = who.post("/prefetches/new", given | wrong)
        assert (page.status_code, set(page.context["form"].errors) & set(wrong)) == (400, set(wrong)), wrong
    assert who.post("/prefetches/new", given | {"to_node": "nobody"}).status_code == 404
    assert not Operation.objects.exists()
    assert person("viewer", name="looker").get("/prefetches/new").status_code == 403


def test_the_page_of_a_node_leads_to_its_drain_and_to_one_that_runs(person, made):
    who, looker = person("operator"), person("viewer", name="looker")
    assert "/nodes/fra-p1/drain" in who.get("/nodes/fra-p1").content.decode()
    assert "/drain" not in looker.get("/nodes/fra-p1").content.decode()
    assert looker.get("/nodes/fra-p1/drain").status_code == 403
    running = looker.get("/nodes/fra-p2").content.decode()
    assert f"/operations/{made['drain']}" in running
    assert "It is being drained." in running
    assert who.get("/nodes/nobody/drain").status_code == 404
    said = text(who.get("/nodes/fra-p1/drain"))
    assert "What nobody has room for stays" in said
    run = text(who.get(f"/operations/{made['drain']}"))
    assert "Node fra-p2" in run


def test_a_row_of_the_map_begins_a_deletion_and_a_prefetch_and_is_nothing_to_a_tenant(person, planted):
    row = HeatRow.objects.exclude(family=None).exclude(keyspace=None).first()
    meant = row_meant(f"{row.id:016x}")
    assert meant.tenant
    assert len(meant.namespace) == 64
    who = person("destructive-operator")
    form = who.get(f"/deletions/new?row={row.id:016x}").context["form"].given
    assert (form["tenant"], form["namespace"]) == (meant.tenant, meant.namespace)
    assert form["prefix"] == (meant.keys[0] if meant.keys else "")
    assert form["collateral"] == ("none" if meant.keys else "")
    assert who.get(f"/prefetches/new?row={row.id:016x}").context["form"].given["namespace"] == meant.namespace
    for nothing in ("", "x", "f" * 16, "0" * 16, "0" * 15):
        assert row_meant(nothing) is None, nothing
        assert who.get(f"/deletions/new?row={nothing}").context["form"].given["namespace"] == ""
