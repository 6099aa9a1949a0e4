"""The addresses of these pages, with the roles that may see and do what is on them. Part of `frontend.urls`.

To look at a plan, an operation or its evidence is counted; what fences, stops or decides leaves its event.
"""

from functools import partial
from typing import Any

from audit.api_v1 import READERS as APPROVAL_READERS
from catalog.api_holds import READERS as HOLD_READERS
from catalog.api_moves import KEEPERS, MOVERS
from catalog.api_moves import READERS as PIN_READERS
from catalog.api_operations import DESTROYERS, PLANNERS, READERS
from catalog.api_windows import MAKERS
from catalog.api_windows import READERS as WINDOW_READERS
from catalog.operation_requests import DESTROY
from frontend.operations import deciding_views, placing_views, views
from kvconsole.infra.access import audited, counted, route

PLAN, RUN = "plans/<uuid:plan_id>", "operations/<uuid:operation_id>"
ONE, HOLD = "approvals/<uuid:approval_id>", "holds/<uuid:hold_id>"
ASKS: dict[str, Any] = {"scope": "deletions:write"}
PROVEN: dict[str, Any] = {"scope": DESTROY, "step_up": True}
RETIRERS = ("destructive-operator",)
SEES = counted(*READERS, scope="operations:read")
PLANS = counted(*PLANNERS, scope="deletions:read")
CHANGE = audited(*DESTROYERS, **ASKS)
ASKED: dict[str, Any] = {"scope": DESTROY, "step_up": True}
"""Of the pages before: a form is shown to who has just proved themselves, and no token is ever shown one."""
DECIDE: dict[str, Any] = {
    "GET": counted("approver", **ASKED), "POST": audited("approver", step_up=True, person=True),
}  # fmt: skip
KEEP: dict[str, Any] = {
    "GET": counted(*RETIRERS, **ASKED), "POST": audited(*RETIRERS, step_up=True, person=True),
}  # fmt: skip
urlpatterns = [
    route("operations", views.operations, "page-operations", GET=SEES),
    route(RUN, views.operation, "page-operation", GET=SEES),
    *(
        route(f"{RUN}/{name}", partial(views.operation_act, change=change), f"page-operation-{name}", POST=CHANGE)
        for name, change in (("pause", "paused"), ("resume", "resumed"), ("throttle", "throttled"))
    ),
    route(
        f"{RUN}/stop", views.operation_stop, "page-operation-stop",
        GET=counted(*DESTROYERS, **PROVEN), POST=audited(*DESTROYERS, **PROVEN),
    ),
    route(
        "deletions/new", views.deletion_new, "page-deletion-new",
        GET=counted(*PLANNERS, **ASKS), POST=counted(*PLANNERS, **ASKS),
    ),
    route("plans", views.plans, "page-plans", GET=PLANS),
    route("plans/start", views.plans_start, "page-plans-start", POST=CHANGE),
    route(PLAN, views.plan, "page-plan", GET=PLANS),
    route(f"{PLAN}/drift", views.plan_drift, "page-plan-drift", GET=PLANS),
    route(f"{PLAN}/start", views.plan_start, "page-plan-start", GET=counted(*DESTROYERS, **ASKS), POST=CHANGE),
    route(
        f"{PLAN}/confirm", views.plan_start, "page-plan-confirm",
        GET=counted(*DESTROYERS, **PROVEN), POST=audited(*DESTROYERS, **PROVEN),
    ),
    route(
        f"{PLAN}/retire", partial(views.plan_start, epoch=True), "page-plan-retire",
        GET=counted(*RETIRERS, **PROVEN), POST=audited(*RETIRERS, **PROVEN),
    ),
    route("receipts/<uuid:step_id>", views.receipt, "page-receipt", GET=SEES),
    route("certificates/<uuid:certificate_id>", views.certificate, "page-certificate", GET=SEES),
    route("certificates/<uuid:certificate_id>/file", views.certificate_file, "page-certificate-file", GET=SEES),
    route("approvals", deciding_views.approval_list, "page-approvals", GET=counted(*APPROVAL_READERS)),
    route(ONE, deciding_views.approval, "page-approval", GET=counted(*APPROVAL_READERS)),
    route(f"{ONE}/approve", partial(deciding_views.approval_decide, approve=True), "page-approval-approve", **DECIDE),
    route(
        f"{ONE}/deny", partial(deciding_views.approval_decide, approve=False), "page-approval-deny",
        POST=DECIDE["POST"],
    ),
    route("holds", deciding_views.hold_list, "page-holds", GET=counted(*HOLD_READERS)),
    route("holds/new", deciding_views.hold_new, "page-hold-new", **KEEP),
    route(HOLD, deciding_views.hold, "page-hold", GET=counted(*HOLD_READERS)),
    route(f"{HOLD}/release", deciding_views.hold_release, "page-hold-release", **KEEP),
    route("pins", placing_views.pins, "page-pins", GET=counted(*PIN_READERS), POST=audited(*KEEPERS)),
    route("pins/<uuid:pin_id>/remove", placing_views.pin_remove, "page-pin-remove", POST=audited(*KEEPERS)),
    route(
        "migrations/new", placing_views.migration_new, "page-migration-new",
        GET=counted(*MOVERS), POST=audited(*MOVERS),
    ),
    route(
        "prefetches/new", placing_views.prefetch_new, "page-prefetch-new",
        GET=counted(*MOVERS), POST=audited(*MOVERS),
    ),
    route(
        "nodes/<str:name>/drain", placing_views.drain, "page-node-drain",
        GET=counted(*MOVERS), POST=audited(*MOVERS),
    ),
    *(
        route(f"nodes/<str:name>/{way}", partial(placing_views.cordon, cordoned=way == "cordon"), f"page-node-{way}",
              POST=audited(*MOVERS))
        for way in ("cordon", "uncordon")
    ),
    route(
        "deny-windows", placing_views.window_list, "page-windows",
        GET=counted(*WINDOW_READERS), POST=audited(*MAKERS),
    ),
    route(
        "deny-windows/<uuid:window_id>/remove", placing_views.window_remove, "page-window-remove",
        GET=counted(*MAKERS, step_up=True, scope="deny-windows:destroy"),
        POST=audited(*MAKERS, step_up=True, scope="deny-windows:destroy"),
    ),
    route(
        "epochs/retire", deciding_views.epoch_retire, "page-epoch-retire",
        GET=counted(*RETIRERS, **ASKS), POST=counted(*RETIRERS, **ASKS),
    ),
]  # fmt: skip
