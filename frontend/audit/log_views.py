"""Answers the pages of findings, and of logs that go on after each other: asked for, decided, taken to the signer."""

import json
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from audit import approvals, epochs, explaining, proving
from audit.api_epochs import LogEndIn, NoteIn
from frontend.audit import ending
from frontend.audit.views import attached, refused
from frontend.audit.wording import ENDS
from frontend.tenancy import forms
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

FINDING, DECIDE = "frontend/audit/finding.html", "frontend/audit/log_decide.html"
TEXT = "text/plain; charset=utf-8"


@never_cache
def findings(request: HttpRequest) -> HttpResponse:
    """What was found amiss."""
    return render(request, "frontend/audit/findings.html", ending.findings(request.GET, caller(request)))


@never_cache
def finding(request: HttpRequest, finding_id: int) -> HttpResponse:
    """One finding."""
    found, form = ending.finding_or_404(finding_id), forms.typed({}, "note")
    return answer(request, FINDING, form, ending.finding(found, caller(request)))


@never_cache
def finding_acknowledge(request: HttpRequest, finding_id: int) -> HttpResponse:
    """An auditor says that it was looked into; it stays open."""
    who, found, form = caller(request), ending.finding_or_404(finding_id), forms.typed(request.POST, "note")
    if fields := forms.checked(NoteIn, form, form.given):
        forms.attempt(form, lambda: explaining.finding_acknowledge(finding_id=finding_id, actor=who, **fields))
    if not form.code:
        return redirect("page-audit-finding", finding_id=finding_id)
    return answer(request, FINDING, form, ending.finding(found, who))


# --- the end of a log -------------------------------------------------------------------------------------------------


@never_cache
def logs(request: HttpRequest) -> HttpResponse:
    """All logs, and who asked that the present one ends."""
    return render(request, "frontend/audit/logs.html", ending.logs(timezone.now(), caller(request)))


@never_cache
def log_new(request: HttpRequest) -> HttpResponse:
    """Somebody asks that the log ends; a second person decides."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "end", "note")
    if request.method == "POST":
        fields = forms.checked(LogEndIn, form, {"reason": form.given["end"], "note": form.given["note"]})
        if forms.attempt(form, lambda: epochs.epoch_request(**fields, actor=who, now=now)):
            return redirect("page-audit-logs")
    choices = [(code, words, "") for code, words in ENDS.items()]
    return answer(request, "frontend/audit/log_new.html", form, {"ends": choices, "kept": epochs.kept_now()})


@never_cache
def log_decide(request: HttpRequest, approval_id: UUID, approve: bool) -> HttpResponse:
    """The second person sees what would end, and agrees, having typed its name, or refuses."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "reason", "phrase")
    asked, reason = ending.wish_or_404(approval_id), form.given["reason"][: approvals.MOST_REASON]
    if request.method == "POST":
        forms.phrase(form, asked.what["origin"] if approve else "")
        decided = forms.attempt(form, lambda: approvals.approval_decide(
            approval_id=asked.id, approve=approve, actor=who, reason=reason, now=now,
        ))  # fmt: skip
        if decided:
            return redirect("page-audit-logs")
    return answer(request, DECIDE, form, {"wish": ending.wish(asked, now, who)})


@never_cache
def log_order(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """The order that somebody brings to the signer's host."""
    form, asked = forms.Form(), ending.wish_or_404(approval_id)
    order = forms.attempt(form, lambda: epochs.epoch_order(asked.id))
    if order is None:
        return refused(request, form, back="page-audit-logs")
    return attached((json.dumps(order, indent=1) + "\n").encode(), "order.json", "application/json")


@never_cache
def log_record(request: HttpRequest, number: int) -> HttpResponse:
    """The record by which one log goes on after another; auditors get it."""
    return attached(ending.record_or_404(number).encode(), f"log-{number}.note", TEXT)


@never_cache
def consistency(request: HttpRequest) -> HttpResponse:
    """What shows that a newer checkpoint, the newest if none is named, begins with one that somebody kept."""
    form = forms.typed(request.GET, "old", "new")
    old, new = forms.whole(form, "old"), forms.whole(form, "new")
    if old is None and not form.code:
        form.wrong("old", "required")
    text = forms.attempt(form, lambda: proving.consistency_of(old or 0, new))
    return refused(request, form) if text is None else attached(text.encode(), "consistency.txt", TEXT)
