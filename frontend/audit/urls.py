"""The addresses of these pages, with the roles that may see and do what is on them. Part of `frontend.urls`.

Whoever reads events leaves one, so their pages are audited; the state of the log is only counted.
"""

from functools import partial
from typing import Any

from audit.api_events import READERS, STATE_READERS
from audit.api_jobs import MAKERS
from audit.api_v1 import READERS as RETENTION_READERS
from audit.api_webhooks import MAKERS as HOOK_MAKERS
from audit.api_webhooks import READERS as HOOK_READERS
from frontend.audit import check_views, hook_views, log_views, views
from kvconsole.infra.access import PUBLIC, audited, counted, route
from tenants.api_review import READERS as REVIEWERS

EXPORT: dict[str, Any] = {"scope": "audit:export"}
DISCLOSE: dict[str, Any] = {"scope": "audit:export", "step_up": True}
RETIRE: dict[str, Any] = {"scope": "audit:destroy", "step_up": True}
DECIDE = audited("approver", step_up=True, person=True)
MANAGERS = ("operator", "approver", "tenant-admin")
HOOK, WISH = "audit/webhooks/<uuid:webhook_id>", "audit/retention/<uuid:approval_id>"
FINDING, END = "audit/findings/<int:finding_id>", "audit/logs/<uuid:approval_id>"
urlpatterns = [
    route("audit", views.audit, "page-audit", GET=audited(*READERS)),
    route("audit/state", views.state, "page-audit-state", GET=counted(*READERS)),
    route("audit/checkpoint", views.checkpoint, "page-audit-checkpoint", GET=counted(*READERS)),
    route("audit/verify", views.verify_now, "page-audit-verify", POST=audited(*MAKERS, scope="audit:verify")),
    route("audit/events/<uuid:event_id>", views.event, "page-audit-event", GET=audited(*READERS)),
    route("audit/events/<uuid:event_id>/proof", views.event_proof, "page-audit-proof", GET=counted(*READERS)),
    route("audit/events/<uuid:event_id>/body", views.event_body, "page-audit-body", GET=audited(*READERS)),
    route("audit/jobs", views.job_list, "page-audit-jobs", GET=counted(*MAKERS)),
    route(
        "audit/exports/new", views.export_new, "page-audit-export-new",
        GET=counted(*MAKERS, **EXPORT), POST=audited(*MAKERS, **EXPORT),
    ),
    route(
        "audit/exports/disclose", partial(views.export_new, disclose=True), "page-audit-export-disclose",
        GET=counted(*MAKERS, **DISCLOSE), POST=audited(*MAKERS, **DISCLOSE),
    ),
    route("audit/jobs/<uuid:job_id>", views.job, "page-audit-job", GET=counted(*MAKERS)),
    route(
        "audit/jobs/<uuid:job_id>/cancel", views.job_cancel, "page-audit-job-cancel",
        GET=counted(*MAKERS, **EXPORT), POST=audited(*MAKERS, **EXPORT),
    ),
    route("audit/jobs/<uuid:job_id>/download", views.job_download, "page-audit-download", GET=audited(*MAKERS)),
    route("audit/access", views.access, "page-audit-access", GET=counted(*REVIEWERS)),
    route("audit/webhooks", hook_views.webhooks, "page-webhooks", GET=counted(*HOOK_READERS, scope="webhooks")),
    route(
        "audit/webhooks/new", hook_views.webhook_new, "page-webhook-new",
        GET=counted(*HOOK_MAKERS, scope="webhooks"), POST=audited(*HOOK_MAKERS, scope="webhooks"),
    ),
    route(HOOK, hook_views.webhook, "page-webhook", GET=counted(*HOOK_READERS, scope="webhooks")),
    *(
        route(f"{HOOK}/{act}", view, f"page-webhook-{act}", POST=how(*HOOK_MAKERS, scope="webhooks"))
        for act, view, how in (("state", hook_views.webhook_state, audited), ("test", hook_views.webhook_test, counted))
    ),
    *(
        route(
            f"{HOOK}/{act}", view, f"page-webhook-{act}",
            GET=counted(*HOOK_MAKERS, scope="webhooks"), POST=audited(*HOOK_MAKERS, scope="webhooks"),
        )
        for act, view in (("rotate", hook_views.webhook_rotate), ("remove", hook_views.webhook_remove))
    ),
    route("audit/retention", hook_views.retentions, "page-audit-retention", GET=counted(*RETENTION_READERS)),
    route(
        "audit/retention/new", hook_views.retention_new, "page-audit-retention-new",
        GET=counted("operator", **RETIRE), POST=audited("operator", **RETIRE),
    ),
    route(
        f"{WISH}/approve", partial(hook_views.retention_decide, approve=True), "page-audit-retention-approve",
        GET=counted("approver", step_up=True), POST=DECIDE,
    ),
    route(
        f"{WISH}/deny", partial(hook_views.retention_decide, approve=False), "page-audit-retention-deny", POST=DECIDE
    ),
    route("audit/findings", log_views.findings, "page-audit-findings", GET=counted(*STATE_READERS)),
    route(FINDING, log_views.finding, "page-audit-finding", GET=counted(*STATE_READERS)),
    route(
        f"{FINDING}/acknowledge", log_views.finding_acknowledge, "page-audit-finding-acknowledge",
        POST=audited("auditor", person=True),
    ),
    route("audit/consistency", log_views.consistency, "page-audit-consistency", GET=counted(*READERS)),
    route("audit/logs", log_views.logs, "page-audit-logs", GET=counted(*RETENTION_READERS)),
    route("audit/logs/<int:number>/record", log_views.log_record, "page-audit-log-record",
          GET=counted(*RETENTION_READERS)),
    route(
        "audit/logs/new", log_views.log_new, "page-audit-log-new",
        GET=counted("operator", **RETIRE), POST=audited("operator", **RETIRE),
    ),
    route(f"{END}/order", log_views.log_order, "page-audit-log-order", GET=counted(*RETENTION_READERS)),
    route(
        f"{END}/approve", partial(log_views.log_decide, approve=True), "page-audit-log-approve",
        GET=counted("approver", step_up=True), POST=DECIDE,
    ),
    route(f"{END}/deny", partial(log_views.log_decide, approve=False), "page-audit-log-deny", POST=DECIDE),
    route(
        "people/<uuid:person_id>/erase", hook_views.person_shred, "page-person-erase",
        GET=counted(*MANAGERS, step_up=True), POST=audited(*MANAGERS, step_up=True),
    ),
    route("verify", check_views.verify, "page-verify", GET=counted(PUBLIC), POST=counted(PUBLIC)),
    route("verify/kvc_verify.py", check_views.verifier, "page-verifier", GET=counted(PUBLIC)),
    route("verify/keys.txt", check_views.keys, "page-verify-keys", GET=counted(PUBLIC)),
]  # fmt: skip
