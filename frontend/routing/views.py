"""Answers the pages of routing, prefixes, economics and topology: who may is in `urls`, what is shown elsewhere."""

from uuid import UUID

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from frontend.routing import comparing, decisions, economics, hot, ruling
from frontend.routing import decision as one_decision
from frontend.routing import topology as map_of_edges
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer
from kvconsole.infra.access import principal_of


@never_cache
def routing(request: HttpRequest) -> HttpResponse:
    """The newest decisions, and what became of those of the last hour."""
    context = decisions.page(timezone.now(), request.GET, principal_of(request))
    return render(request, "frontend/routing/routing.html", context)


@never_cache
@csp_update({"style-src-attr": ["'unsafe-inline'"]})  # type: ignore[arg-type]
def decision(request: HttpRequest, decision_id: UUID) -> HttpResponse:
    """One decision. Plotly writes `style` attributes; of these pages this one alone allows them."""
    found = one_decision.decision_or_404(decision_id)
    context = one_decision.page(timezone.now(), found, request.GET, principal_of(request))
    return render(request, "frontend/routing/decision.html", context)


@never_cache
def compare(request: HttpRequest) -> HttpResponse:
    """Every policy over the same recorded requests."""
    context = comparing.page(timezone.now(), request.GET)
    return render(request, "frontend/routing/compare.html", context)


@never_cache
def policies(request: HttpRequest) -> HttpResponse:
    """The policies in force, and the kinds that nobody wrote one for."""
    return render(request, "frontend/routing/policies.html", ruling.listed(timezone.now()))


@never_cache
def policy(request: HttpRequest, name: str) -> HttpResponse:
    """One policy; asked with `check` the page shows what a change would have done. Posted, it is the next version."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    before, now = ruling.policy_or_404(name), timezone.now()
    form = ruling.policy_form(data, before)
    run = ruling.rehearse(form, before) if making or "check" in data else []
    if making and ruling.policy_set(form, before, caller(request), now):
        return redirect("page-policy", name=name)
    return answer(request, "frontend/routing/policy.html", form, ruling.page(form, before, run, principal_of(request)))


@never_cache
def prefixes(request: HttpRequest) -> HttpResponse:
    """What is read most."""
    context = hot.page(timezone.now(), principal_of(request))
    return render(request, "frontend/routing/prefixes.html", context)


@never_cache
def economics_page(request: HttpRequest) -> HttpResponse:
    """Calculators."""
    form, context = economics.page(timezone.now(), request.GET, principal_of(request))
    return answer(request, "frontend/routing/economics.html", form, context)


@never_cache
def topology(request: HttpRequest) -> HttpResponse:
    """Nodes, what lies between them, and what one of them is worth."""
    context = map_of_edges.page(timezone.now(), request.GET)
    return render(request, "frontend/routing/topology.html", context)
