"""Answers the pages on which two persons decide: approvals, legal holds and the end of epochs."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from audit import approvals
from frontend.operations import deciding
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

APPROVAL, HOLD = "frontend/operations/approval.html", "frontend/operations/hold.html"


@never_cache
def approval_list(request: HttpRequest) -> HttpResponse:
    """What waits for a second person, or was decided."""
    context = deciding.approval_list(timezone.now(), request.GET, caller(request))
    return render(request, "frontend/operations/approvals.html", context)


@never_cache
def approval(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """One of them."""
    one = deciding.approval_or_404(approval_id)
    return answer(request, APPROVAL, Form(), deciding.approval(one, timezone.now(), caller(request)))


@never_cache
def approval_decide(request: HttpRequest, approval_id: UUID, approve: bool) -> HttpResponse:
    """The second person agrees or refuses; whoever asked for it does neither."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "reason")
    one, reason = deciding.approval_or_404(approval_id), form.given["reason"][: approvals.MOST_REASON]
    if request.method == "POST":
        decided = forms.attempt(form, lambda: approvals.approval_decide(
            approval_id=one.id, approve=approve, actor=who, reason=reason, now=now,
        ))  # fmt: skip
        if decided:
            return redirect("page-approval", approval_id=approval_id)
    return answer(request, APPROVAL, form, deciding.approval(one, now, who) | {"proved": True})


# --- holds ------------------------------------------------------------------------------------------------------------


@never_cache
def hold_list(request: HttpRequest) -> HttpResponse:
    """Legal holds."""
    return render(request, "frontend/operations/holds.html", deciding.hold_list(request.GET, caller(request)))


@never_cache
def hold_new(request: HttpRequest) -> HttpResponse:
    """A hold is asked for; a second person places it."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = deciding.hold_form(request.POST if posted else request.GET)
    if posted and (made := deciding.hold_ask(form, who, now)):
        return redirect("page-hold", hold_id=made.id)
    return answer(request, "frontend/operations/hold_new.html", form, {})


@never_cache
def hold(request: HttpRequest, hold_id: UUID) -> HttpResponse:
    """One hold."""
    return answer(request, HOLD, Form(), deciding.hold(deciding.hold_or_404(hold_id), caller(request)))


@never_cache
def hold_release(request: HttpRequest, hold_id: UUID) -> HttpResponse:
    """Its end is asked for; a second person releases it, and what waited goes."""
    who, now, one, form = caller(request), timezone.now(), deciding.hold_or_404(hold_id), Form({"reason": ""})
    if request.method == "POST":
        form = forms.typed(request.POST, "reason")
        if deciding.hold_release(form, one, who, now):
            return redirect("page-hold", hold_id=hold_id)
    return answer(request, "frontend/operations/hold_release.html", form, deciding.hold(one, who))


# --- the end of an epoch ----------------------------------------------------------------------------------------------


@never_cache
def epoch_retire(request: HttpRequest) -> HttpResponse:
    """Model and epoch are chosen; the answer is a plan, and nothing ends by it."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = deciding.retire_form(request.POST if posted else request.GET)
    if posted and (made := deciding.retire_plan(form, who, now)):
        return redirect("page-plan", plan_id=made.id)
    return answer(request, "frontend/operations/retire.html", form, deciding.retire_context(form, now))
