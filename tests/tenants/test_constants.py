"""Names that others rely on."""

from tenants.constants import ERASURE_SCOPES, PLATFORM_TENANT, ROLES


def test_they_are_what_the_contract_says():
    assert str(PLATFORM_TENANT) == "00000000-0000-7000-8000-000000000001"
    assert ERASURE_SCOPES == ("tenant", "class", "label", "subject", "session")
    assert len(set(ROLES)) == len(ROLES) == 9
