"""All addresses of the `web` process: pages, REST and its description. `plumbing` answers its own before these.

A URL belongs to the app that answers it; this file only composes.
"""

from typing import Any

from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from kvconsole.infra.access import PUBLIC, counted, route

API = ("tenants.api_v1", "catalog.api_v1", "catalog.api_tenancy", "catalog.map_api", "routing.api_v1")

OPEN: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}
PAGE = {"template_name": "kvconsole/api_docs.html"}


urlpatterns = [
    route("api/schema", SpectacularJSONAPIView.as_view(**OPEN), "schema", GET=counted(PUBLIC)),
    route("api/docs", SpectacularSwaggerSplitView.as_view(**OPEN, **PAGE), "api-docs", GET=counted(PUBLIC)),
    *(path("api/v1/", include(module)) for module in API),
    path("", include("frontend.urls")),
]
handler403 = "frontend.views.forbidden"
handler404 = "frontend.views.not_found"
handler500 = "frontend.views.broken"
