"""All addresses of pages. Each is registered with the roles that may see it; a link exists only to what is here."""

from frontend import views
from kvconsole.infra.access import ANY, PUBLIC, audited, counted, route

FLEET_ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")

urlpatterns = [
    route("", views.overview, "page-overview", GET=counted(*FLEET_ROLES)),
    route("map", views.fleet_map, "page-map", GET=counted(*FLEET_ROLES)),
    route("nodes", views.nodes, "page-nodes", GET=counted(*FLEET_ROLES)),
    route("nodes/<str:name>", views.node, "page-node", GET=counted(*FLEET_ROLES)),
    route("login", views.LogIn.as_view(), "page-login", GET=counted(PUBLIC), POST=audited(PUBLIC)),
    route("logout", views.LogOut.as_view(), "page-logout", POST=audited(ANY)),
    route("preferences", views.preferences, "page-preferences", POST=counted(PUBLIC)),
    route("docs/ui", views.component_sheet, "page-ui", GET=counted(PUBLIC)),
    route("docs/problems", views.problems, "page-problems", GET=counted(PUBLIC)),
    route("docs/problems/<slug:code>", views.problem, "page-problem", GET=counted(PUBLIC)),
]
