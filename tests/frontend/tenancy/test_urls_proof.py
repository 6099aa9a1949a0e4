"""What a page asks a fresh proof for, the API asks too, of the same roles and for the same scope; and the other way."""

import pytest

from catalog.api_tenancy import EVICTS
from catalog.operation_requests import DESTROY
from kvconsole import apidocs
from kvconsole.infra.access import Rule, registry, rule_for, unregistered

QUOTAS, NODES, EXPORTS = ("quotas", "PUT"), ("tenant-nodes", "PUT"), ("audit-exports", "POST")
DELETIONS, SUBJECT = ("deletions", "POST"), ("subject", "DELETE")
INSIDE = {QUOTAS: EVICTS, NODES: EVICTS, EXPORTS: "audit:export", DELETIONS: DESTROY, SUBJECT: DESTROY}
"""Of these calls the body or the plan says whether they are such an act (`evict`, `personal_data`, the risk): they ask
inside."""
TWINS = {
    "page-tenant-close": {("tenant", "DELETE")},
    "page-tenant-quotas-evict": {QUOTAS},
    "page-tenant-nodes-evict": {NODES},
    "page-person-new": {("people", "POST")},
    "page-person": {("person", "PATCH")},
    "page-person-state": {("person", "PATCH")},
    "page-person-invite": {("person-invite", "POST")},
    "page-person-remove": {("person", "DELETE")},
    "page-token-new": {("tokens", "POST")},
    "page-token-rotate": {("token-rotate", "POST")},
    "page-share-approve": {("share-group-approve", "POST"), ("approval-approve", "POST")},
    "page-share-deny": {("approval-deny", "POST")},
    "page-share-revoke": {("share-group-revoke", "POST")},
    "page-person-erase": {("person-shred", "POST")},
    "page-audit-export-disclose": {EXPORTS},
    "page-audit-retention-new": {("audit-retentions", "POST")},
    "page-audit-retention-approve": {("approval-approve", "POST")},
    "page-audit-retention-deny": {("approval-deny", "POST")},
    "page-audit-log-new": {("audit-epochs", "POST")},
    "page-audit-log-approve": {("approval-approve", "POST")},
    "page-audit-log-deny": {("approval-deny", "POST")},
    "page-plan-confirm": {DELETIONS, SUBJECT},
    "page-plan-retire": {DELETIONS, ("epoch-retire", "POST")},
    "page-operation-stop": {("operation-stop", "POST")},
    "page-approval-approve": {("approval-approve", "POST")},
    "page-approval-deny": {("approval-deny", "POST")},
    "page-hold-new": {("holds", "POST")},
    "page-hold-release": {("hold-release", "POST")},
    "page-window-remove": {("deny-window", "DELETE")},
}
NO_PAGE = {("nodes-api", "POST")}
"""Nodes are made by programs, or on the server (`manage.py node_create`)."""
OWN_ACCOUNT = "account:manage"
"""Pages of one's own account have no API: it is for people in browsers alone."""


def proofs() -> dict[tuple[str, str], Rule]:
    """Every act that asks for a fresh proof."""
    assert unregistered() == []
    return {(n, m): r for n, rules in registry().items() for m, r in rules.items() if r.step_up and m != "GET"}


def test_every_such_page_has_its_calls_and_every_such_call_its_page():
    found = {at: rule for at, rule in proofs().items() if rule.scope != OWN_ACCOUNT}
    pages = {name for name, _ in found if name.startswith("page-")}
    calls = {at for at in found if not at[0].startswith("page-")}
    assert pages == set(TWINS)
    assert calls | set(INSIDE) == NO_PAGE.union(*TWINS.values())


@pytest.mark.parametrize("page", sorted(TWINS))
def test_both_ask_the_same_people_for_the_same_scope(page):
    own = rule_for(page, "POST")
    for name, method in TWINS[page]:
        call = rule_for(name, method)
        scope = INSIDE.get((name, method), call.scope)
        assert own.person == call.person
        assert own.person or own.scope == scope
        assert own.roles <= call.roles or "any" in call.roles


def test_the_description_says_so():
    paths = apidocs.description()["paths"]
    found = {operation["operationId"]: set(operation.get("x-problem-codes", ()))
             for methods in paths.values() for operation in methods.values() if "operationId" in operation}  # fmt: skip
    asking = {name for name, codes in found.items() if "step-up-required" in codes}
    assert {
        "nodes_create", "tenants_close", "quotas_set", "tenant_nodes_set", "share_groups_approve",
        "share_groups_revoke",
        "approvals_approve", "approvals_deny",
    } <= asking  # fmt: skip
    assert all("scope-missing" in found[name] for name in asking)
