"""Answers the public check: anybody may bring a proof or an export, logged in or not. Nothing of it is kept."""

import re

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from audit import certifying
from audit.verifier import kvc_verify
from frontend import wording
from frontend.audit import checking, sentences
from frontend.audit.checking import Brought, Checked
from frontend.audit.views import attached
from frontend.audit.wording import PLACES, VERDICTS, WHY
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.pages import may
from frontend.tenancy.views import answer
from kvconsole.infra.access import principal_of
from kvconsole.infra.rest import Problem

VERIFIER = kvc_verify.__file__
TONES = {"problems": ("danger", "danger"), "reasons": ("warn", "warn"), "remarks": ("info", "info")}


@never_cache
def verify(request: HttpRequest) -> HttpResponse:
    """What was brought is checked in memory, by the same file that people run offline."""
    form, found = forms.typed(request.POST, "keys", "proof", "pii", "earlier"), None
    if request.method == "POST":
        found = checked(request, form)
    mine = may(principal_of(request), "page-audit-consistency", method="GET")
    context = {
        "most": checking.MOST_UPLOAD,
        "may": mine,
        "issued": issued(request),
        **(verdict(found) if found else {}),
    }
    return answer(request, "frontend/audit/verify.html", form, context)


def issued(request: HttpRequest) -> bool | None:
    """Whether this console issued the certificate whose SHA-256 the address names; None: it names none."""
    digest = request.GET.get("certificate", "")
    return certifying.is_issued(bytes.fromhex(digest)) if re.fullmatch("[0-9a-f]{64}", digest) else None


def checked(request: HttpRequest, form: Form) -> Checked | None:
    """The verdict on what was brought; None: the form says why there is none."""
    given = {name: brought(request, name) for name in ("proof", "body", "pii", "earlier")}
    if not (given["proof"] or given["earlier"]):
        form.wrong("proof", "required")
        return None
    try:
        return checking.check(Brought(**given, keys=request.POST.get("keys", "")))
    except Problem as refusal:
        form.refuse(refusal)
        return None


def brought(request: HttpRequest, name: str) -> bytes:
    """The bytes of a file that was sent along, else what was pasted; requests are bounded, so they are in memory."""
    file = request.FILES.get(f"{name}_file")
    if file:
        return bytes(file.read(checking.MOST_UPLOAD + 1))
    return request.POST.get(name, "").replace("\r\n", "\n").encode()


def verdict(found: Checked) -> dict[str, object]:
    """The verdict as it is shown."""
    return {
        "found": found,
        "tone": wording.state(VERDICTS, found.verdict),
        "lines": sentences.verdict(found),
        "said": reasons(found),
        "heads": sentences.heads(found),
    }


def reasons(found: Checked) -> list[dict[str, object]]:
    """Why the verdict is what it is, what weighs most first."""
    rows = [(*tone, one) for part, tone in TONES.items() for one in found.facts[part][:20]]
    return [
        {"tone": tone, "icon": icon, "word": WHY.get(one["code"], ""), "code": one["code"],
         "detail": "" if one["code"] in WHY else one["detail"],
         "place": [(PLACES.get(k, k), v) for k, v in one.items() if k not in ("code", "detail") and v != ""]}
        for tone, icon, one in rows
    ]  # fmt: skip


@never_cache
def verifier(request: HttpRequest) -> HttpResponse:
    """The verifier, to be run offline."""
    with open(VERIFIER, "rb") as file:
        return attached(file.read(), "kvc_verify.py", "text/x-python; charset=utf-8")


@never_cache
def keys(request: HttpRequest) -> HttpResponse:
    """The public keys of this console, to be kept where the console cannot change them."""
    found = checking.own_keys()
    if not found:
        return render(request, "frontend/audit/no_keys.html", status=503)
    return attached(("\n".join(found) + "\n").encode(), "keys.txt", "text/plain; charset=utf-8")
