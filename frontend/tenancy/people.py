"""Decides what the pages of people, tokens and share groups show, and what their forms do.

The same pages serve staff of the fleet and administrators of a tenant: whom they reach is what their plane of the
database shows. Called by `people_views`.
"""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import Http404, QueryDict
from django.urls import reverse

from frontend import wording
from frontend.tenancy import forms, lists, sentences
from frontend.tenancy.forms import Form
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal, scopes
from kvconsole.infra.rest import Problem
from tenants import reading, selectors, services
from tenants.accounts import selectors as accounts
from tenants.accounts.selectors import PersonView, TokenView
from tenants.bodies_people import person_etag
from tenants.constants import PLATFORM_TENANT
from tenants.directory import TenantView, tenant_view, tenants_page

PERSON_FIELDS = ("tenant", "kind", "username", "email")
TOKEN_FIELDS = ("tenant", "owner", "kind", "name", "cidr", "days")
SHARE_FIELDS = ("owner", "name", "audience", "days", "reason")
OWN = frozenset({"tenant-admin", "tenant-member"})
SUGGESTED = 200
"""Tenants that a field suggests; any other can be typed. Of service accounts: any other is on its own page."""
NOBODY = lists.Page([], "", "")


class Once(NamedTuple):
    """A secret that exists only on the page that shows it."""

    kind: str  # invitation | token
    name: str
    secret: str
    back: str


def home(tenant_slug: str) -> str:
    """Where the people of a tenant are listed; the fleet's are in the settings."""
    return reverse("page-portal", args=[tenant_slug]) if tenant_slug else reverse("page-settings")


def settings(now: datetime, principal: Principal, query: QueryDict) -> dict[str, Any]:
    """People, service accounts, tokens and share groups of the fleet; a reader sees only the own tokens."""
    manages = principal.may("operator", "approver", "auditor")
    mine = None if manages or not principal.user_id else UUID(principal.user_id)
    people = lists.people(query, "people", kind="person", fleet=True) if manages else NOBODY
    return {
        "manages": manages,
        "people": people,
        "services": lists.people(query, "services", kind="service", fleet=True) if manages else NOBODY,
        "tokens": lists.tokens(query, now, tenant_id=PLATFORM_TENANT, owner_id=mine),
        "groups": lists.groups(query, now),
        "me": principal.user_id,
        "answer": sentences.settings(
            len(people.items) if manages else None, reading.share_groups_waiting(now=now), more=people.more
        ),
        "may": may(principal, "page-person-new", "page-token-new", "page-share-new"),
    }


# --- people -----------------------------------------------------------------------------------------------------------


def roles_offered(principal: Principal, tenant_slug: str, kind: str = "person") -> list[str]:
    """The roles that the caller may give here, in the usual order; some are of people only."""
    within = OWN | {"gateway"} if tenant_slug else frozenset(wording.USER_ROLES) - OWN
    within -= services.PERSONS_ONLY if kind == "service" else frozenset()
    return [role for role in wording.USER_ROLES if role in services.grantable(principal) & within]


def place(principal: Principal, slug: str) -> TenantView | None:
    """The tenant that a form is about, None = the fleet. A tenant's own people have no other place than theirs."""
    slug = principal.tenant_slug or slug
    if not slug:
        return None
    found = tenant_view(slug[:63])
    if found is None:
        raise Http404
    return found


def person_form(data: QueryDict, principal: Principal) -> Form:
    """What was typed; a tenant's own administrator makes only its own people."""
    form = forms.typed(data, *PERSON_FIELDS, many=("roles",))
    form.given["tenant"] = principal.tenant_slug or form.given["tenant"]
    form.given["kind"] = "service" if form.given["kind"] == "service" else "person"
    return form


def person_make(form: Form, principal: Principal, now: datetime) -> tuple[PersonView, str] | None:
    """The person and their invitation; a service account has none."""
    given, service = form.given, form.given["kind"] == "service"

    def act() -> tuple[PersonView, str]:
        tenant = selectors.tenant_by_slug(given["tenant"]) if given["tenant"] else None
        user, secret = services.person_create(
            username=given["username"], roles=given["roles"], tenant=tenant, email=given["email"],
            kind="service" if service else "person", how="none" if service else "link", actor=principal, now=now,
        )  # fmt: skip
        return accounts.person_views([user])[0], secret or ""

    return forms.attempt(form, act)


def person_or_404(person_id: UUID) -> PersonView:
    """The person, where the caller may see them."""
    found = accounts.person(person_id)
    if found is None:
        raise Http404
    return found


