"""Answers the pages that register models, epochs and adapters: what they show and do is in `registering`."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache

from frontend.tenancy import epochs, forms, registering
from frontend.tenancy.people import home
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer


@never_cache
def epoch_new(request: HttpRequest) -> HttpResponse:
    """An epoch is made; asked with `check` it is only checked."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    model = epochs.model_or_404(data.get("model", ""))
    form, plan = registering.epoch_form(data, model), None
    if making or "check" in data:
        plan = registering.epoch_make(form, model, caller(request), rehearse=not making)
    if making and plan:
        return redirect(epochs.address(model.name))
    context = {"model": model, "plan": plan, "address": epochs.address(model.name)}
    return answer(request, "frontend/tenancy/epoch_new.html", form, context)


@never_cache
def adapter_new(request: HttpRequest) -> HttpResponse:
    """An adapter is registered; asked with `check` it is only checked."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    who, form, plan = caller(request), forms.typed(data, *registering.ADAPTER_FIELDS), None
    if making or "check" in data:
        plan = registering.adapter_make(form, who, rehearse=not making)
    own = bool(who.tenant_slug)
    if making and plan:
        return redirect(home(who.tenant_slug) + "#adapters" if own else epochs.address(plan.model) + "#adapters")
    back = home(who.tenant_slug) if own else reverse("page-epochs")
    context = {"plan": plan, "models": registering.suggested(), "back": back, "own": own}
    return answer(request, "frontend/tenancy/adapter_new.html", form, context)


@never_cache
def model_new(request: HttpRequest, checking: bool = False) -> HttpResponse:
    """A model is registered. `checking`: it is only checked; that is posted too, as a config is long."""
    data, asked = (request.POST, True) if request.method == "POST" else (request.GET, False)
    form, plan = registering.model_form(data), None
    if asked:
        plan = registering.model_make(form, caller(request), rehearse=checking)
    if asked and plan and not checking:
        return redirect(epochs.address(plan.name))
    context = {"plan": plan, "models": registering.suggested()}
    return answer(request, "frontend/tenancy/model_new.html", form, context)
