"""Bodies and answers of people, service accounts and tokens.

Answers are plain dictionaries; the serializers of answers only describe them (a serializer costs twenty times as much).
"""

from typing import Any

from rest_framework import serializers

from kvconsole.infra.rest import Strict, etag
from tenants.accounts.selectors import PersonView, TokenView, person_views
from tenants.bodies import rfc3339
from tenants.constants import ROLES
from tenants.models import User
from tenants.services.token import OWNED_KINDS

PERSON_KINDS = ("person", "service")
PERSON_STATES = ("active", "invited", "suspended", "removed")
TOKEN_STATES = ("active", "expired", "revoked", "unused", "owner-suspended")


def role_list(**options: Any) -> serializers.ListField:
    """A field of roles."""
    return serializers.ListField(child=serializers.ChoiceField(list(ROLES)), max_length=len(ROLES), **options)


class PersonIn(Strict):
    """Body of POST /people. Without `tenant`: of the fleet."""

    username = serializers.CharField(max_length=63)
    tenant = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")
    kind = serializers.ChoiceField(PERSON_KINDS, default="person")
    roles = role_list(default=list)
    email = serializers.CharField(max_length=254, required=False, allow_blank=True, default="")
    how = serializers.ChoiceField(["link", "password", "none"], required=False)


class PersonPatch(Strict):
    """Body of PATCH /people/{id}; what is left out stays."""

    roles = role_list(required=False)
    email = serializers.CharField(max_length=254, required=False, allow_blank=True)
    suspended = serializers.BooleanField(required=False)


class PersonOut(serializers.Serializer[Any]):
    """A person or service account."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    email = serializers.CharField(allow_blank=True)
    kind = serializers.ChoiceField(PERSON_KINDS)
    roles = role_list()
    tenant = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(PERSON_STATES)
    created_at = serializers.DateTimeField()
    last_login = serializers.DateTimeField(allow_null=True)


class PersonMade(PersonOut):
    """The person, with what is shown once: the invitation's link, or the initial password."""

    invitation = serializers.CharField(allow_null=True)
    password = serializers.CharField(allow_null=True)


class InvitationOut(serializers.Serializer[Any]):
    """A link that works once, for three days."""

    invitation = serializers.CharField()


class TokenIn(Strict):
    """Body of POST /tenants/{slug}/tokens. Without `owner`: the caller."""

    name = serializers.CharField(max_length=200)
    owner = serializers.UUIDField(required=False)
    kind = serializers.ChoiceField(OWNED_KINDS, default="user")
    roles = role_list(min_length=1)
    scopes = serializers.ListField(child=serializers.CharField(max_length=63), required=False, max_length=64)
    cidr = serializers.CharField(max_length=64, required=False, allow_blank=True, default="")
    expires_at = serializers.DateTimeField(required=False)


class TokenOut(serializers.Serializer[Any]):
    """A token without its secret."""

    id = serializers.CharField()
    kind = serializers.ChoiceField(OWNED_KINDS)
    name = serializers.CharField(allow_blank=True)
    owner = serializers.UUIDField(allow_null=True)
    owner_name = serializers.CharField(allow_blank=True)
    roles = role_list()
    effective_roles = role_list()
    scopes = serializers.ListField(child=serializers.CharField())
    cidr = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(TOKEN_STATES)


class TokenMade(TokenOut):
    """The token, which is shown this once."""

    token = serializers.CharField()


class SessionOut(serializers.Serializer[Any]):
    """Of a person who is logged in."""

    proved_at = serializers.DateTimeField(allow_null=True)
    step_up_until = serializers.DateTimeField(allow_null=True)
    methods = serializers.ListField(child=serializers.CharField())


class MeOut(serializers.Serializer[Any]):
    """Who calls."""

    kind = serializers.CharField()
    id = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    person = serializers.CharField(allow_null=True)
    tenant = serializers.CharField(allow_null=True)
    roles = role_list()
    grantable = role_list()
    scopes = serializers.ListField(child=serializers.CharField())
    session = SessionOut(allow_null=True)


def person_answer(view: PersonView) -> dict[str, Any]:
    """A person, as `PersonOut` describes it."""
    return {
        "id": str(view.id),
        "username": view.username,
        "email": view.email,
        "kind": view.kind,
        "roles": view.roles,
        "tenant": view.tenant_slug or None,
        "state": view.state,
        "created_at": rfc3339(view.created_at),
        "last_login": rfc3339(view.last_login) if view.last_login else None,
    }


def person_etag(view: PersonView) -> str:
    """Of what can be changed; that the person has logged in meanwhile is no change."""
    return etag([str(view.id), view.username, view.email, view.roles, view.state == "suspended"])


def stale(given: str, user: User) -> bool:
    """Whether the person is no longer what `If-Match` names; asked with the locked row."""
    return given != "*" and person_etag(person_views([user])[0]) not in [x.strip() for x in given.split(",")]


def token_answer(view: TokenView) -> dict[str, Any]:
    """A token, as `TokenOut` describes it."""
    return {
        "id": view.id,
        "kind": view.kind,
        "name": view.name,
        "owner": str(view.owner_id) if view.owner_id else None,
        "owner_name": view.owner,
        "roles": view.roles,
        "effective_roles": view.effective_roles,
        "scopes": view.scopes,
        "cidr": view.cidr,
        "created_at": rfc3339(view.created_at),
        "expires_at": rfc3339(view.expires_at),
        "last_used_at": rfc3339(view.last_used_at) if view.last_used_at else None,
        "state": view.state,
    }
