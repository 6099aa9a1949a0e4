"""For every route and role of a tenant: what is another tenant's answers exactly as what is nobody's.

Made from the registry and the description: a new route is covered by itself, or fails here until `BODIES` has a body
for it. `make test` runs a short form; KVC_ACCEPT=full asks for 2,000 foreign ids.
"""

import json
import os
import re
import uuid

import pytest

from kvconsole import apidocs
from kvconsole.infra import access
from tenants import services
from tenants.models import Adapter, Token
from tests.kvconsole.test_apidocs import routed
from tests.routing.announcing import an_announced_session
from tests.tenants.making import LLAMA, a_model, a_namespace, a_tenant, a_user, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
IDS = 2_000 if os.environ.get("KVC_ACCEPT") == "full" else 1
ROLES = {"tenant-admin": "service", "tenant-member": "service", "gateway": "gateway"}
REFERENCES = {
    "tenant": "slug", "owner_tenant": "slug", "audience": "slugs", "model": "model", "base": "model",
    "adapter": "adapter", "share_group": "uuid", "owner": "person", "person": "person", "namespace": "digest",
    "a": "namespace", "b": "namespace", "node": "uuid",
}  # fmt: skip
"""Fields of bodies and queries that name an object → which kind."""
PLACES = {
    "slug": "slug", "name": "model", "person_id": "person", "token_id": "token", "group_id": "uuid",
    "approval_id": "uuid", "node_id": "uuid", "event_id": "uuid", "job_id": "uuid", "webhook_id": "uuid",
    "plan_id": "uuid", "operation_id": "uuid", "step_id": "uuid", "certificate_id": "uuid", "hold_id": "uuid",
    "pin_id": "uuid", "window_id": "uuid", "digest": "digest", "model": "model", "session": "session", "epoch": "epoch",
    "finding_id": "number", "decision_id": "uuid",
}  # fmt: skip
"""Parameters of paths → the kind of object they name."""
NEVER_ABSENT = {("get", "/api/v1/sessions/{session}/hints")}
"""Calls whose path names nothing that somebody made: of a session that nobody spoke of, nothing was announced."""


class World:
    """Two tenants with the same kinds of things, and of each kind something that nobody has."""

    def __init__(self):
        self.mine, self.other = a_tenant(slug=some("mine")), a_tenant(slug=some("other"))
        self.made = {"mine": self._things(self.mine), "other": self._things(self.other)}

    def _things(self, tenant):
        model = a_model(tenant_id=tenant.id)
        adapter = services.adapter_register(model=model, name=some("a"), digest=some("d"), tenant_id=tenant.id)
        namespace = a_namespace(tenant, model)
        user = a_user(username=some("u"), tenant=tenant, roles=["tenant-member"])
        session = an_announced_session(tenant)
        token, _ = services.token_issue("service", tenant_id=tenant.id, roles=["tenant-member"])
        assert isinstance(adapter, Adapter)
        assert isinstance(token, Token)
        return {
            "slug": tenant.slug, "slugs": [tenant.slug], "model": model.name, "adapter": adapter.digest,
            "namespace": str(namespace.id), "digest": bytes(namespace.digest).hex(), "person": str(user.id),
            "token": token.id, "uuid": str(namespace.id), "session": session, "number": str(uuid.uuid4().int >> 70),
        }  # fmt: skip

    def nobodys(self, kind):
        slug, hexes = some("none"), uuid.uuid4().hex
        of = self.made["other"]
        made = {
            "slug": slug, "slugs": [slug], "model": some("m"), "session": some("s"), "adapter": some("d"),
            "digest": hexes + hexes,
            "token": "".join(c if c.isdigit() else "x" for c in of["token"]),
            "number": str(uuid.uuid4().int >> 70),
        }  # fmt: skip
        return made.get(kind, str(uuid.uuid4()))


def seen(answer, *values):
    """Status, body and telling headers, without what the caller itself said and without the request's id."""
    text = re.sub(r'"request_id": ?"[^"]*"', "", answer.content.decode())
    text, aged = re.subn(r'"age_ms": ?\d+', "", text)
    for value in values:
        for one in value if isinstance(value, list) else [value]:
            text = text.replace(json.dumps(one)[1:-1], "•")
    headers = {h: answer.get(h) for h in ("Content-Type", "Location", "Retry-After", "Allow")}
    headers["ETag"] = None if aged else answer.get("ETag")
    return answer.status_code, text, tuple(headers.items())


def operation(method, path):
    return apidocs.description()["paths"][path][method]


