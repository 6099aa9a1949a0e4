"""Pages of tenants, epochs, people, tokens and share groups as the server writes them."""

import pytest

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/tenants", "/tenants/acme-code", "/t/acme-code", "/epochs", "/settings"])
def test_smoke(planted, person, path):
    answer = person("operator").get(path)
    assert answer.status_code == 200, answer.content[:2000]
