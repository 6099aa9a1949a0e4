"""All addresses of the `web` process: pages, REST, its description, and the plumbing.

A URL belongs to the app that answers it; this file only composes.
"""

import importlib
import importlib.util

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from kvconsole import plumbing

API = ("tenants.api_v1", "catalog.api_v1", "catalog.map_api", "routing.api_v1", "audit.api_v1")
PAGES = ("frontend.urls",)


def _routes(prefix: str, modules: tuple[str, ...]) -> list[URLPattern | URLResolver]:
    return [path(prefix, include(module)) for module in modules if importlib.util.find_spec(module)]


urlpatterns = [
    path("healthz", plumbing.healthz),
    path("readyz", plumbing.readyz),
    path("metrics", plumbing.metrics),
    path(
        "api/schema",
        SpectacularJSONAPIView.as_view(authentication_classes=[], permission_classes=[]),
        name="schema",
    ),
    path(
        "api/docs",
        SpectacularSwaggerSplitView.as_view(
            authentication_classes=[],
            permission_classes=[],
            template_name="kvconsole/api_docs.html",
        ),
        name="api-docs",
    ),
    *_routes("api/v1/", API),
    *_routes("", PAGES),
]
