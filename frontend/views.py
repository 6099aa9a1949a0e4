"""Answers pages: who may is in the registry (`urls`), what is shown in `pages`, how in the templates."""

import sys

from csp.decorators import csp_update
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache

from catalog import selectors
from catalog.operation_reads import drain_open
from frontend import context, formats, pages, preference, wording
from frontend.problems import PROBLEMS
from frontend.problems import problem as meaning
from frontend.tenancy.pages import may
from kvconsole.infra import rest
from kvconsole.infra.access import principal_of, rule_for


@never_cache
def overview(request: HttpRequest) -> HttpResponse:
    """The fleet in one page."""
    return render(request, "frontend/overview.html", pages.overview(timezone.now()))


@never_cache
def fleet_map(request: HttpRequest) -> HttpResponse:
    """The heat map and the tiles."""
    metric, span = request.GET.get("metric", ""), request.GET.get("range", "")
    metric = metric if metric in wording.METRICS else "hits"
    span = span if span in wording.RANGES else "1h"
    now = timezone.now()
    asked = pages.window(request.GET.get("from", ""), request.GET.get("to", ""), now)
    acts = may(principal_of(request), "page-deletion-new", "page-prefetch-new")
    return render(request, "frontend/map.html", {**pages.fleet_map(now, metric, span, asked), "may": acts})


@never_cache
def nodes(request: HttpRequest) -> HttpResponse:
    """All nodes."""
    return render(request, "frontend/nodes.html", pages.nodes(timezone.now()))


@never_cache
@csp_update({"style-src-attr": ["'unsafe-inline'"]})  # type: ignore[arg-type]
def node(request: HttpRequest, name: str) -> HttpResponse:
    """One node. Plotly writes `style` attributes, so this page alone allows them."""
    now = timezone.now()
    view = selectors.node_view(name=name, now=now)
    if view is None:
        raise Http404
    span = request.GET.get("range", "")
    more = {"may": may(principal_of(request), "page-node-drain", "page-node-cordon"), "drain": drain_open(view.name)}
    context = pages.node(now, view, span if span in pages.NODE_RANGES else "1h") | more
    return render(request, "frontend/node.html", context)


# --- how they like it -------------------------------------------------------------------------------------------------


def preferences(request: HttpRequest) -> HttpResponse:
    """Theme, language and single keys are remembered, on this browser and with the person."""
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure()):
        target = settings.LOGIN_REDIRECT_URL
    response = HttpResponseRedirect(target)
    preference.store(response, principal_of(request), request.POST.dict())
    return response


# --- documents ------------------------------------------------------------------------------------------------------


def component_sheet(request: HttpRequest) -> HttpResponse:
    """Every part once, in every state."""
    return render(request, "frontend/ui.html", pages.component_sheet())


def problems(request: HttpRequest) -> HttpResponse:
    """All refusal codes."""
    return render(request, "frontend/problems.html", {"problems": PROBLEMS.items()})


def problem(request: HttpRequest, code: str) -> HttpResponse:
    """What one refusal code means."""
    known = meaning(code)
    if known is None:
        raise Http404
    return render(request, "frontend/problem.html", {"code": code, "problem": known})


# --- refusals as pages ----------------------------------------------------------------------------------------------


def refusal(request: HttpRequest, code: str, status: int) -> HttpResponse:
    """The page that says what a code means."""
    shown = {"code": code, "problem": meaning(code), "status": status, "request_id": rest.request_id()}
    response = render(request, "frontend/error.html", {**shown, "needed": needed(request)}, status=status)
    response.problem_code = code  # type: ignore[attr-defined]
    return response


def needed(request: HttpRequest) -> str:
    """The roles that may do what was asked for, in words; "" = it is for everybody, or nothing."""
    match = request.resolver_match
    rule = rule_for(match.url_name if match else None, request.method or "")
    roles = [str(word) for role, word in wording.USER_ROLES.items() if rule and role in rule.roles]
    return formats.either(roles)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    """A page for people, problem+json for programs."""
    if request.path.startswith("/api/") or "text/html" not in request.headers.get("Accept", ""):
        return rest.not_found(request, exception)
    return refusal(request, "not-found", 404)


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Names the roles that may see the page, and who grants them; a tenant's own people begin at their portal."""
    principal = principal_of(request)
    if principal and principal.tenant_slug and request.path == "/":
        return HttpResponseRedirect(context.home(principal))
    return refusal(request, "forbidden", 403)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The form was older than the session."""
    return refusal(request, "csrf-failed", 403)


def broken(request: HttpRequest) -> HttpResponseBase:
    """Something broke, or PostgreSQL is away: the page needs no database and no session."""
    away = isinstance(sys.exc_info()[1], OperationalError | InterfaceError)
    code, status = ("unavailable", 503) if away else ("internal", 500)
    if request.path.startswith("/api/"):
        return rest.problem_response(rest.Problem(code))
    shown = {"code": code, "problem": PROBLEMS[code], "status": status, "request_id": rest.request_id()}
    response = render(None, "frontend/error_bare.html", shown, status=status)
    response.problem_code = code  # type: ignore[attr-defined]
    return response