def person(view: PersonView, principal: Principal, now: datetime, query: QueryDict) -> dict[str, Any]:
    """A person or service account: what they may, by which tokens, and what can be done about it."""
    tokens = lists.tokens(query, now, tenant_id=view.tenant_id or PLATFORM_TENANT, owner_id=view.id)
    offered = roles_offered(principal, view.tenant_slug, view.kind)
    return {
        "person": view,
        "seen": person_tag(view),
        "roles": [(role, role in view.roles, role in offered) for role in sorted({*offered, *view.roles}, key=_order)],
        "tokens": tokens,
        "home": home(view.tenant_slug),
        "myself": str(view.id) == principal.user_id,
        "may": may(principal, "page-person", "page-person-remove", "page-token-new"),
    }


def _order(role: str) -> int:
    known = list(wording.USER_ROLES)
    return known.index(role) if role in known else len(known)


def person_save(form: Form, view: PersonView, principal: Principal) -> bool:
    """The roles and the address are as typed; roles that the caller may not give or take stay."""
    offered = set(roles_offered(principal, view.tenant_slug, view.kind))
    roles = sorted((set(view.roles) - offered) | (set(form.given["roles"]) & offered))

    def changed(user: Any) -> bool:
        now = accounts.person_views([user])[0]
        return person_tag(now) != form.given["seen"] or now.roles != view.roles

    def act() -> bool:
        services.person_change(user_id=view.id, roles=roles, email=form.given["email"], unless=changed, actor=principal)
        return True

    return bool(forms.attempt(form, act))


def person_tag(view: PersonView) -> str:
    """What changes whenever somebody changes the person."""
    return person_etag(view).strip('"')


def person_state(form: Form, view: PersonView, principal: Principal, *, active: bool) -> bool:
    """The person may, or may not, log in."""

    def act() -> bool:
        services.person_change(user_id=view.id, is_active=active, actor=principal)
        return True

    return bool(forms.attempt(form, act))


def person_remove(form: Form, view: PersonView, principal: Principal, now: datetime, *, rehearse: bool) -> bool:
    """The person is gone with factors, tokens and sessions; the trail still knows that somebody acted."""

    def act() -> bool:
        services.person_remove(user_id=view.id, actor=principal, now=now)
        return True

    return bool(forms.attempt(form, act, rehearse=rehearse))


def invitation(form: Form, view: PersonView, principal: Principal, now: datetime) -> str | None:
    """A new invitation; earlier ones are void."""
    return forms.attempt(form, lambda: services.invitation_renew(user_id=view.id, actor=principal, now=now))


# --- tokens -----------------------------------------------------------------------------------------------------------


def token_form(data: QueryDict, principal: Principal) -> Form:
    """What was typed; at first one's own token for 90 days."""
    form = forms.typed(data, *TOKEN_FIELDS, many=("roles", "scopes"))
    form.given["tenant"] = principal.tenant_slug or form.given["tenant"]
    form.given["days"] = form.given["days"] or "90"
    return form


def token_context(form: Form, principal: Principal) -> dict[str, Any]:
    """Who can own the token, and what it can be given."""
    found = place(principal, form.given["tenant"])
    slug = found.slug if found else ""
    mine = principal.tenant_slug == slug
    owners = [(principal.user_id, principal.name, "person")] if mine and principal.kind == "user" else []
    if principal.may("operator", "approver", "tenant-admin"):
        listed = accounts.people(tenant_id=found.id if found else None, fleet=found is None, kind="service")
        listed, named = listed.filter(is_active=True), _uuid(form.given["owner"])
        first, others = ([named], listed.exclude(id=named)) if named else ([], listed)
        wanted = [*listed.filter(id__in=first), *others.order_by("username")[:SUGGESTED]]
        owners += [(str(u.id), u.username, "service") for u in wanted]
    roles = [r for r in wording.USER_ROLES if (r in OWN | {"gateway"}) == bool(slug) or r == "gateway"]
    return {
        "tenant": found,
        "owners": owners,
        "roles": roles,
        "scopes": sorted(scopes()),
        "home": home(slug),
    }


