"""Answers the pages of operations, plans, receipts and certificates: who may is in `urls`, what is shown elsewhere."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from catalog.operation_orders import operation_change
from catalog.operations.certificate import certificate_text
from frontend.audit.views import attached
from frontend.operations import asking, lists, running, sheets
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

NEW, RUN, START, STOP = (f"frontend/operations/{name}.html" for name in ("new", "run", "start", "stop"))
PLANS = "frontend/operations/plans.html"


@never_cache
def operations(request: HttpRequest) -> HttpResponse:
    """All operations."""
    context = lists.operation_list(timezone.now(), request.GET, caller(request))
    return render(request, "frontend/operations/operations.html", context)


# --- asking -----------------------------------------------------------------------------------------------------------


@never_cache
def deletion_new(request: HttpRequest) -> HttpResponse:
    """What goes is said, in fields or as a table; the answer is a plan, and nothing goes by it."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form, rows = asking.selector_form(request.POST if posted else request.GET, who), list[asking.Row]()
    upload = request.FILES.get("csv")
    if posted and (upload or form.given["table"]):
        rows = asking.table_of(upload, form.given["table"], form)
        rows = asking.plans_make(rows, form, who, now) if not form.code else rows
        if not form.code:
            return redirect("page-plans")
    elif posted and (made := asking.plan_make(form, who, now)):
        return redirect("page-plan", plan_id=made.id)
    return answer(request, NEW, form, asking.ask_context(form, rows, who))


@never_cache
def plans(request: HttpRequest) -> HttpResponse:
    """One's own plans that can be started."""
    return answer(request, PLANS, Form(), lists.plan_list(timezone.now(), caller(request)))


@never_cache
def plans_start(request: HttpRequest) -> HttpResponse:
    """Several of them are started, all or none."""
    who, now, form = caller(request), timezone.now(), Form()
    if asking.plans_start(request.POST.getlist("plan"), form, who, now):
        return redirect("page-operations")
    return answer(request, PLANS, form, lists.plan_list(now, who))


@never_cache
def plan(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """A frozen plan."""
    context = asking.plan(timezone.now(), asking.plan_or_404(plan_id), caller(request))
    return render(request, "frontend/operations/plan.html", context)


@never_cache
def plan_drift(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """What has changed since, and how long the plan still holds: the parts of its page that move by themselves."""
    context = asking.drift(timezone.now(), asking.plan_or_404(plan_id), caller(request))
    return render(request, "frontend/operations/_drift.html", context)


@never_cache
def plan_start(request: HttpRequest, plan_id: UUID, epoch: bool = False) -> HttpResponse:
    """The plan is carried out; the page before asks for what its risk asks for."""
    who, now, row = caller(request), timezone.now(), asking.plan_or_404(plan_id, kinds=asking.kinds(epoch))
    form = asking.start_form(request.POST, row)
    if request.method == "POST" and (made := asking.plan_start(form, row, who, now)):
        return redirect("page-operation", operation_id=made.id)
    return answer(request, START, form, asking.plan(now, row, who) | asking.void(form, now, row, who))


# --- one operation ----------------------------------------------------------------------------------------------------


@never_cache
def operation(request: HttpRequest, operation_id: UUID) -> HttpResponse:
    """One operation."""
    one = running.operation_or_404(operation_id)
    context = running.operation(timezone.now(), one, caller(request), every="all" in request.GET)
    return answer(request, RUN, Form(), context)


@never_cache
def operation_act(request: HttpRequest, operation_id: UUID, change: str) -> HttpResponse:
    """It is paused, goes on, or has another throttle."""
    who, now, one = caller(request), timezone.now(), running.operation_or_404(operation_id)
    form = forms.typed(request.POST, "throttle")
    throttle = forms.size(form, "throttle") if change == "throttled" else None
    done = forms.attempt(
        form, lambda: operation_change(operation=one, change=change, actor=who, now=now, throttle=throttle or None)
    )
    if done:
        return redirect("page-operation", operation_id=operation_id)
    return answer(request, RUN, form, running.operation(now, one, who))


@never_cache
def operation_stop(request: HttpRequest, operation_id: UUID) -> HttpResponse:
    """It ends where it is; the page before says what that means."""
    who, now, one, form = caller(request), timezone.now(), running.operation_or_404(operation_id), Form()
    if request.method == "POST":
        forms.attempt(form, lambda: operation_change(operation=one, change="stopped", actor=who, now=now))
        if not form.code:
            return redirect("page-operation", operation_id=operation_id)
    return answer(request, STOP, form, running.stopping(one))


# --- evidence ---------------------------------------------------------------------------------------------------------


@never_cache
def receipt(request: HttpRequest, step_id: UUID) -> HttpResponse:
    """What a node answered, as it signed it."""
    return render(request, "frontend/operations/receipt.html", sheets.receipt(step_id, caller(request)))


@never_cache
def certificate(request: HttpRequest, certificate_id: UUID) -> HttpResponse:
    """A certificate, to be read and printed."""
    found = sheets.certificate_or_404(certificate_id)
    return render(request, "frontend/operations/certificate.html", sheets.certificate(found))


@never_cache
def certificate_file(request: HttpRequest, certificate_id: UUID) -> HttpResponse:
    """The same as a file that can be checked without this console."""
    found = sheets.certificate_or_404(certificate_id)
    name = f"kvc-certificate-{found.operation}.json"
    return attached(certificate_text(found), name, "application/json")
