"""Pins and migrations from their pages, over the real services."""

import pytest

from catalog.models import Operation, Pin
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
