"""REST of people, service accounts and tokens, and of who calls."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import URLPattern, reverse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kvconsole.infra.access import ANY, Principal, audited, counted, current_principal, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM
from tenants import selectors, services
from tenants.accounts import selectors as reading
from tenants.bodies_people import (
    InvitationOut,
    MeOut,
    PersonIn,
    PersonMade,
    PersonOut,
    PersonPatch,
    TokenIn,
    TokenMade,
    TokenOut,
    person_answer,
    person_etag,
    stale,
    token_answer,
)
from tenants.models import Tenant, User
from tenants.services.token import administers

READERS = ("operator", "approver", "auditor", "tenant-admin")
MANAGERS = ("operator", "approver", "tenant-admin")
ROLE_REFUSALS = ("role-not-grantable", "not-found")
CHANGE_REFUSALS = (*ROLE_REFUSALS, *PROOF, "own-roles", "last-administrator", "person-removed")
FILTERS = (
    OpenApiParameter("tenant", str, description="Slug of a tenant, or `platform` for staff of the fleet"),
    OpenApiParameter("kind", str, description="person or service", enum=["person", "service"]),
)
NO_STORE = {"Cache-Control": "no-store"}


class People(APIView):
    """People and service accounts."""

    @call("people_list", answer=PersonOut, page=True, query=FILTERS)
    def get(self, request: Request) -> Response:
        """A page of people, by name; without those who were removed."""
        slug, kind = request.query_params.get("tenant", ""), request.query_params.get("kind", "")
        place = _tenant_id(slug) if slug else None
        fleet = place == PLATFORM
        filters = {"tenant_id": None if fleet else place, "fleet": fleet, "kind": kind}
        name, views = f"people.{slug}.{kind}", reading.person_row_views
        return page_of(reading.PEOPLE, request, name=name, item=person_answer, views=views, filters=filters)

    @call(
        "people_create",
        body=PersonIn,
        answer=PersonMade,
        status=201,
        refusals=("username-taken", "username-lookalike", *PROOF, *ROLE_REFUSALS),
    )
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A new person or service account; the link or password is in this answer and nowhere else."""
        actor, slug = caller(), fields.pop("tenant")
        tenant = _tenant(slug or actor.tenant_slug) if slug or actor.tenant_id else None
        how: services.How = fields.pop("how", "") or ("none" if fields["kind"] == "service" else "link")
        place = None if tenant is None or tenant.id == PLATFORM else tenant
        user, secret = services.person_create(**fields, how=how, tenant=place, actor=actor)
        made = person_answer(_seen(user.id)) | {"invitation": None, "password": None}
        if secret:
            made |= {"invitation": _link(secret)} if how == "link" else {"password": secret}
        where = f"/api/v1/people/{user.id}"
        return Response(made, status=201, headers={**NO_STORE, "Location": where})


class Person(APIView):
    """One person or service account."""

    @call("people_get", answer=PersonOut)
    def get(self, request: Request, person_id: UUID) -> Response:
        """The person, with the ETag of what can be changed."""
        view = _seen(person_id)
        return Response(person_answer(view), headers={"ETag": person_etag(view)})

    @call("people_change", body=PersonPatch, answer=PersonOut, refusals=CHANGE_REFUSALS)
    def patch(self, request: Request, fields: dict[str, Any], person_id: UUID) -> Response:
        """Roles, address or suspension changed: at once, in open sessions and for all tokens."""
        suspended, given = fields.pop("suspended", None), request.headers.get("If-Match", "")
        active = None if suspended is None else not suspended
        services.person_change(
            user_id=person_id, **fields, is_active=active, unless=lambda user: stale(given, user), actor=caller()
        )
        view = _seen(person_id)
        return Response(person_answer(view), headers={"ETag": person_etag(view)})

    @call("people_remove", status=204, refusals=CHANGE_REFUSALS)
    def delete(self, request: Request, person_id: UUID) -> Response:
        """Name, address, factors, sessions and tokens of the person are gone; the trail stays."""
        services.person_remove(user_id=person_id, actor=caller())
        return Response(status=204)


class Shred(APIView):
    """The end of what the trail knows of a person."""

    @call("people_shred", status=204, refusals=(*CHANGE_REFUSALS, "audit-unavailable"))
    def post(self, request: Request, person_id: UUID) -> Response:
        """The person is removed, and what was sealed for them cannot be read or linked any more, in no copy."""
        services.person_shred(user_id=person_id, actor=caller())
        return Response(status=204)


class Invite(APIView):
    """Invitations."""

    @call("people_invite", answer=InvitationOut, refusals=(*CHANGE_REFUSALS, "conflict"))
    def post(self, request: Request, person_id: UUID) -> Response:
        """A new link to hand over; earlier ones are void."""
        plaintext = services.invitation_renew(user_id=person_id, actor=caller())
        return Response({"invitation": _link(plaintext)}, headers=NO_STORE)


