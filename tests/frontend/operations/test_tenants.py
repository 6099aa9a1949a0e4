"""Operations as a tenant's own people and programs see them: their own, and of the fleet no name."""

import pytest

from catalog.selectors import node_names
from tenants.selectors import tenant_by_slug
from tests.frontend.operations.test_urls import addresses, walked
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_a_tenant_reaches_its_own_and_is_told_of_no_node_and_no_other_by_name(made, person):
    """One test: what is planted is gone after it. Nodes are told apart by id, as on certificates."""
    tenant, nodes, pages = tenant_by_slug("acme-code"), node_names(), addresses(made)
    for role in ("tenant-admin", "tenant-member"):
        who = proved(person(role, tenant=tenant, name=role))
        shown = walked(who, principal(tenant, role), pages, absent=(403, 404))
        assert {"page-operations", "page-windows", "page-pins", "page-certificate"} <= shown
        rest = ["/api/v1/operations", f"/api/v1/operations/{made['erasing']}", f"/api/v1/receipts/{made['receipt']}",
                f"/api/v1/certificates/{made['certificate-completed']}.json"]  # fmt: skip
        rest += [f"/api/v1/deletion-plans/{made['plan']}"] if role == "tenant-admin" else []
        for path in [*(pages[name] for name in shown), f"/operations/{made['drain']}", *rest]:
            page = who.get(path, headers={"accept": "*/*"})
            assert page.status_code == (404 if str(made["drain"]) in path else 200), path
            said = page.content.decode()
            assert not [name for name in nodes if name in said], path
            assert "cobalt-support" not in said, path
        one = who.get(f"/api/v1/operations/{made['erasing']}", headers={"accept": "*/*"})
        cells = one.json()["progress"]["cells"]
        assert {cell["node"] for cell in cells} == set(nodes.values())
    looker = person("viewer", name="looker")
    one = looker.get(f"/api/v1/operations/{made['erasing']}", headers={"accept": "*/*"})
    assert {cell["node"] for cell in one.json()["progress"]["cells"]} == set(nodes)
