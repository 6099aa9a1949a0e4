"""Answers the pages of webhooks and of the retention of bodies, and ends what the log knows of a person."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from audit import approvals, retention
from audit.api_webhooks import WebhookIn
from audit.webhooks import services as hooks
from audit.webhooks.signature import secret_text
from frontend.audit import keeping
from frontend.audit.wording import CLASSES
from frontend.tenancy import forms, people
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer
from tenants import services

HOOK, CONFIRM = "frontend/audit/webhook.html", "frontend/audit/confirm.html"


@never_cache
def webhooks(request: HttpRequest) -> HttpResponse:
    """Who is told of what."""
    return render(request, "frontend/audit/webhooks.html", keeping.hooks(caller(request)))


@never_cache
def webhook_new(request: HttpRequest) -> HttpResponse:
    """A webhook is made; its secret is on the answer and nowhere else."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "url", "name", many=("events",))
    if request.method == "POST" and not form.given["events"]:
        form.wrong("events", "none-chosen")
    fields = forms.checked(WebhookIn, form, form.given) if request.method == "POST" else {}
    if fields and (made := forms.attempt(form, lambda: hooks.webhook_create(**fields, actor=who, now=now))):
        return secret_once(request, *made)
    return answer(request, "frontend/audit/webhook_new.html", form, {"kinds": keeping.hook_kinds()})


def secret_once(request: HttpRequest, hook: object, secret: bytes) -> HttpResponse:
    """The page with the secret; no cache and no history keeps it."""
    return render(request, "frontend/audit/webhook_once.html", {"hook": hook, "secret": secret_text(secret)})


@never_cache
def webhook(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """One webhook and what was sent to it."""
    return render(request, HOOK, keeping.hook(webhook_id, request.GET, caller(request)))


@never_cache
def webhook_state(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """It is paused, or active again."""
    who, form, to = caller(request), Form(), "active" if request.POST.get("active") == "yes" else "paused"
    hook = keeping.hook_or_404(webhook_id)
    if forms.attempt(form, lambda: hooks.webhook_change(webhook_id=hook.id, actor=who, state=to)):
        return redirect("page-webhook", webhook_id=webhook_id)
    return answer(request, HOOK, form, keeping.hook(webhook_id, request.GET, who))


@never_cache
def webhook_rotate(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """It has another secret; for a day messages are signed with the old one too. The page before says so."""
    who, form, now, hook = caller(request), Form(), timezone.now(), keeping.hook_or_404(webhook_id)
    if request.method == "POST":
        made = forms.attempt(form, lambda: hooks.webhook_rotate(webhook_id=hook.id, actor=who, now=now))
        if made:
            return secret_once(request, *made)
    return answer(request, CONFIRM, form, keeping.hook_plan("webhook-rotate", hook))


@never_cache
def webhook_test(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """A message that says nothing is on its way."""
    form, now, hook = Form(), timezone.now(), keeping.hook_or_404(webhook_id)
    if forms.attempt(form, lambda: hooks.webhook_test(webhook_id=hook.id, now=now)):
        return redirect("page-webhook", webhook_id=webhook_id)
    return answer(request, HOOK, form, keeping.hook(webhook_id, request.GET, caller(request)))


@never_cache
def webhook_remove(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """It is gone, with its secret and what was on its way; the page before says so."""
    who, form, hook = caller(request), Form(), keeping.hook_or_404(webhook_id)
    if request.method == "POST":
        forms.attempt(form, lambda: hooks.webhook_remove(webhook_id=hook.id, actor=who))
        if not form.code:
            return redirect("page-webhooks")
    return answer(request, CONFIRM, form, keeping.hook_plan("webhook-remove", hook))


# --- bodies of old events ---------------------------------------------------------------------------------------------


@never_cache
def retentions(request: HttpRequest) -> HttpResponse:
    """Which bodies went, and what waits for a second person."""
    return render(request, "frontend/audit/retention.html", keeping.retentions(timezone.now(), caller(request)))


@never_cache
def retention_new(request: HttpRequest) -> HttpResponse:
    """Somebody asks that bodies go; a second person decides."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "class", "month")
    if request.method == "POST":
        number = int(form.given["class"]) if form.given["class"] in map(str, CLASSES) else 0
        month = form.given["month"]
        if forms.attempt(form, lambda: retention.retention_request(class_=number, month=month, actor=who, now=now)):
            return redirect("page-audit-retention")
    choices = [(str(number), word, "") for number, word in CLASSES.items()]
    return answer(request, "frontend/audit/retention_new.html", form, {"classes": choices})


@never_cache
def retention_decide(request: HttpRequest, approval_id: UUID, approve: bool) -> HttpResponse:
    """The second person sees what would go, and agrees, having typed what, or refuses."""
    who, now, form = caller(request), timezone.now(), forms.typed(request.POST, "reason", "phrase")
    asked, reason = keeping.wish_or_404(approval_id), form.given["reason"][: approvals.MOST_REASON]
    if request.method == "POST":
        forms.phrase(form, keeping.wish_phrase(asked) if approve else "")
        decided = forms.attempt(form, lambda: approvals.approval_decide(
            approval_id=asked.id, approve=approve, actor=who, reason=reason, now=now,
        ))  # fmt: skip
        if decided:
            return redirect("page-audit-retention")
    return answer(request, "frontend/audit/retention_decide.html", form, {"wish": keeping.wish(asked, now, who)})


# --- what the log knows of a person -----------------------------------------------------------------------------------


@never_cache
def person_shred(request: HttpRequest, person_id: UUID) -> HttpResponse:
    """The keys of what is sealed for a person are destroyed; the page before says what that means."""
    who, view, now, form = caller(request), people.person_or_404(person_id), timezone.now(), Form()
    if request.method == "POST":
        forms.attempt(form, lambda: services.person_shred(user_id=view.id, actor=who, now=now))
        if not form.code:
            return redirect(people.home(view.tenant_slug))
    context = {"person": view, "home": people.home(view.tenant_slug)}
    return answer(request, "frontend/audit/person_shred.html", form, context)
