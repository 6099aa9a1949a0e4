"""A tenant's person and the pages of the fleet."""

import pytest

from kvconsole.infra.access import system, tenant_context


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_tenants_person_is_told_which_role_is_needed(person):
    from tenants.services import tenant_create

    with tenant_context(system("test")):
        tenant = tenant_create(slug="acme-code", name="Acme Code")
    who = person("tenant-admin", tenant=tenant)
    for path in ("/map", "/nodes", "/nodes/fra-p2"):
        answer = who.get(path)
        text = answer.content.decode()
        assert answer.status_code == 403
        assert "viewer, operator, destructive operator, approver or auditor" in text
        assert "Nothing was changed." in text
