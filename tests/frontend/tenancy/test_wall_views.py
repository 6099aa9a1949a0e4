"""Own nodes of a tenant: what leaves of others is said before, and needs a fresh proof."""

import pytest

from tests.frontend.tenancy.conftest import proved
from tests.frontend.tenancy.test_views import exists, text_of
from tests.frontend.tenancy.test_walls import posted

pytestmark = pytest.mark.django_db
PATH = "/tenants/borealis-bank/nodes"


def isolated(how="node"):
    from kvconsole.infra.access import system, tenant_context
    from tenants import services

    with tenant_context(system("test")):
        services.tenant_change(slug="borealis-bank", changes={"isolation": how}, actor=system("test"))


def own():
    from catalog.dedication import nodes_dedicated

    return nodes_dedicated(tenant=exists("borealis-bank").id)


def test_nodes_with_blocks_of_others_are_given_only_with_a_proof(tenanted, person):
    isolated()
    client = person("operator")
    page = client.get("/tenants/borealis-bank")
    assert "none: nothing of it can be cached" in text_of(page)
    assert f'href="{PATH}"' in page.content.decode(), "the way out of the warning"
    seen = client.get(PATH).context["form"].given["seen"]
    checked = client.get(PATH, {"check": "1", "seen": seen, "nodes": ["fra-p1", "ams-m1"]})
    text = text_of(checked)
    assert "of other tenants would leave" in text
    assert "Set the nodes and drop" in text
    assert own() == [], "a check changes nothing"
    refused = client.post(PATH, posted(checked))
    assert (refused.status_code, refused.context["code"]) == (409, "node-holds-others")
    assert "/account/confirm" in client.post(f"{PATH}/evict", posted(checked)).url
    assert proved(client).post(f"{PATH}/evict", posted(checked)).url == "/tenants/borealis-bank"
    assert own() == ["ams-m1", "fra-p1"]
    assert client.post(f"{PATH}/evict", posted(checked)).status_code == 412, "somebody changed it meanwhile"


def test_nodes_become_everybodys_again(tenanted, person):
    isolated()
    client = proved(person("operator"))
    seen = client.get(PATH).context["form"].given["seen"]
    client.post(f"{PATH}/evict", {"seen": seen, "nodes": ["fra-p1"]})
    assert own() == ["fra-p1"]
    shown = client.get(PATH)
    assert shown.context["form"].given["nodes"] == ["fra-p1"]
    checked = client.get(PATH, {"check": "1", "seen": shown.context["form"].given["seen"]})
    assert "of everybody" in text_of(checked)
    assert "No block of another tenant has to leave." in text_of(checked)
    assert client.post(PATH, posted(checked)).status_code == 302
    assert own() == []


def test_a_tenant_that_shares_is_told_why_it_has_no_nodes(tenanted, person):
    client = person("operator")
    seen = client.get(PATH).context["form"].given["seen"]
    refused = client.get(PATH, {"check": "1", "seen": seen, "nodes": ["fra-p1"]})
    assert refused.context["code"] == "tenant-not-node-isolated"
    assert "Change its isolation" in text_of(refused)
    unknown = client.get(PATH, {"check": "1", "seen": seen, "nodes": ["nowhere"]})
    assert unknown.context["code"] in ("tenant-not-node-isolated", "validation-failed")
    isolated()
    seen = client.get(PATH).context["form"].given["seen"]
    assert "nodes" in client.get(PATH, {"check": "1", "seen": seen, "nodes": ["nowhere"]}).context["form"].errors


@pytest.mark.parametrize("path", [PATH, "/tenants/nobody/nodes", "/tenants/nobody/classes"])
def test_only_operators_reach_it_and_only_what_is_there(tenanted, person, path):
    assert person("viewer").get(path).status_code == 403
    expected = 200 if path == PATH else 404
    assert person("operator", name="ann").get(path).status_code == expected
