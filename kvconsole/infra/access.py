"""Decides who acts, on which plane of the database, and by whom each route may be called.

Without tables: `Principal` is a value, and who makes one from a request is named in settings. Every request, command,
task and consumer that acts for somebody goes through `tenant_context`, the only door to a tenant's rows. Each app's
routes are made by `route`, which registers roles, scopes and evidence; a route without an entry stops start-up.
"""

import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, get_resolver, re_path
from django.urls import path as django_path
from django.utils.module_loading import import_string
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from kvconsole.infra import boot, evidence, outage, sql
from kvconsole.infra.addresses import client_address as client_address
from kvconsole.infra.principals import TENANT_ROLES as TENANT_ROLES
from kvconsole.infra.principals import Principal as Principal
from kvconsole.infra.principals import system as system
from kvconsole.infra.proof import DUTIES, to_duty

TENANT_PLANE, FLEET_PLANE = "tenant", "default"
_FLEET_ONLY = frozenset({"sessions", "contenttypes", "auth", "account", "mfa", "socialaccount"})

_plane: ContextVar[str] = ContextVar("kvc_plane", default=FLEET_PLANE)
_principal: ContextVar["Principal | None"] = ContextVar("kvc_principal", default=None)


# --- planes -----------------------------------------------------------------


class PlaneRouter:
    """Sends the ORM to the connection of the current plane; what is no tenant's always goes to the fleet's."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        """Alias of the connection that reads `model` now."""
        return FLEET_PLANE if model._meta.app_label in _FLEET_ONLY else _plane.get()

    db_for_write = db_for_read

    def allow_relation(self, a: object, b: object, **hints: Any) -> bool:
        """Both aliases are one database."""
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Migrations run once, as kv_migrate, on `default`."""
        return db == FLEET_PLANE


def plane() -> str:
    """Alias of the connection that serves the current context."""
    return _plane.get()


def current_principal() -> Principal | None:
    """Who acts in the current context."""
    return _principal.get()


@contextmanager
def tenant_context(principal: Principal) -> Iterator[str]:
    """One transaction in which the database itself shows what the principal's tenant may see, and nothing else.

    A tenant's principal works as kv_tenant with the tenant sealed (`sql.enter`) until the end of the transaction,
    staff of the fleet as kv_operator. Nested for the same plane it is a savepoint, and the outer tenant is set again
    afterwards. Not for streaming responses: they are read after the block has ended.

    Yields:
        Alias of the connection.
    """
    alias = FLEET_PLANE if principal.tenant_id is None else TENANT_PLANE
    before = _principal.get()
    tokens = _plane.set(alias), _principal.set(principal)
    try:
        with transaction.atomic(using=alias):
            _set_tenant(alias, principal.tenant_id)
            with evidence.gathered(alias):
                yield alias
            if connections[alias].savepoint_ids:
                _set_tenant(alias, before.tenant_id if before else None)
    finally:
        _plane.reset(tokens[0])
        _principal.reset(tokens[1])


def _set_tenant(alias: str, tenant_id: UUID | None) -> None:
    if alias == TENANT_PLANE:
        connection = connections[alias]
        connection.flush()  # type: ignore[attr-defined]  # what was said for the tenant before is that one's
        with connection.wrap_database_errors:
            sql.enter(connection.connection, tenant_id)


# --- the registry of routes ---------------------------------------------------


class Evidence(Enum):
    """What a call leaves behind."""

    AUDITED = "audited"  # exactly one event: intent, rights, keys, evidence, refusals
    COUNTED = "counted"  # a number: reads, ingest, hints


PUBLIC = "public"
"""In place of roles: anybody may call it, logged in or not."""
ANY = "any"
"""In place of roles: whoever is known."""


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What a route can offer. HEAD follows GET; OPTIONS is answered for the view; nothing else reaches one."""
READ, WRITE, DESTROY = "read", "write", "destroy"


@dataclass(frozen=True)
class Rule:
    """Who may call a route with one method, with which scope of a token, and what the call leaves behind."""

    roles: frozenset[str]
    evidence: Evidence
    step_up: bool = False
    """Cannot be taken back: a person must have proved themselves lately, a token must name the scope."""
    scope: str = ""
    person: bool = False
    """A person alone, never a token, whatever its scopes."""
    during: frozenset[str] = frozenset()
    """What the caller may still owe (`Principal.owes`): every other route is closed until it is done."""

    def allows(self, principal: Principal | None) -> bool:
        """Whether the principal's roles are enough."""
        if PUBLIC in self.roles:
            return True
        if principal is None or (principal.owes and principal.owes not in self.during):
            return False
        return ANY in self.roles or principal.may(*self.roles)

    def refusal(self, principal: Principal | None, now: float) -> str | None:
        """The code of the refusal, None = it may."""
        if not self.allows(principal):
            if principal is not None and principal.owes:
                return principal.owes
            return "not-authenticated" if principal is None else "forbidden"
        if principal is None or PUBLIC in self.roles:
            return None
        if self.person and principal.kind != "user":
            return "person-needed"
        if self.step_up:
            return principal.unproven(self.scope, now)
        if principal.kind == "user":
            return None
        narrowed = principal.scopes and principal.kind != "node"  # a node's say where it is, not what it may
        return "scope-missing" if narrowed and not self._within(principal.scopes) else None

    def _within(self, scopes: frozenset[str]) -> bool:
        return self.scope in scopes or f"*:{self.scope.partition(':')[2]}" in scopes


