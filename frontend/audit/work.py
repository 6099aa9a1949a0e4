"""Decides what the pages of exports and verifications show: jobs, and what an export would hold before it is asked for.

As `pages`: one function a page, called by `views`.
"""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, QueryDict
from django.urls import reverse

from audit import jobs, selectors, wishes
from audit.bodies import ExportIn, filter_of, job_answer
from audit.export.foresee import foresee
from frontend.audit import sentences
from frontend.audit.pages import ACTS, FILTERS, WORDS, filter_names, numbered, outcome_choices, plan
from frontend.audit.wording import FORMATS, JOB_KINDS
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal


def job_rows(data: QueryDict, principal: Principal) -> dict[str, Any]:
    """Exports and verifications, newest first."""
    found, page = numbered(selectors.jobs().order_by("-created_at", "-id"), data)
    return {"jobs": [job_line(one) for one in found], "page": page, "may": may(principal, *ACTS)}


def job_line(one: Any) -> dict[str, Any]:
    """A job as it is shown."""
    shown = job_answer(one)
    state = "cancelling" if shown["cancelling"] else shown["state"]
    said = sentences.job(one.kind, one.state, shown["result"])
    diverges = bool((shown["result"] or {}).get("divergences"))
    return {
        **shown, "look": state, "said": said, "at": one.created_at, "until": one.expires_at, "diverges": diverges,
        "open": one.state in jobs.OPEN, "file": wishes.export_name(one),
    }  # fmt: skip


def job_or_404(job_id: UUID) -> Any:
    """The job, where the caller may see it."""
    found = selectors.jobs().filter(id=job_id).first()
    if found is None:
        raise Http404
    return found


def job(job_id: UUID, principal: Principal) -> dict[str, Any]:
    """One job."""
    one = job_or_404(job_id)
    return {"job": job_line(one), "may": may(principal, "page-audit-job-cancel")}


def job_plan(one: Any) -> dict[str, Any]:
    """What stopping a job means, to be confirmed."""
    return plan("job-cancel", str(JOB_KINDS[one.kind]), reverse("page-audit-job", args=[one.id]))


def export_form(data: QueryDict, *, begun: bool) -> Form:
    """What was typed, or, before anything was, the usual choices."""
    form = forms.typed(data, *FILTERS, "format", "proofs")
    form.given["format"] = form.given["format"] or "jsonl"
    if not begun:
        form.given["proofs"] = "yes"
    return form


def export_fields(form: Form, *, disclose: bool) -> dict[str, Any]:
    """What was typed, as the API takes it; empty: the form says what is wrong."""
    given = form.given
    asked = {
        "filters": {name: given[name] for name in WORDS if given[name]},
        **{name: given[name] for name in ("from", "to") if given[name]},
        "format": given["format"], "proofs": given["proofs"] == "yes", "personal_data": disclose,
    }  # fmt: skip
    return forms.checked(ExportIn, form, asked)


def export_ask(form: Form, now: datetime, principal: Principal, *, disclose: bool, rehearse: bool) -> Any:
    """The export is asked for, or only rehearsed: then this is what it would hold. None: the form says why not."""
    fields = export_fields(form, disclose=disclose)
    job = forms.attempt(
        form, lambda: wishes.export_request(fields, actor=principal, now=now), rehearse=rehearse
    )  # fmt: skip
    if job is None or not rehearse:
        return job
    asked = filter_of({**fields.get("filters", {}), **{name: fields.get(name) for name in ("from", "to")}})
    size = job.params["size"]
    held = foresee(asked, size=size, whole=principal.tenant_id is None)
    return {"size": size, "held": held, "count": sentences.held(held), "personal": sentences.held_personal(held)}


def export_context(form: Form, principal: Principal, *, personal: bool) -> dict[str, Any]:
    """What an export can be asked for with. `personal`: somebody has just proved who they are, and may disclose."""
    given = {k: form.given[k] for k in (*FILTERS, "format", "proofs") if form.given[k]}
    return {
        "formats": [(code, word, "") for code, word in FORMATS.items()],
        "outcomes": outcome_choices(),
        "filters": filter_names(principal),
        "personal": personal,
        "given": given,
        "disclose": reverse("page-audit-export-disclose") + "?" + urlencode({**given, "check": "1"}),
    }
