"""The description of the REST API and the page that shows it: made once a process, for whoever asks.

The page is Swagger UI from the wheel, its start script an address of its own, so that no script is inline.
"""

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularSwaggerSplitView

from kvconsole.infra.rest import Problem, problem_response


@cache
def description() -> dict[str, Any]:
    """OpenAPI 3 of all calls; it does not depend on who asks."""
    found: dict[str, Any] = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return found


@cache
def _rendered() -> bytes:
    found: bytes = OpenApiJsonRenderer().render(description())
    return found


def schema(request: HttpRequest) -> HttpResponse:
    """The description as JSON."""
    if request.GET:
        return problem_response(Problem("unknown-parameter"))
    return HttpResponse(_rendered(), content_type="application/vnd.oai.openapi+json; charset=utf-8")


page = SpectacularSwaggerSplitView.as_view(
    authentication_classes=[], permission_classes=[], template_name="kvconsole/api_docs.html", url_name="schema"
)
