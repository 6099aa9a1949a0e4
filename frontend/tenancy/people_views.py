"""Answers the pages of people, tokens and share groups: what they show and do is in `people`."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache

from frontend.tenancy import forms, people
from frontend.tenancy.forms import Form
from frontend.tenancy.people import Once
from frontend.tenancy.views import answer
from kvconsole.infra.access import Principal, principal_of
from kvconsole.infra.rest import Problem
from tenants import services

PERSON, TOKEN, GROUP = (f"frontend/tenancy/{name}.html" for name in ("person", "token_new", "share_group"))


def caller(request: HttpRequest) -> Principal:
    """Who calls; the registry lets nobody through who is not known."""
    found = principal_of(request)
    if found is None:
        raise Problem("not-authenticated")
    return found


def shown_once(request: HttpRequest, once: Once) -> HttpResponse:
    """The page with the secret; no cache and no history keeps it."""
    return render(request, "frontend/tenancy/once.html", {"once": once})


@never_cache
def settings(request: HttpRequest) -> HttpResponse:
    """Who runs the fleet, with which tokens, and who shares."""
    return render(
        request, "frontend/tenancy/settings.html", people.settings(timezone.now(), caller(request), request.GET)
    )


# --- people -----------------------------------------------------------------------------------------------------------


@never_cache
def person_new(request: HttpRequest) -> HttpResponse:
    """A person is invited, or a service account is made."""
    who, data = caller(request), request.POST if request.method == "POST" else request.GET
    form = people.person_form(data, who)
    found = people.place(who, form.given["tenant"])
    slug = found.slug if found else ""
    if request.method == "POST" and (made := people.person_make(form, who, timezone.now())):
        return invited(request, made[0].username, made[1], slug) if made[1] else redirect("page-person", made[0].id)
    context = {"tenant": found, "roles": people.roles_offered(who, slug, form.given["kind"]), "home": people.home(slug)}
    return answer(request, "frontend/tenancy/person_new.html", form, context)


def invited(request: HttpRequest, name: str, token: str, tenant_slug: str) -> HttpResponse:
    """The invitation, to be handed over."""
    link = f"{request.build_absolute_uri(reverse('page-invitation'))}#{token}"
    return shown_once(request, Once("invitation", name, link, people.home(tenant_slug)))


@never_cache
def person(request: HttpRequest, person_id: UUID) -> HttpResponse:
    """A person or service account; posted, roles and address are changed."""
    who, view, now = caller(request), people.person_or_404(person_id), timezone.now()
    form = forms.typed(request.POST, "email", "seen", many=("roles",))
    if request.method == "POST" and people.person_save(form, view, who):
        return redirect("page-person", person_id=person_id)
    return answer(request, PERSON, form, people.person(view, who, now, request.GET))


@never_cache
def person_state(request: HttpRequest, person_id: UUID) -> HttpResponse:
    """A person is suspended, or may log in again."""
    who, view, form = caller(request), people.person_or_404(person_id), Form()
    if people.person_state(form, view, who, active=request.POST.get("active") == "yes"):
        return redirect("page-person", person_id=person_id)
    return answer(request, PERSON, form, people.person(view, who, timezone.now(), request.GET))


@never_cache
def person_invite(request: HttpRequest, person_id: UUID) -> HttpResponse:
    """A new invitation; earlier ones are void."""
    who, view, form = caller(request), people.person_or_404(person_id), Form()
    if token := people.invitation(form, view, who, timezone.now()):
        return invited(request, view.username, token, view.tenant_slug)
    return answer(request, PERSON, form, people.person(view, who, timezone.now(), request.GET))


@never_cache
def person_remove(request: HttpRequest, person_id: UUID) -> HttpResponse:
    """A person is removed for good; the page before says what goes with them."""
    who, view, now, form = caller(request), people.person_or_404(person_id), timezone.now(), Form()
    doing = request.method == "POST"
    if people.person_remove(form, view, who, now, rehearse=not doing) and doing:
        return redirect(people.home(view.tenant_slug))
    return answer(request, "frontend/tenancy/person_remove.html", form, people.person(view, who, now, request.GET))


# --- tokens -----------------------------------------------------------------------------------------------------------


@never_cache
def token_new(request: HttpRequest) -> HttpResponse:
    """A token is made; its secret is on the answer and nowhere else."""
    who, data = caller(request), request.POST if request.method == "POST" else request.GET
    form = people.token_form(data, who)
    if request.method == "POST" and (made := people.token_make(form, who, timezone.now())):
        back = people.home("" if made[0].tenant_slug == "platform" else made[0].tenant_slug)
        return shown_once(request, Once("token", made[0].name or made[0].id, made[1], back))
    return answer(request, TOKEN, form, people.token_context(form, who))


@never_cache
def token_rotate(request: HttpRequest, token_id: str) -> HttpResponse:
    """Another token takes the place of one; the page before says what becomes of the old one."""
    who, now, form = caller(request), timezone.now(), Form()
    view, doing = people.token_or_404(token_id, now), request.method == "POST"
    back = people.home("" if view.tenant_slug == "platform" else view.tenant_slug)
    made = people.token_rotate(form, view, who, now, rehearse=not doing)
    if made and doing:
        return shown_once(request, Once("token", made[0].name or made[0].id, made[1], back))
    context = {"token": view, "home": back, "until": min(view.expires_at, now + services.OVERLAP)}
    return answer(request, "frontend/tenancy/token_rotate.html", form, context)


@never_cache
def token_revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    """A token is of no use any more; the page before says whose it is and what it may."""
    who, now, form = caller(request), timezone.now(), Form()
    view, doing = people.token_or_404(token_id, now), request.method == "POST"
    back = people.home("" if view.tenant_slug == "platform" else view.tenant_slug)
    if people.token_withdraw(form, view, who, now, rehearse=not doing) and doing:
        return redirect(back)
    return answer(request, "frontend/tenancy/token_revoke.html", form, {"token": view, "home": back})


# --- share groups -----------------------------------------------------------------------------------------------------


@never_cache
def share_new(request: HttpRequest) -> HttpResponse:
    """A share group is asked for; asked with `check` it is only checked."""
    data, making = (request.POST, True) if request.method == "POST" else (request.GET, False)
    form, plan = people.share_form(data), None
    if making or "check" in data:
        plan = people.share_request(form, caller(request), timezone.now(), rehearse=not making)
    if making and plan:
        return redirect("page-share-group", group_id=plan.id)
    context = {"plan": plan, "tenants": people.suggested(), "home": people.home("")}
    return answer(request, "frontend/tenancy/share_new.html", form, context)


@never_cache
def share_group(request: HttpRequest, group_id: UUID, act: str = "") -> HttpResponse:
    """A share group; `act` = approve, deny or revoke it."""
    who, now = caller(request), timezone.now()
    view, form = people.group_or_404(group_id, now), forms.typed(request.POST, "reason")
    if act and people.group_decide(form, view, who, now, act):
        return redirect("page-share-group", group_id=group_id)
    return answer(request, GROUP, form, people.group(view, who))