class Tokens(APIView):
    """Tokens of a tenant's people and service accounts; of `platform`: the fleet's."""

    @call("tokens_list", answer=TokenOut, page=True)
    def get(self, request: Request, slug: str) -> Response:
        """A page of tokens, by id: all of those the caller administers, else the caller's own."""
        actor, tenant_id, now = caller(), _tenant_id(slug), datetime.now(UTC)
        everything = administers(actor, tenant_id) or (actor.tenant_id is None and actor.may("auditor"))
        if not everything and (actor.tenant_id or PLATFORM) != tenant_id:
            raise Problem("not-found")
        filters = {"tenant_id": tenant_id, "owner_id": None if everything else _self(actor)}

        def item(row: Any) -> dict[str, Any]:
            return token_answer(reading.token_row_view(row, slug, now))

        return page_of(reading.TOKENS, request, name=f"tokens.{slug}", item=item, filters=filters)

    @call(
        "tokens_create",
        body=TokenIn,
        answer=TokenMade,
        status=201,
        refusals=("role-not-grantable", "conflict", "not-found", *PROOF),
    )
    def post(self, request: Request, fields: dict[str, Any], slug: str) -> Response:
        """A new token; it is in this answer and nowhere else."""
        actor, tenant = caller(), _tenant(slug)
        owner_id = fields.pop("owner", None) or _self(actor)
        owner = User.objects.defer("password", "lookalike").filter(id=owner_id).first() if owner_id else None
        if owner is None:
            raise Problem("not-found")
        token, plaintext = services.token_create(tenant=tenant, owner=owner, actor=actor, **fields)
        view = reading.token(token.id)
        if view is None:
            raise Problem("not-found")
        return Response(token_answer(view) | {"token": plaintext}, status=201, headers=NO_STORE)


class TokenRotate(APIView):
    """Another token in the place of one."""

    @call(
        "tokens_rotate",
        answer=TokenMade,
        status=201,
        refusals=("role-not-grantable", "conflict", "not-found", "validation-failed", *PROOF),
    )
    def post(self, request: Request, slug: str, token_id: str) -> Response:
        """A token with the same rights, in this answer and nowhere else; the old one works 24 hours more at most."""
        token, plaintext = services.token_rotate(tenant=_tenant(slug), token_id=token_id, actor=caller())
        view = reading.token(token.id)
        if view is None:
            raise Problem("not-found")
        return Response(token_answer(view) | {"token": plaintext}, status=201, headers=NO_STORE)


class TokenDetail(APIView):
    """One token."""

    @call("tokens_revoke", status=204)
    def delete(self, request: Request, slug: str, token_id: str) -> Response:
        """The token is of no use any more."""
        services.token_withdraw(tenant=_tenant(slug), token_id=token_id, actor=caller())
        return Response(status=204)


class Me(APIView):
    """Who calls."""

    @call("me_get", answer=MeOut)
    def get(self, request: Request) -> Response:
        """Who the console takes the caller for, and what it may."""
        actor = caller()
        session = None
        if actor.kind == "user":
            proved = datetime.fromtimestamp(actor.proved_at, UTC) if actor.proved_at else None
            until = datetime.fromtimestamp(actor.proved_at + settings.STEP_UP_SECONDS, UTC) if proved else None
            session = {"proved_at": proved, "step_up_until": until, "methods": sorted(actor.methods)}
        answer = {
            "kind": actor.kind,
            "id": actor.id,
            "name": actor.name,
            "person": actor.user_id or None,
            "tenant": actor.tenant_slug or None,
            "roles": sorted(r for r in actor.roles if actor.may(r)),
            "grantable": sorted(services.grantable(actor)),
            "scopes": sorted(actor.scopes),
            "session": session,
        }
        return Response(MeOut(answer).data)


def _self(actor: Principal) -> UUID | None:
    return UUID(actor.user_id) if actor.user_id else None


def _tenant(slug: str) -> Tenant:
    """The tenant of this slug; a tenant's own people see their own."""
    tenant = selectors.tenant_by_slug(slug)
    if tenant is None:
        raise Problem("not-found")
    return tenant


def _tenant_id(slug: str) -> UUID:
    """The id of the tenant of this slug; who calls is known with theirs."""
    actor = current_principal()
    own = actor.tenant_id if actor and actor.tenant_slug == slug else None
    tenant_id = own or selectors.tenant_id_of(slug)
    if tenant_id is None:
        raise Problem("not-found")
    return tenant_id


def _seen(person_id: UUID) -> reading.PersonView:
    view = reading.person(person_id)
    if view is None:
        raise Problem("not-found")
    return view


def _link(plaintext: str) -> str:
    return f"{settings.CONSOLE_URL}{reverse('page-invitation')}#{plaintext}"


GRANT: dict[str, Any] = {"step_up": True, "scope": "people:manage"}
urlpatterns: list[URLPattern] = [
    route("me", Me.as_view(), "me", GET=counted(ANY)),
    route("people", People.as_view(), "people", GET=counted(*READERS), POST=audited(*MANAGERS, **GRANT)),
    route(
        "people/<uuid:person_id>",
        Person.as_view(),
        "person",
        GET=counted(*READERS),
        PATCH=audited(*MANAGERS, **GRANT),
        DELETE=audited(*MANAGERS, step_up=True),
    ),
    route("people/<uuid:person_id>:shred", Shred.as_view(), "person-shred", POST=audited(*MANAGERS, step_up=True)),
    route("people/<uuid:person_id>:invite", Invite.as_view(), "person-invite", POST=audited(*MANAGERS, **GRANT)),
    route(
        "tenants/<str:slug>/tokens",
        Tokens.as_view(),
        "tokens",
        GET=counted(ANY, scope="tokens"),
        POST=audited(ANY, step_up=True, scope="tokens:manage"),
    ),
    route(
        "tenants/<str:slug>/tokens/<str:token_id>:rotate",
        TokenRotate.as_view(),
        "token-rotate",
        POST=audited(ANY, step_up=True, scope="tokens:manage"),
    ),
    route(
        "tenants/<str:slug>/tokens/<str:token_id>",
        TokenDetail.as_view(),
        "token",
        DELETE=audited(ANY, scope="tokens"),
    ),
]