def token_make(form: Form, principal: Principal, now: datetime) -> tuple[TokenView, str] | None:
    """The token and its secret, which exists nowhere else."""
    given, found = form.given, place(principal, form.given["tenant"])
    expires_at = forms.until(form, "days", now)

    def act() -> tuple[TokenView, str]:
        tenant_id = found.id if found else PLATFORM_TENANT
        owner = accounts.people().filter(id=_uuid(given["owner"]) or PLATFORM_TENANT).first()
        tenant = selectors.tenant_by_slug(found.slug if found else "platform")
        if owner is None or tenant is None or tenant.id != tenant_id:
            raise Problem("not-found")
        kind = "user" if owner.kind == "person" else "gateway" if given["kind"] == "gateway" else "service"
        made, secret = services.token_create(
            tenant=tenant, owner=owner, kind=kind, name=given["name"][:200], roles=given["roles"],
            scopes=given["scopes"], cidr=given["cidr"], expires_at=expires_at, actor=principal, now=now,
        )  # fmt: skip
        return accounts.token_view(made, now), secret

    return forms.attempt(form, act)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def token_or_404(token_id: str, now: datetime) -> TokenView:
    """The token, where the caller may see it."""
    found = accounts.token(token_id, now=now)
    if found is None:
        raise Http404
    return found


def token_rotate(
    form: Form, view: TokenView, principal: Principal, now: datetime, *, rehearse: bool
) -> tuple[TokenView, str] | None:
    """The token that takes this one's place, and its secret, which exists nowhere else."""

    def act() -> tuple[TokenView, str]:
        tenant = selectors.tenant_by_slug(view.tenant_slug)
        if tenant is None:
            raise Problem("not-found")
        made, secret = services.token_rotate(tenant=tenant, token_id=view.id, actor=principal, now=now)
        return accounts.token_view(made, now), secret

    return forms.attempt(form, act, rehearse=rehearse)


def token_withdraw(form: Form, view: TokenView, principal: Principal, now: datetime, *, rehearse: bool) -> bool:
    """The token is of no use any more."""

    def act() -> bool:
        tenant = selectors.tenant_by_slug(view.tenant_slug)
        if tenant is None:
            raise Problem("not-found")
        services.token_withdraw(tenant=tenant, token_id=view.id, actor=principal, now=now)
        return True

    return bool(forms.attempt(form, act, rehearse=rehearse))


# --- share groups -----------------------------------------------------------------------------------------------------


def share_form(data: QueryDict) -> Form:
    """What was typed; at first for 30 days."""
    form = forms.typed(data, *SHARE_FIELDS)
    form.given["days"] = form.given["days"] or "30"
    return form


def share_request(form: Form, principal: Principal, now: datetime, *, rehearse: bool = False) -> Any:
    """The group, asked for or as it would be; nobody shares anything yet."""
    expires_at = forms.until(form, "days", now)
    given = form.given

    def act() -> Any:
        made = services.share_group_request(
            owner=given["owner"], name=given["name"], audience=forms.words(given["audience"]), reason=given["reason"],
            expires_at=expires_at or now, actor=principal, now=now,
        )  # fmt: skip
        return reading.group_view(made, now=now)

    return forms.attempt(form, act, rehearse=rehearse)


def suggested() -> list[TenantView]:
    """Tenants that the fields of a request suggest."""
    return tenants_page(limit=SUGGESTED).items


def group_or_404(group_id: UUID, now: datetime) -> Any:
    """The share group, where the caller may see it."""
    found = reading.share_group(group_id, now=now)
    if found is None:
        raise Http404
    return found


def group(view: Any, principal: Principal) -> dict[str, Any]:
    """A share group, and what the caller may do with it: nobody approves what they asked for."""
    found = may(principal, "page-share-approve", "page-share-deny", "page-share-revoke")
    waiting = view.state == "awaiting_approval"
    asked = view.requested_by == principal.subject
    owns = principal.tenant_id is None or principal.tenant_slug == view.owner
    return {
        "group": view,
        "own_request": asked,
        "can_decide": waiting and not asked and found["share_approve"],
        "can_revoke": view.state in ("awaiting_approval", "approved") and owns and found["share_revoke"],
        "home": home(principal.tenant_slug),
    }


def group_decide(form: Form, view: Any, principal: Principal, now: datetime, act: str) -> bool:
    """The group is approved, denied or revoked."""

    def done() -> bool:
        if act == "approve":
            services.share_group_approve(group_id=view.id, actor=principal, now=now)
        elif act == "deny":
            services.share_group_deny(group_id=view.id, reason=form.given["reason"], actor=principal, now=now)
        else:
            services.share_group_revoke(group_id=view.id, reason=form.given["reason"], actor=principal, now=now)
        return True

    return bool(forms.attempt(form, done))
