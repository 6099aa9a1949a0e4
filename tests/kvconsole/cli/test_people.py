"""People, and where a tenant's blocks may be, from the command line, against a real console."""

import json

import pytest

from tests.kvconsole.cli.test_reuse import read
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def manager():
    """A token that may also do what cannot be taken back."""
    from tenants import services

    scopes = ["*:read", "*:write", "people:manage", "people:destroy", "tenants:destroy"]
    return services.token_issue("service", roles=["operator", "destructive-operator"], scopes=scopes)[1]


def test_people_are_invited_changed_and_removed(kvc, manager):
    a_tenant(slug="acme")
    made = read(kvc("--json", "people", "create", "ann", "--role", "viewer", token=manager))
    assert made["invitation"]
    assert "ann" in kvc("people", "list", "--tenant", "platform", "--kind", "person", token=manager)[1]
    again = read(kvc("--json", "people", "invite", made["id"], token=manager))
    assert again["invitation"] != made["invitation"]
    changed = read(kvc("--json", "people", "change", made["id"], "--no-roles", "--suspended", token=manager))
    assert (changed["roles"], changed["state"]) == ([], "suspended")
    assert kvc("people", "change", made["id"], token=manager)[0] == 2
    assert kvc("people", "change", made["id"], "--no-roles", "--role", "viewer", token=manager)[0] == 2
    assert kvc("people", "remove", made["id"], "--validate-only", token=manager)[0] == 0
    assert read(kvc("--json", "people", "show", made["id"], token=manager))["state"] == "suspended"
    assert kvc("people", "remove", made["id"], token=manager)[0] == 0
    bot = read(kvc("--json", "people", "create", "ci", "--tenant", "acme", "--kind", "service",
                   "--role", "gateway", token=manager))  # fmt: skip
    assert (bot["tenant"], bot["invitation"], bot["password"]) == ("acme", None, None)


def test_rules_own_nodes_and_the_end_of_a_tenant(kvc, manager):
    a_tenant(slug="acme", classes=["a"])
    rules = {"rules": {"a": {"tiers": ["hbm"], "regions": None, "min_protection": "encrypted"}}}
    after = kvc("--json", "tenants", "classes", "set", "acme", "--file", "-", token=manager, text=json.dumps(rules))
    assert read(after)["rules"]["a"]["tiers"] == ["hbm"]
    assert read(kvc("--json", "tenants", "classes", "show", "acme", token=manager))["rules"]["a"]["built_in"] is False
    refused = kvc("--json", "tenants", "nodes", "set", "acme", "n1", token=manager)
    assert (refused[0], json.loads(refused[1])["code"]) == (1, "tenant-not-node-isolated")
    assert read(kvc("--json", "tenants", "nodes", "set", "acme", token=manager))["nodes"] == []
    assert read(kvc("--json", "tenants", "nodes", "show", "acme", token=manager))["isolation"] == "shared"
    assert kvc("tenants", "close", "acme", "--validate-only", token=manager)[0] == 0
    assert read(kvc("--json", "tenants", "show", "acme", token=manager))["state"] == "active"
    assert kvc("tenants", "close", "acme", token=manager)[0] == 0
    assert read(kvc("--json", "tenants", "show", "acme", token=manager))["state"] == "closed"
