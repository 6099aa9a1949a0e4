"""All addresses of pages. Each is registered with the roles that may see it; a link exists only to what is here."""

from typing import Any

from allauth.socialaccount.providers.openid_connect import views as openid

from frontend import accounts, views
from frontend.audit.urls import urlpatterns as audit_routes
from frontend.operations.urls import urlpatterns as operation_routes
from frontend.routing.urls import urlpatterns as routing_routes
from frontend.tenancy.urls import urlpatterns as tenancy_routes
from kvconsole.infra.access import ANY, PUBLIC, audited, counted, route

FLEET_ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")

OWED = ("second-factor-needed",)
EITHER: dict[str, Any] = {"during": (*OWED, "own-password-needed")}
"""Open even to somebody who logged in with a password that another person made."""
SAFE: dict[str, Any] = {"GET": counted(ANY, during=OWED)}
MANAGE: dict[str, Any] = {"step_up": True, "scope": "account:manage", "during": OWED}
PROVEN: dict[str, Any] = {"GET": counted(ANY, **MANAGE), "POST": audited(ANY, **MANAGE)}
CHOSEN: dict[str, Any] = {"GET": counted(ANY, **MANAGE | EITHER), "POST": audited(ANY, **MANAGE | EITHER)}
DOOR: dict[str, Any] = {"GET": counted(PUBLIC), "POST": audited(PUBLIC)}
GONE: dict[str, Any] = {"POST": PROVEN["POST"]}
# Names without `page-` are those that allauth itself looks up.
account_routes = [
    route("login", accounts.LogIn.as_view(), "page-login", **DOOR),
    route("login", accounts.LogIn.as_view(), "account_login", **DOOR),
    route("login/factor", accounts.SecondFactor.as_view(), "mfa_authenticate", **DOOR),
    route("login/passkey", accounts.PasskeyLogIn.as_view(), "mfa_login_webauthn", **DOOR),
    route("login/refused", accounts.provider_refused, "socialaccount_login_error", GET=counted(PUBLIC)),
    route("login/cancelled", accounts.provider_refused, "socialaccount_login_cancelled", GET=counted(PUBLIC)),
    route("login/with/<str:provider_id>", openid.login, "openid_connect_login", GET=counted(PUBLIC)),
    route("login/with/<str:provider_id>/back", accounts.provider_back, "openid_connect_callback", GET=audited(PUBLIC)),
    route("logout", accounts.LogOut.as_view(), "page-logout", POST=audited(ANY, **EITHER)),
    route("invitation", accounts.Invitation.as_view(), "page-invitation", **DOOR),
    route("account", accounts.Account.as_view(), "page-account", **SAFE),
    route(
        "account/confirm", accounts.Confirm.as_view(), "page-confirm",
        GET=counted(ANY, **EITHER), POST=audited(ANY, **EITHER),
    ),
    route("account/password", accounts.Password.as_view(), "page-password", **CHOSEN),
    route("account/totp", accounts.Totp.as_view(), "mfa_activate_totp", **PROVEN),
    route("account/totp/remove", accounts.FactorRemove.as_view(), "mfa_deactivate_totp", **GONE),
    route("account/passkeys", accounts.Passkeys.as_view(), "mfa_add_webauthn", **PROVEN),
    route("account/passkeys/<int:pk>/remove", accounts.FactorRemove.as_view(), "mfa_remove_webauthn", **GONE),
    route("account/recovery-codes", accounts.RecoveryCodes.as_view(), "mfa_view_recovery_codes", **PROVEN),
    route("account/links/remove", accounts.Unlink.as_view(), "page-unlink", **GONE),
]  # fmt: skip
urlpatterns = [
    route("", views.overview, "page-overview", GET=counted(*FLEET_ROLES)),
    route("map", views.fleet_map, "page-map", GET=counted(*FLEET_ROLES)),
    route("nodes", views.nodes, "page-nodes", GET=counted(*FLEET_ROLES)),
    route("nodes/<str:name>", views.node, "page-node", GET=counted(*FLEET_ROLES)),
    *account_routes,
    *tenancy_routes,
    *audit_routes,
    *operation_routes,
    *routing_routes,
    route("preferences", views.preferences, "page-preferences", POST=counted(PUBLIC)),
    route("docs/ui", views.component_sheet, "page-ui", GET=counted(PUBLIC)),
    route("docs/problems", views.problems, "page-problems", GET=counted(PUBLIC)),
    route("docs/problems/<slug:code>", views.problem, "page-problem", GET=counted(PUBLIC)),
]