def audited(
    *roles: str, step_up: bool = False, scope: str = "", person: bool = False, during: Sequence[str] = ()
) -> Rule:
    """Allowed to these roles; each call leaves one audit event.

    Args:
        roles: who may.
        step_up: as `Rule.step_up`.
        scope: the resource, or `resource:verb`; "" = the first word of the route, and the verb of the method.
        person: as `Rule.person`.
        during: as `Rule.during`.
    """
    return Rule(frozenset(roles), Evidence.AUDITED, step_up, scope, person, frozenset(during))


def counted(*roles: str, step_up: bool = False, scope: str = "", during: Sequence[str] = ()) -> Rule:
    """Allowed to these roles; calls are only counted."""
    return Rule(frozenset(roles), Evidence.COUNTED, step_up, scope, False, frozenset(during))


def _scoped(rule: Rule, pattern: str, method: str) -> Rule:
    resource, _, verb = rule.scope.partition(":")
    resource = resource or pattern.lstrip("^").split("/")[0].split(":")[0] or "pages"
    verb = verb or (DESTROY if rule.step_up else READ if method == "GET" else WRITE)
    return replace(rule, scope=f"{resource}:{verb}")


_registry: dict[str, dict[str, Rule]] = {}


def register(name: str, rules: dict[str, Rule]) -> None:
    """The route of this name may be called as the rules (by HTTP method) say.

    Raises:
        ImproperlyConfigured: the name is taken by other rules, or there is no such method.
    """
    if _registry.get(name, rules) != rules:
        raise ImproperlyConfigured(f"two routes are named {name!r}")
    if not rules.keys() <= set(METHODS):
        raise ImproperlyConfigured(f"{name!r} offers what is none of {', '.join(METHODS)}")
    _registry[name] = rules


def route(pattern: str, view: Callable[..., Any], name: str, *, regex: bool = False, **rules: Rule) -> URLPattern:
    """A URL pattern with its entry in the registry.

    Args:
        pattern: as for `django.urls.path`; with `regex`, as for `re_path`.
        view: what answers.
        name: unique over all apps.
        regex: the pattern is a regular expression.
        rules: HTTP method, one of `METHODS` → `audited(…)` or `counted(…)`.
    """
    register(name, {method: _scoped(rule, pattern, method) for method, rule in rules.items()})
    return re_path(pattern, view, name=name) if regex else django_path(pattern, view, name=name)


def rule_for(name: str | None, method: str) -> Rule | None:
    """The rule of a route and method; None = the method is not offered there."""
    rules = _registry.get(name or "", {})
    return rules.get("GET" if method == "HEAD" else method)


def offered(name: str | None) -> list[str]:
    """The methods that a route answers, whoever asks."""
    found = [method for method in METHODS if method in _registry.get(name or "", {})]
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]


def registry() -> dict[str, dict[str, Rule]]:
    """A copy of all entries."""
    return {name: dict(rules) for name, rules in _registry.items()}


def scopes() -> frozenset[str]:
    """Every scope that a token can have; those of what cannot be taken back have no wildcard."""
    rules = [r for entry in _registry.values() for r in entry.values() if PUBLIC not in r.roles and not r.person]
    return frozenset({rule.scope for rule in rules if rule.scope} | {f"*:{READ}", f"*:{WRITE}"})


def unregistered(patterns: list[URLPattern | URLResolver] | None = None, prefix: str = "") -> list[str]:
    """Patterns of the URL configuration that have no entry."""
    found = []
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        where = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            found += unregistered(entry.url_patterns, where)
        elif not _registry.get(entry.name or ""):
            found.append(where)
    return found


