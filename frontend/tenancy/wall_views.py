"""Answers the pages that set where a tenant's blocks may be: what they show and do is in `walls`."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from catalog.apart import nodes_offered
from catalog.classes import class_rules_view
from frontend import wording
from frontend.tenancy import walls
from frontend.tenancy.views import answer, tenant_or_404
from kvconsole.infra.access import principal_of


@never_cache
def classes(request: HttpRequest, slug: str) -> HttpResponse:
    """The rules of data classes are set; asked with `check` the page shows what they would mean."""
    view, data = tenant_or_404(slug), request.POST if request.method == "POST" else request.GET
    making, present = request.method == "POST", class_rules_view(tenant=walls.place_or_404(view))
    form, plan = walls.rules_form(data, present, view), None
    if making or "check" in data:
        plan = walls.rules_set(form, view, principal_of(request), timezone.now(), rehearse=not making)
    if making and plan is not None:
        return redirect("page-tenant", slug=slug)
    lines = walls.rule_lines(form, walls.class_names(present, view))
    context = {
        "tenant": view,
        "plan": plan,
        "lines": lines,
        "kinds": walls.KINDS,
        "levels": walls.LEVELS,
        "tiers": wording.TIERS,
    }
    return answer(request, "frontend/tenancy/classes.html", form, context)


@never_cache
def nodes(request: HttpRequest, slug: str, evict: bool = False) -> HttpResponse:
    """A tenant's own nodes are set; asked with `check` the page shows what leaves. `evict`: of others, it may."""
    view, data = tenant_or_404(slug), request.POST if request.method == "POST" else request.GET
    making, offered = request.method == "POST", nodes_offered()
    form, plan = walls.nodes_form(data, view, offered), None
    if making or "check" in data:
        allowed, who = evict or not making, principal_of(request)
        plan = walls.nodes_set(form, view, who, timezone.now(), evict=allowed, rehearse=not making)
    if making and plan is not None:
        return redirect("page-tenant", slug=slug)
    context = {"tenant": view, "plan": plan, "offered": offered}
    return answer(request, "frontend/tenancy/nodes.html", form, context)