def properties(method, path):
    """Fields of the body that the description knows."""
    content = operation(method, path).get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return apidocs.description()["components"]["schemas"].get(name, {}).get("properties", {})


def body_of(method, path, world):
    """A body of the caller's own things: what the description requires, filled by kind."""
    schemas = apidocs.description()["components"]["schemas"]
    content = operation(method, path).get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = schemas.get(content.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
    return {name: value_of(name, schema["properties"][name], world) for name in schema.get("required", [])}


def value_of(name, about, world):
    if name in REFERENCES:
        return world.made["mine"][REFERENCES[name]]
    known = {"config": LLAMA, "expires_at": "2027-01-01T00:00:00Z", "roles": ["tenant-member"], "weights_digest": "w"}
    if name in known:
        return known[name]
    if "enum" in about:
        return about["enum"][0]
    return {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}.get(about.get("type"), some("v"))


def calls(role):
    """(method, path) of what the role may call with a path, body or query that can name something."""
    by_path = {(m, re.sub(r"\{\w+\}", "{}", p)): p for m, p in routed()}  # routes enter the registry as this loads them
    names = {}
    for name, rules in access.registry().items():
        for method, rule in rules.items():
            if role in rule.roles:
                names[name, method.lower()] = rule
    from django.urls import get_resolver

    found = []
    for pattern, name in flat(get_resolver().url_patterns):
        path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", pattern)
        for method in ("get", "post", "put", "patch", "delete"):
            if (name, method) in names and (method, re.sub(r"\{\w+\}", "{}", path)) in by_path:
                found.append((method, path))
    return found


def flat(patterns, prefix=""):
    for entry in patterns:
        if hasattr(entry, "url_patterns"):
            yield from flat(entry.url_patterns, prefix + str(entry.pattern))
        else:
            yield prefix + str(entry.pattern), entry.name


def ask(call, method, path, places, body, query):
    where = path.removeprefix("/api/v1")
    for name, value in places.items():
        where = where.replace("{" + name + "}", value)
    text = "&".join(f"{k}={v[0] if isinstance(v, list) else v}" for k, v in query.items())
    headers = {"If-Match": "*"} if method in ("put", "patch") else {}
    return call(method.upper(), f"{where}?{text}" if text else where, body if method != "get" else None, **headers)


def variants(method, path, world):
    """(what is varied, kind, how to ask with a value of it)."""
    params = [p for p in operation(method, path).get("parameters", [])]
    own = {p["name"]: world.made["mine"][PLACES[p["name"]]] for p in params if p["in"] == "path"}
    queries = {p["name"] for p in params if p["in"] == "query"} & set(REFERENCES)
    needed = {p["name"]: world.made["mine"][REFERENCES[p["name"]]] for p in params
              if p["in"] == "query" and p.get("required") and p["name"] in REFERENCES}  # fmt: skip
    body = body_of(method, path, world)
    for name in own:
        yield f"path {name}", PLACES[name], lambda v, n=name: ({**own, n: v}, body, needed)
    for name in sorted(set(properties(method, path)) & set(REFERENCES)):
        yield f"body {name}", REFERENCES[name], lambda v, n=name: (own, {**body, n: v}, needed)
    for name in sorted(queries):
        yield f"query {name}", REFERENCES[name], lambda v, n=name: (own, body, {**needed, n: v})


@pytest.mark.timeout(1800)
def test_what_is_anothers_answers_as_what_is_nobodys(caller, index):
    world, asked, told = World(), 0, []
    callers = {r: caller(r, tenant=world.mine, kind=kind, holder=some("h")) for r, kind in ROLES.items()}
    for round_ in range(max(1, IDS // 150)):
        for role, call in callers.items():
            for method, path in calls(role):
                for what, kind, how in variants(method, path, world):
                    foreign, absent = world.made["other"][kind], world.nobodys(kind)
                    one = seen(ask(call, method, path, *how(foreign)), foreign)
                    two = seen(ask(call, method, path, *how(absent)), absent)
                    asked += 1
                    if one != two:
                        told.append(f"{role} {method} {path} {what}:\n  foreign {one}\n  absent  {two}")
                    elif what.startswith("path") and one[0] < 400 and (method, path) not in NEVER_ABSENT:
                        told.append(f"{role} {method} {path} {what}: answered {one[0]}")
        if round_ % 4 == 3:
            world.made["other"] |= world._things(world.other)
    assert not told, "\n".join(told)
    assert asked >= 40


def test_each_place_of_a_path_is_known_here():
    for _, path in routed():
        for name in re.findall(r"\{(\w+)\}", path):
            assert name in PLACES, f"{path}: say in PLACES what {name} names"
