"""All addresses of the `web` process: pages, REST and its description. `plumbing` answers its own before these.

A URL belongs to the app that answers it; this file only composes.
"""

from django.urls import include, path

from kvconsole import apidocs
from kvconsole.infra.access import PUBLIC, counted, route

API = (
    "audit.api_v1",
    "audit.api_retention",
    "audit.api_events",
    "audit.api_epochs",
    "audit.api_jobs",
    "audit.api_webhooks",
    "tenants.api_reuse",
    "tenants.api_v1",
    "tenants.api_people",
    "tenants.api_review",
    "catalog.api_v1",
    "catalog.api_tenancy",
    "catalog.api_operations",
    "catalog.api_holds",
    "catalog.api_moves",
    "catalog.api_windows",
    "catalog.map_api",
    "routing.api_v1",
)


urlpatterns = [
    route("api/schema", apidocs.schema, "schema", GET=counted(PUBLIC)),
    route("api/docs", apidocs.page, "api-docs", GET=counted(PUBLIC)),
    *(path("api/v1/", include(module)) for module in API),
    path("", include("frontend.urls")),
]
handler403 = "frontend.views.forbidden"
handler404 = "frontend.views.not_found"
handler500 = "frontend.views.broken"