@checks.register(checks.Tags.urls)
def check_routes(**kwargs: Any) -> list[checks.CheckMessage]:
    """Each route has roles and evidence."""
    return [
        checks.Error(
            f"the route {where!r} is in no permission registry", hint="Make it with access.route.", id="kvc.E001"
        )
        for where in unregistered()
    ]


@checks.register(checks.Tags.database)
def check_database(databases: Sequence[str] | None = None, **kwargs: Any) -> Sequence[checks.CheckMessage]:
    """The login roles are unprivileged and every table with a tenant is under forced RLS."""
    found: list[checks.CheckMessage] = []
    for alias in databases or ():
        if connections[alias].settings_dict["USER"] != "kv_migrate":
            found += [checks.Critical(problem, id="kvc.C001") for problem in boot.boot_problems(alias)]
    return found


# --- requests -----------------------------------------------------------------


@cache
def _authenticator() -> Callable[[HttpRequest], Principal | None]:
    named = getattr(settings, "PRINCIPAL_AUTHENTICATOR", "tenants.authentication.principal_of")
    made: Callable[[HttpRequest], Principal | None] = import_string(named)
    return made


class PrincipalMiddleware:
    """Knows who calls, refuses what the registry does not allow, and runs the rest in the caller's context.

    What answers 400 or more has no effect: its transaction is rolled back. Making the middleware is part of
    start-up, under every server: routes without an entry end it here.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        if missing := unregistered():
            raise ImproperlyConfigured(f"routes that are in no permission registry: {', '.join(missing)}")

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, after commit or roll-back."""
        from kvconsole.infra import rest

        request.principal = None  # type: ignore[attr-defined]
        with evidence.call() as call:
            try:
                principal = _authenticator()(request)
            except rest.Problem as problem:
                response: HttpResponseBase = rest.problem_response(problem)
                leave_evidence(request, None, response)
                return response
            except DatabaseError as away:
                if outage.is_absence(away):
                    leave_evidence(request, None, rest.problem_response(rest.Problem("unavailable")))
                raise
            request.principal = principal  # type: ignore[attr-defined]
            if principal is None:
                response = self.get_response(request)
            else:
                with tenant_context(principal) as alias:
                    response = self.get_response(request)
                    if response.status_code >= 400:
                        transaction.set_rollback(True, using=alias)
        if not call.left():
            leave_evidence(request, principal, response)
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponseBase | None:
        """None where the registry allows the call, else the refusal."""
        from kvconsole.infra import rest

        match, principal = request.resolver_match, principal_of(request)
        rule = rule_for(match.url_name if match else None, request.method or "")
        if rule is None:
            return rest.unoffered(request, offered(match.url_name if match else None))
        evidence.audits(rule.evidence is Evidence.AUDITED)
        code = rule.refusal(principal, time.time())
        if code is None:
            return None
        if code in DUTIES and not request.path.startswith("/api/"):
            response = to_duty(request, code)
        else:
            detail = f"The token must have the scope {rule.scope}." if code == "scope-missing" else ""
            response = rest.refuse(request, rest.Problem(code, detail))
        response.problem_code = code  # type: ignore[attr-defined]
        return response


def leave_evidence(request: HttpRequest, principal: Principal | None, response: HttpResponseBase) -> None:
    """A call of an audited route that left no event leaves one of its own: refused, or done without any change."""
    match = request.resolver_match or evidence.matched(request)
    rule = rule_for(match.url_name if match else None, request.method or "")
    if match and rule and rule.evidence is Evidence.AUDITED:
        named = getattr(settings, "REFUSAL_RECORDER", "audit.refusals.call_record")
        import_string(named)(principal=principal, answered=evidence.answered(request, match.url_name or "", response))


def leave_unasked(scope: MutableMapping[str, Any], response: HttpResponseBase) -> None:
    """The same for a request that was refused before Django had it; in a thread of its own, which keeps no connection.

    Args:
        scope: of ASGI.
        response: the refusal.
    """
    try:
        leave_evidence(ASGIRequest(scope, BytesIO()), None, response)
    finally:
        connections.close_all()


def principal_of(request: HttpRequest | Request) -> Principal | None:
    """Who calls, as the middleware found."""
    return getattr(getattr(request, "_request", request), "principal", None)


class RoutePermission(BasePermission):
    """DRF's question, answered by the registry too: a view that the middleware did not see is refused."""

    def has_permission(self, request: Request, view: object) -> bool:
        """Whether the registry allows it."""
        match = request.resolver_match
        rule = rule_for(match.url_name if match else None, request.method or "")
        return rule is not None and rule.refusal(principal_of(request), time.time()) is None
