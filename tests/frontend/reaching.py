"""How a person of the demonstration reaches each form of tenancy, and what becomes of it: refusals, plans, secrets."""

from collections.abc import Callable
from typing import Any, NamedTuple

MODEL_CONFIG = (
    '{"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 4,'
    ' "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256}'
)


class Form(NamedTuple):
    """A page with a form. `act` = what is done there; `shows` = what stands there then, a CSS selector."""

    page: str
    path: str
    user: str = "operator"
    act: Callable[[Any], None] | None = None
    shows: str = "main form"


def _send(page: Any, button: str = "main form[method=get].stack button[type=submit]") -> None:
    with page.expect_navigation():
        page.click(button)
    page.wait_for_selector("html[data-ready]", state="attached")


def _filled(**fields: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        for name, value in fields.items():
            page.fill(f"main form.stack [name='{name}']", value)
        _send(page)

    return act


def _followed(link: str) -> Callable[[Any], None]:
    return lambda page: _send(page, f"main a[href*='{link}']")


def _rule(page: Any) -> None:
    page.select_option("[name='rule_internal_kind']", "own")
    page.uncheck("[name='rule_internal_tiers'][value='ssd']")
    _send(page)


def _nodes(page: Any) -> None:
    page.check("[name='nodes'][value='fra-p1']")
    _send(page)


def _model(page: Any) -> None:
    page.fill("#f-name", "demo")
    page.fill("#f-config", MODEL_CONFIG)
    _send(page, "main form[action$='/check'] button[type=submit]")


def _person(page: Any) -> None:
    _send(page, "#people a:text-is('viewer')")


def _remove(page: Any) -> None:
    _person(page)
    _send(page, "main a[href$='/remove']")


def _erase(page: Any) -> None:
    _person(page)
    _send(page, "main a[href$='/erase']")


def _hooked(page: Any) -> None:
    page.fill("#f-url", "https://demo.invalid/in")
    page.check("[name='events'][value='log.gap']")
    _send(page, "main form[method=post] button[type=submit]")


def _hook_page(page: Any) -> None:
    _hooked(page)
    _send(page, "main a.primary")


def _hook_act(link: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        _send(page, "main tbody a[href*='/audit/webhooks/0']")
        _send(page, f"main a[href$='/{link}']")

    return act


def _job(row: int, link: str = "") -> Callable[[Any], None]:
    def act(page: Any) -> None:
        _send(page, f"#jobs tbody tr:nth-child({row}) a")
        if link:
            _send(page, link)

    return act


def _check(page: Any) -> None:
    page.fill("#f-proof", "demo")
    _send(page, "main form[method=post] button[type=submit]")


def _token(page: Any) -> None:
    page.fill("#f-name", "demo")
    page.check("[name='roles'][value='viewer']")
    _send(page, "main form[method=post] button[type=submit]")


def _made(link: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        _token(page)
        _send(page, "main a.primary")
        _send(page, f"main a[href$='{link}']")

    return act


PLAN, REFUSED = "#plan-h", "#refused"
FORMS: dict[str, Form] = {
    "new tenant, refused": Form(
        "page-tenant-new", "/new-tenant?check=1&name=x&slug=acme-code&isolation=arena&erasure_scope=label",
        shows=REFUSED,
    ),
    "new tenant": Form(
        "page-tenant-new", "/new-tenant?check=1&name=demo&slug=demo&isolation=node&erasure_scope=label", shows=PLAN
    ),
    "change": Form("page-tenant-change", "/tenants/acme-code/change", act=_filled(name="Acme Demo"), shows=PLAN),
    "quotas, refused": Form(
        "page-tenant-quotas", "/tenants/acme-code/quotas?check=1&hbm_limit=1+MiB&seen=x", shows=REFUSED
    ),
    "quotas": Form(
        "page-tenant-quotas", "/tenants/acme-code/quotas", act=_filled(hbm_limit="1 MiB", hbm_guaranteed=""), shows=PLAN
    ),
    "classes": Form("page-tenant-classes", "/tenants/acme-code/classes", act=_rule, shows=PLAN),
    "nodes": Form("page-tenant-nodes", "/tenants/delta-legal/nodes", act=_nodes, shows=PLAN),
    "nodes, refused": Form("page-tenant-nodes", "/tenants/acme-code/nodes", act=_nodes, shows=REFUSED),
    "close": Form("page-tenant-close", "/tenants/delta-legal/close", "destroyer", shows="#plan-h"),
    "close, refused": Form("page-tenant-close", "/tenants/acme-code/close", "destroyer", shows=REFUSED),
    "rollout": Form(
        "page-rollout", "/epochs/rollout?model=llama-3.1-8b", act=_followed("share_2=50"), shows=PLAN
    ),
    "epoch": Form(
        "page-epoch-new", "/epochs/new?model=ref-1k&check=1&weights_digest=sha256:0000&note=", shows=PLAN
    ),
    "model": Form("page-model-new", "/models/new"),
    "model, checked": Form("page-model-check", "/models/new", act=_model, shows=PLAN),
    "adapter": Form(
        "page-adapter-new", "/adapters/new?check=1&model=ref-1k&name=demo&digest=sha256:0000", shows=PLAN
    ),
    "adapter, refused": Form(
        "page-adapter-new", "/adapters/new?check=1&model=demo&name=demo&digest=sha256:0000", shows=REFUSED
    ),
    "person, new": Form("page-person-new", "/people/new"),
    "person": Form("page-person", "/settings", act=_person),
    "person, removed": Form("page-person-remove", "/settings", act=_remove, shows="#plan-h"),
    "token": Form("page-token-new", "/tokens/new"),
    "once": Form("page-token-new", "/tokens/new", act=_token, shows="[data-once]"),
    "token, rotated": Form("page-token-rotate", "/tokens/new", act=_made("/rotate"), shows=PLAN),
    "token, revoked": Form("page-token-revoke", "/tokens/new", act=_made("/revoke"), shows=PLAN),
    "share group": Form(
        "page-share-new",
        "/share-groups/new?check=1&owner=acme-code&name=demo&audience=cobalt-support&days=30&reason=demo", shows=PLAN,
    ),
    "share group, asked for": Form(
        "page-share-group", "/settings", act=_followed("/share-groups/0"), shows="#revoke-h"
    ),
    "share group, to decide": Form(
        "page-share-group", "/settings", "approver", act=_followed("/share-groups/0"), shows="#decide-h"
    ),
}  # fmt: skip
FORMS |= {
    "webhook, new": Form("page-webhook-new", "/audit/webhooks/new"),
    "webhook": Form("page-webhook-new", "/audit/webhooks/new", act=_hooked, shows="[data-once]"),
    "webhook, its page": Form("page-webhook", "/audit/webhooks/new", act=_hook_page, shows="#sent-h"),
    "webhook, new secret": Form("page-webhook-rotate", "/audit/webhooks", act=_hook_act("rotate"), shows="#plan-h"),
    "webhook, removed": Form("page-webhook-remove", "/audit/webhooks", act=_hook_act("remove"), shows="#plan-h"),
    "retention": Form("page-audit-retention-new", "/audit/retention/new"),
    "retention, to decide": Form(
        "page-audit-retention-approve", "/audit/retention", "approver", act=_followed("/approve"), shows="#plan-h"
    ),
    "finding": Form(
        "page-audit-finding", "/audit/findings", "auditor", act=_followed("/audit/findings/"), shows="#do-h"
    ),
    "log, to end": Form("page-audit-log-new", "/audit/logs/new"),
    "log, to decide": Form(
        "page-audit-log-approve", "/audit/logs", "approver", act=_followed("/approve"), shows="#plan-h"
    ),
    "event": Form("page-audit-event", "/audit", act=_followed("/audit/events/"), shows="#proof-h"),
    "export": Form("page-audit-export-new", "/audit/exports/new", "auditor"),
    "export, told": Form(
        "page-audit-export-new", "/audit/exports/new?check=1&format=csv&proofs=yes", "auditor", shows="#plan-h"
    ),
    "export, disclosed": Form(
        "page-audit-export-disclose", "/audit/exports/disclose?check=1&proofs=yes", "auditor", shows="#plan-h"
    ),
    "job": Form("page-audit-job", "/audit/jobs", "auditor", act=_job(3), shows="#job-h"),
    "job, that found something": Form("page-audit-job", "/audit/jobs", "auditor", act=_job(2), shows="#job-h"),
    "job, stopped": Form(
        "page-audit-job-cancel", "/audit/jobs", "auditor", act=_job(1, "#job-stop"), shows="#plan-h"
    ),
    "jobs": Form("page-audit-jobs", "/audit/jobs", "auditor", shows="#jobs-h"),
    "erase": Form("page-person-erase", "/settings", act=_erase, shows="#plan-h"),
    "check": Form("page-verify", "/verify", act=_check, shows="#verdict-h"),
}  # fmt: skip
OPERATIONS: tuple[tuple[str, str, str], ...] = (
    ("page-operations", "/operations", "operator"),
    ("page-deletion-new", "/deletions/new?tenant=acme-code&label=contracts", "operator"),
    ("page-plans", "/plans", "destroyer"),
    ("page-plan", "/plans/{plan}", "destroyer"),
    ("page-plan-start", "/plans/{plan}/start", "destroyer"),
    ("page-plan-confirm", "/plans/{plan-R3}/confirm", "destroyer"),
    ("page-plan-retire", "/plans/{plan-epoch}/retire", "destroyer"),
    ("page-operation", "/operations/{erasing}", "destroyer"),
    ("page-operation-stop", "/operations/{erasing}/stop", "destroyer"),
    ("page-receipt", "/receipts/{receipt}", "auditor"),
    ("page-certificate", "/certificates/{certificate-completed_with_exceptions}", "auditor"),
    ("page-approvals", "/approvals", "approver"),
    ("page-approval", "/approvals/{approval}", "viewer"),
    ("page-approval-approve", "/approvals/{approval}/approve", "approver"),
    ("page-holds", "/holds", "viewer"),
    ("page-hold-new", "/holds/new", "destroyer"),
    ("page-hold", "/holds/{hold-active}", "destroyer"),
    ("page-hold-release", "/holds/{hold-active}/release", "destroyer"),
    ("page-pins", "/pins", "operator"),
    ("page-windows", "/deny-windows", "destroyer"),
    ("page-window-remove", "/deny-windows/{window}/remove", "destroyer"),
    ("page-prefetch-new", "/prefetches/new", "operator"),
    ("page-node-drain", "/nodes/fra-p1/drain", "operator"),
    ("page-operation", "/operations/{drain}", "operator"),
    ("page-migration-new", "/migrations/new?tenant=acme-code", "operator"),
    ("page-epoch-retire", "/epochs/retire?model=llama-3.1-8b", "destroyer"),
)
"""Pages of operations: page, address with names of what is planted, and who looks."""
NO_PAGE = {
    "page-rates": "a part of the portal and of a tenant's page, which are visited",
    "page-plan-drift": "a part of a plan's page, which is visited",
    "page-certificate-file": "a file",
    "page-audit-state": "a part of the log's page, which is visited",
    **dict.fromkeys(
        ("page-audit-consistency", "page-audit-log-order", "page-audit-log-record",
         "page-audit-checkpoint", "page-audit-proof", "page-audit-body", "page-audit-download", "page-verifier",
         "page-verify-keys"),
        "a file",
    ),
}  # fmt: skip
"""Addresses that are no page of their own, and why."""


def reach(visit: Any, name: str, password: str) -> None:
    """The form, as it stands after what is done there. A proof that is asked for is given."""
    form = FORMS[name]
    visit.go(form.path)
    if "/account/confirm" in visit.page.url:
        visit.page.fill("#id_password", password)
        _send(visit.page, "form:has(#id_password) button[type=submit]")
    if form.act:
        form.act(visit.page)
    if "/account/confirm" in visit.page.url:
        visit.page.fill("#id_password", password)
        _send(visit.page, "form:has(#id_password) button[type=submit]")
    assert visit.page.locator(form.shows).first.is_visible(), f"{name}: {visit.page.url}"
