"""Answers the pages of the log, its exports and verifications: who may is in `urls`, what is shown in `pages`."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from audit import jobs, proving, wishes
from audit.downloads import file_answer
from audit.wishes import searched
from frontend.audit import keeping, pages, work
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

EXPORT = "frontend/audit/export_new.html"


@never_cache
def audit(request: HttpRequest) -> HttpResponse:
    """The log."""
    return render(request, "frontend/audit/audit.html", pages.audit(timezone.now(), request.GET, caller(request)))


@never_cache
def state(request: HttpRequest) -> HttpResponse:
    """How the log stands and what came since: the parts of its page that move by themselves."""
    context = pages.followed(timezone.now(), request.GET, caller(request))
    return render(request, "frontend/audit/state.html", context)


@never_cache
def checkpoint(request: HttpRequest) -> HttpResponse:
    """The newest signed checkpoint, to be kept: what is signed later has to begin with it."""
    form = Form()
    newest = forms.attempt(form, proving.checkpoint_now)
    if newest is None:
        return refused(request, form)
    return attached(newest.note.encode(), f"checkpoint-{newest.size}.txt", "text/plain; charset=utf-8")


@never_cache
def event(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """One event."""
    return render(request, "frontend/audit/event.html", pages.event(event_id, caller(request)))


@never_cache
def event_proof(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """The proof file of an event."""
    form, found = Form(), pages.event_or_404(event_id)
    proof = forms.attempt(form, lambda: proving.proof_of(found.id, found.time_us))
    if proof is None:
        return refused(request, form)
    return attached(proof.encode(), f"{event_id}.tlog-proof", "text/plain; charset=utf-8")


def refused(request: HttpRequest, form: Form, back: str = "page-audit") -> HttpResponse:
    """The page that says why there is no file or job, with the status of the refusal; `back`: where to go on."""
    shown = {"form": form, "code": form.code, "problem": form.problem, "back": back}
    response = render(request, "frontend/audit/refused.html", shown, status=form.status)
    response.problem_code = form.code  # type: ignore[attr-defined]
    return response


@never_cache
def event_body(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """The bytes of an event's body, as its leaf commits to them. That somebody took them is an event."""
    found = pages.event_or_404(event_id)
    searched({"event": str(event_id)}, 1, actor=caller(request))
    if not found.body:
        raise Http404
    return attached(bytes(found.body), f"{event_id}.json", "application/json")


def attached(data: bytes, name: str, kind: str) -> HttpResponse:
    """A file to take away."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(data, content_type=kind, headers=headers)


# --- exports and verifications ----------------------------------------------------------------------------------------


@never_cache
def verify_now(request: HttpRequest) -> HttpResponse:
    """All of the log is hashed again."""
    form, who, now = Form(), caller(request), timezone.now()
    job = forms.attempt(form, lambda: wishes.verification_request(actor=who, now=now))
    if job is not None:
        return redirect("page-audit-job", job_id=job.id)
    return refused(request, form)


@never_cache
def job_list(request: HttpRequest) -> HttpResponse:
    """Exports and verifications."""
    return render(request, "frontend/audit/jobs.html", work.job_rows(request.GET, caller(request)))


@never_cache
def export_new(request: HttpRequest, disclose: bool = False) -> HttpResponse:
    """An export is asked for; asked with `check` it is told what it would hold. `disclose`: with personal data."""
    who, now, asking = caller(request), timezone.now(), request.method == "POST"
    data = request.POST if asking else request.GET
    form, plan = work.export_form(data, begun=asking or "check" in data), None
    if asking or "check" in data:
        plan = work.export_ask(form, now, who, disclose=disclose, rehearse=not asking)
    if asking and plan is not None:
        return redirect("page-audit-job", job_id=plan.id)
    return answer(request, EXPORT, form, {"plan": plan, **work.export_context(form, who, personal=disclose)})


@never_cache
def job(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """How far an export or verification is, and what came of it."""
    return render(request, "frontend/audit/job.html", work.job(job_id, caller(request)))


@never_cache
def job_cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """It ends at its next step; the page before says what goes."""
    form, who, one = Form(), caller(request), work.job_or_404(job_id)
    if request.method == "POST":
        forms.attempt(form, lambda: jobs.job_cancel(job_id=one.id, actor=who))
        if not form.code:
            return redirect("page-audit-job", job_id=job_id)
    return answer(request, "frontend/audit/confirm.html", form, work.job_plan(one))


@never_cache
def job_download(request: HttpRequest, job_id: UUID) -> HttpResponseBase:
    """The file of an export; that somebody takes it is an event."""
    form, who, one = Form(), caller(request), work.job_or_404(job_id)
    taken = forms.attempt(form, lambda: wishes.export_take(one, request.headers.get("Range", ""), actor=who))
    if taken is None:
        return refused(request, form)
    return file_answer(request, taken.path, taken.part, name=taken.name, sha256=taken.sha256)


@never_cache
def access(request: HttpRequest) -> HttpResponse:
    """Who can delete what today."""
    return render(request, "frontend/audit/access.html", keeping.access(timezone.now(), caller(request)))
