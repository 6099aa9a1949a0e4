"""The addresses of these pages, with the roles that may see and do what is on them. Part of `frontend.urls`.

Forms that give rights ask for a fresh proof before they are filled in, so that nothing that was typed is lost.
"""

from functools import partial
from typing import Any

from frontend.tenancy import people_views, register_views, views, wall_views
from kvconsole.infra.access import audited, counted, route

FLEET = ("viewer", "operator", "destructive-operator", "approver", "auditor")
OWN = ("tenant-admin", "tenant-member")
MANAGERS = ("operator", "approver", "tenant-admin")
WATCHERS = (*MANAGERS, "auditor")

PEOPLE: dict[str, Any] = {"step_up": True, "scope": "people:manage"}
TOKENS: dict[str, Any] = {"step_up": True, "scope": "tokens:manage"}
TENANTS: dict[str, Any] = {"scope": "tenants"}
DECIDE = audited("approver", step_up=True, person=True)
OPERATED: dict[str, Any] = {"GET": counted("operator", **TENANTS), "POST": audited("operator", **TENANTS)}
MODELS: dict[str, Any] = {
    "GET": counted("operator", scope="models"), "POST": audited("operator", scope="models"),
}  # fmt: skip
urlpatterns = [
    route("tenants", views.tenants, "page-tenants", GET=counted(*FLEET)),
    route("new-tenant", views.tenant_new, "page-tenant-new", **OPERATED),
    route("tenants/<str:slug>", views.tenant, "page-tenant", GET=counted(*FLEET)),
    route("tenants/<str:slug>/change", views.tenant_change, "page-tenant-change", **OPERATED),
    route("tenants/<str:slug>/quotas", views.quotas, "page-tenant-quotas", **OPERATED),
    route(
        "tenants/<str:slug>/quotas/evict", partial(views.quotas, evict=True), "page-tenant-quotas-evict",
        POST=audited("operator", step_up=True),
    ),
    route("tenants/<str:slug>/classes", wall_views.classes, "page-tenant-classes", **OPERATED),
    route("tenants/<str:slug>/nodes", wall_views.nodes, "page-tenant-nodes", **OPERATED),
    route(
        "tenants/<str:slug>/nodes/evict", partial(wall_views.nodes, evict=True), "page-tenant-nodes-evict",
        POST=audited("operator", step_up=True),
    ),
    route(
        "tenants/<str:slug>/close", views.tenant_close, "page-tenant-close",
        GET=counted("destructive-operator"), POST=audited("destructive-operator", step_up=True),
    ),
    route("epochs", views.models, "page-epochs", GET=counted(*FLEET, scope="models")),
    route("epochs/new", register_views.epoch_new, "page-epoch-new", **MODELS),
    route("models/new", register_views.model_new, "page-model-new", **MODELS),
    route(
        "models/new/check", partial(register_views.model_new, checking=True), "page-model-check",
        POST=counted("operator", scope="models"),
    ),
    route(
        "adapters/new", register_views.adapter_new, "page-adapter-new",
        GET=counted("operator", "tenant-admin"), POST=audited("operator", "tenant-admin"),
    ),
    route(
        "epochs/rollout", views.rollout, "page-rollout",
        GET=counted("operator", scope="models"), POST=audited("operator", scope="models"),
    ),
    route("t/<str:slug>", views.portal, "page-portal", GET=counted(*OWN, *FLEET, **TENANTS)),
    route("t/<str:slug>/rates", views.rates, "page-rates", GET=counted(*OWN, *FLEET, **TENANTS)),
    route("settings", people_views.settings, "page-settings", GET=counted(*FLEET, scope="people")),
    route(
        "people/new", people_views.person_new, "page-person-new",
        GET=counted(*MANAGERS, **PEOPLE), POST=audited(*MANAGERS, **PEOPLE),
    ),
    route(
        "people/<uuid:person_id>", people_views.person, "page-person",
        GET=counted(*WATCHERS), POST=audited(*MANAGERS, **PEOPLE),
    ),
    route(
        "people/<uuid:person_id>/state", people_views.person_state, "page-person-state",
        POST=audited(*MANAGERS, **PEOPLE),
    ),
    route(
        "people/<uuid:person_id>/invite", people_views.person_invite, "page-person-invite",
        POST=audited(*MANAGERS, **PEOPLE),
    ),
    route(
        "people/<uuid:person_id>/remove", people_views.person_remove, "page-person-remove",
        GET=counted(*MANAGERS), POST=audited(*MANAGERS, step_up=True),
    ),
    route(
        "tokens/new", people_views.token_new, "page-token-new",
        GET=counted(*FLEET, *OWN, **TOKENS), POST=audited(*FLEET, *OWN, **TOKENS),
    ),
    route(
        "tokens/<str:token_id>/rotate", people_views.token_rotate, "page-token-rotate",
        GET=counted(*FLEET, *OWN, **TOKENS), POST=audited(*FLEET, *OWN, **TOKENS),
    ),
    route(
        "tokens/<str:token_id>/revoke", people_views.token_revoke, "page-token-revoke",
        GET=counted(*FLEET, *OWN), POST=audited(*FLEET, *OWN),
    ),
    route(
        "share-groups/new", people_views.share_new, "page-share-new",
        GET=counted("operator"), POST=audited("operator"),
    ),
    route(
        "share-groups/<uuid:group_id>", people_views.share_group, "page-share-group", GET=counted(*FLEET, *OWN)
    ),
    *(
        route(
            f"share-groups/<uuid:group_id>/{act}", partial(people_views.share_group, act=act), f"page-share-{act}",
            POST=rule,
        )
        for act, rule in (("approve", DECIDE), ("deny", DECIDE), ("revoke", audited(*MANAGERS, step_up=True)))
    ),
]  # fmt: skip
