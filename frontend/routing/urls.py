"""Addresses of the pages of routing, prefixes, economics and topology, with the roles that may see each."""

from frontend.routing import views
from kvconsole.infra.access import audited, counted, route

FLEET_ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")
TENANT_ROLES = ("tenant-admin", "tenant-member")
SEES = counted(*FLEET_ROLES, *TENANT_ROLES)
"""What a tenant's own people see of it is their own: the database shows them nothing else."""
FLEET = counted(*FLEET_ROLES)
urlpatterns = [
    route("routing", views.routing, "page-routing", GET=SEES),
    route("routing/decisions/<uuid:decision_id>", views.decision, "page-decision", GET=SEES),
    route("routing/compare", views.compare, "page-routing-compare", GET=FLEET),
    route("routing/policies", views.policies, "page-policies", GET=FLEET),
    route(
        "routing/policies/<str:name>", views.policy, "page-policy",
        GET=FLEET, POST=audited("operator", scope="policies:write"),
    ),
    route("prefixes", views.prefixes, "page-prefixes", GET=SEES),
    route("economics", views.economics_page, "page-economics", GET=SEES),
    route("topology", views.topology, "page-topology", GET=FLEET),
]  # fmt: skip
