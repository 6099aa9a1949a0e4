"""Answers the pages of tenants and epochs: who may is in the registry (`urls`), what is shown in `pages`."""

from typing import Any

from csp.decorators import csp_update
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from catalog.quotas import quota_view
from frontend.tenancy import acts, epochs, pages
from frontend.tenancy.forms import Form
from kvconsole.infra.access import principal_of
from tenants.directory import TenantView, tenant_view

NEW, CHANGE, QUOTAS, CLOSE = (f"frontend/tenancy/{name}.html" for name in ("new", "change", "quotas", "close"))


def tenant_or_404(slug: str) -> TenantView:
    """The tenant, where the caller may see it; a foreign one is as absent as one that never was."""
    found = tenant_view(slug)
    if found is None:
        raise Http404
    return found


def answer(request: HttpRequest, template: str, form: Form, context: dict[str, Any]) -> HttpResponse:
    """The page with its form. A refusal has its own status, so that nothing of the request stays done."""
    response = render(request, template, {**context, "form": form, "code": form.code, "problem": form.problem})
    if request.method == "POST" and form.code:
        response.status_code = form.status
        response.problem_code = form.code  # type: ignore[attr-defined]
    return response


# --- tenants ----------------------------------------------------------------------------------------------------------


@never_cache
def tenants(request: HttpRequest) -> HttpResponse:
    """The list of tenants."""
    context = pages.tenants(timezone.now(), request.GET, principal_of(request))
    return render(request, "frontend/tenancy/tenants.html", context)


@never_cache
def tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """One tenant."""
    context = pages.tenant(timezone.now(), tenant_or_404(slug), request.GET, principal_of(request))
    return render(request, "frontend/tenancy/tenant.html", context)


@never_cache
def portal(request: HttpRequest, slug: str) -> HttpResponse:
    """One tenant, as its own people see it."""
    context = pages.portal(timezone.now(), tenant_or_404(slug), request.GET, principal_of(request))
    return render(request, "frontend/tenancy/portal.html", context)


@never_cache
def rates(request: HttpRequest, slug: str) -> HttpResponse:
    """What is left of a tenant's rates: the part of its page that moves by itself."""
    return render(request, "frontend/tenancy/_rates.html", pages.rates(timezone.now(), tenant_or_404(slug)))


@never_cache
def tenant_new(request: HttpRequest) -> HttpResponse:
    """A tenant is made; asked with `check` it is only checked."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    form, plan = acts.tenant_form(data), None
    if making or "check" in data:
        plan = acts.tenant_make(form, principal_of(request), rehearse=not making)
    if making and plan:
        return redirect("page-tenant", slug=plan.slug)
    return answer(request, NEW, form, {"plan": plan, "choices": acts.CHOICES})


@never_cache
def tenant_change(request: HttpRequest, slug: str) -> HttpResponse:
    """What a tenant is, is changed; asked with `check` the change is only checked."""
    view, data = tenant_or_404(slug), request.POST if request.method == "POST" else request.GET
    making, form, plan = request.method == "POST", acts.tenant_form(data, view), None
    if making or "check" in data:
        plan = acts.tenant_change(form, slug, principal_of(request), rehearse=not making)
    if making and plan:
        return redirect("page-tenant", slug=slug)
    context = {"tenant": view, "plan": acts.tenant_plan(view, plan), "choices": acts.CHOICES}
    return answer(request, CHANGE, form, context | {"seen": acts.tenant_tag(view)})


@never_cache
def quotas(request: HttpRequest, slug: str, evict: bool = False) -> HttpResponse:
    """Quotas are set; asked with `check` the page shows what they would mean. `evict`: what is above may leave."""
    view, now, data = tenant_or_404(slug), timezone.now(), request.POST if request.method == "POST" else request.GET
    making, before = request.method == "POST", quota_view(tenant=view.id, now=now)
    form, after = acts.quota_form(data, before), None
    if making or "check" in data:
        after = acts.quotas_set(form, view, principal_of(request), now, evict=evict or not making, rehearse=not making)
    if making and after:
        return redirect("page-tenant", slug=slug)
    plan = acts.quota_plan(before, after) if after else None
    context = {"tenant": view, "plan": plan, "evicts": acts.evicted(plan or []), "before": before}
    return answer(request, QUOTAS, form, context)


@never_cache
def tenant_close(request: HttpRequest, slug: str) -> HttpResponse:
    """A tenant that holds nothing is closed; the page before says whether it can be."""
    view, doing = tenant_or_404(slug), request.method == "POST"
    form = acts.tenant_close(view, principal_of(request), timezone.now(), rehearse=not doing)
    if doing and not form.code:
        return HttpResponseRedirect(redirect("page-tenants").url)
    return answer(request, CLOSE, form, {"tenant": view})


# --- epochs -----------------------------------------------------------------------------------------------------------


@never_cache
@csp_update({"style-src-attr": ["'unsafe-inline'"]})
def models(request: HttpRequest) -> HttpResponse:
    """Models and their epochs. Plotly writes `style` attributes; of these pages this one alone allows them."""
    context = epochs.page(timezone.now(), request.GET, principal_of(request))
    return render(request, "frontend/tenancy/epochs.html", context)


@never_cache
def rollout(request: HttpRequest) -> HttpResponse:
    """The shares of a model's epochs are set; asked with `check` the page shows what they would mean."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    model, now = epochs.model_or_404(data.get("model", "")), timezone.now()
    form, plan = epochs.share_form(data, model, now), None
    if making or "check" in data:
        plan = epochs.shares_set(form, model, principal_of(request), now, rehearse=not making)
    if making and plan:
        return redirect(epochs.address(model.name))
    return answer(request, "frontend/tenancy/rollout.html", form, epochs.share_context(model, form, plan, now))
