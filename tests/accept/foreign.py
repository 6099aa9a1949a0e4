"""Where somebody can name what is not theirs: places of paths, bodies, queries and filters."""

import itertools
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.core import signing
from django.urls import URLPattern, URLResolver, get_resolver, resolve

from kvconsole.infra import access
from tests.accept import foreign_operations as operations
from tests.accept import foreign_routing as routed
from tests.accept.fleet import rows
from tests.accept.tenancy import clone, planting
from tests.running import Console

OWN = "acme-code"
OTHER = "borealis-bank"
KINDS = {
    "slug": "tenant", "person_id": "person", "token_id": "token", "group_id": "group", "approval_id": "approval",
    "node_id": "node", "event_id": "event", "job_id": "job", "webhook_id": "webhook", "finding_id": "finding",
    **operations.KINDS, **routed.KINDS,
}  # fmt: skip
"""Parameter of a path → what it names."""
NAMED = {"models": "model", "nodes": "node name", **routed.NAMED}
"""First word of a route → what its parameter `name` names."""
NOBODYS = frozenset({"code", "number", "provider_id", "pk", "token", "epoch"})
"""Parameters that name nothing of a tenant: problems, logs that ended, log-in providers, one's own factors, a link's
secret, numbers."""
BODIES: dict[str, dict[str, Any]] = {
    "tenant": {"name": "x"},
    "quotas": {},
    "classes": {"rules": {}},
    "tenant-nodes": {"nodes": []},
    "person": {"email": "x@y.invalid"},
    "tokens": {"name": "x", "roles": ["tenant-member"]},
    "epochs": {"weights_digest": "sha256:x"},
    "model-rollout": {"shares": {"1": 100}},
    "share-group-revoke": {"reason": "x"},
    "approval-approve": {},
    "approval-deny": {},
    "webhook": {"name": "x"},
    "audit-finding-acknowledge": {"note": "x"},
    **operations.BODIES,
    **routed.BODIES,
}
"""Route → a body that is not at fault."""


class Site(NamedTuple):
    """One place where an id can be named. `path` and `body` have `<asked>` there."""

    name: str
    method: str
    path: str
    kind: str
    body: Any = None
    page: bool = False
    expects: int = 404
    """What a caller is answered whose role may call this."""


def rule_of(site: Site) -> access.Rule | None:
    """Who may call it, as the registry says."""
    path = site.path.partition("?")[0].replace("<asked>", absent(site.kind))
    return access.rule_for(resolve(path).url_name, site.method)


def path_sites(own: dict[str, str]) -> Iterator[Site]:
    """Every parameter of every route and method, the other parameters being one's own."""
    for name, pattern in _routes(get_resolver().url_patterns):
        parameters = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
        page = not pattern.startswith("api/")
        for method, at in itertools.product(access.registry()[name], parameters):
            if at in NOBODYS:
                continue
            kind = KINDS.get(at) or NAMED[pattern.removeprefix("api/v1/").split("/")[0]]
            body = {} if page else BODIES.get(name)
            place = f"{name}.{at}"
            expects = operations.EXPECTS.get(f"{method} {place}", operations.EXPECTS.get(place, 404))
            yield Site(place, method, _filled(pattern, at, own), kind, body, page, expects)


def _routes(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in patterns:
        where = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry.url_patterns, where)
        elif isinstance(entry, URLPattern):
            yield str(entry.name), where


def _filled(pattern: str, at: str, own: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return "<asked>" if match[1] == at else own[match[1]]

    return "/" + re.sub(r"<(?:\w+:)?(\w+)>", value, pattern)


def other_sites(own: dict[str, str]) -> Iterator[Site]:
    """Bodies, relations, queries and filters."""
    at, ours = "/api/v1", {"tenant": OWN, "model": "ref-64"}
    key = "0" * 64
    yield Site("resolve tenant", "POST", f"{at}/namespaces:resolve", "tenant", {**ours, "tenant": "<asked>"})
    yield Site("resolve model", "POST", f"{at}/namespaces:resolve", "model", {**ours, "model": "<asked>"})
    yield Site("resolve group", "POST", f"{at}/namespaces:resolve", "group", {**ours, "share_group": "<asked>"})
    yield Site("resolve adapter", "POST", f"{at}/namespaces:resolve", "adapter",
               {**ours, "model": "llama-3.1-8b", "adapter": "<asked>"})  # fmt: skip
    yield Site("adapter of a model", "POST", f"{at}/adapters", "model",
               {"model": "<asked>", "name": "x", "digest": "sha256:x"})  # fmt: skip
    token = {"name": "x", "kind": "service", "roles": ["tenant-member"]}
    yield Site("token of an owner", "POST", f"{at}/tenants/{OWN}/tokens", "person", {**token, "owner": "<asked>"})
    yield Site("person of a tenant", "POST", f"{at}/people", "tenant",
               {"username": "x", "tenant": "<asked>", "roles": ["tenant-member"]})  # fmt: skip
    group = {"owner_tenant": OWN, "name": "x", "audience": ["cobalt-support"], "reason": "x",
             "expires_at": "2100-01-01T00:00:00Z"}  # fmt: skip
    yield Site("group of an owner", "POST", f"{at}/share-groups", "tenant", {**group, "owner_tenant": "<asked>"})
    yield Site("group's audience", "POST", f"{at}/share-groups", "tenant", {**group, "audience": ["<asked>"]})
    yield Site("model's base", "POST", f"{at}/models", "model", {"name": "x", "config": {}, "base": "<asked>"})
    yield Site("tenant's nodes", "PUT", f"{at}/tenants/{OWN}/nodes", "node name", {"nodes": ["<asked>"]})
    held = {"held": [{"namespace": "<asked>", "generation": 1}], "fence_seq": 0}
    yield Site("lease", "POST", f"{at}/key-leases", "digest", held, expects=200)
    yield Site("look-up", "POST", f"{at}/prefixes:lookup", "digest", {"namespace": "<asked>", "keys": [key]},
               expects=200)  # fmt: skip
    for side, kind in itertools.product(("a", "b"), ("namespace", "digest")):
        pair = {"a": own["namespace"], "b": own["namespace"], side: "<asked>"}
        yield Site(f"explain {kind} {side}", "GET", f"{at}/explain-reuse?a={pair['a']}&b={pair['b']}", kind)
    yield Site("events of a tenant", "GET", f"{at}/audit/events?tenant=<asked>", "tenant", expects=200)
    yield Site("people of a tenant", "GET", f"{at}/people?tenant=<asked>", "tenant")
    yield Site("watermarks of a node", "GET", f"{at}/watermarks?node=<asked>&tier=hbm", "node name")
    yield from operations.sites(Site, OWN)
    yield from routed.sites(Site)
    for path in (
        "adapters",
        "models",
        "share-groups",
        "people",
        f"tenants/{OWN}/tokens",
        *operations.PATHS,
        *routed.PATHS,
    ):
        yield Site(f"cursor of {path}", "GET", f"{at}/{path}?cursor=<asked>", "cursor", expects=400)


ID_FIELDS = frozenset(
    {"tenant", "model", "adapter", "share_group", "owner", "owner_tenant", "audience", "base", "namespace", "held",
     "nodes", "plan_id", "to_node",
     *(f"selector.{name}" for name in ("tenant", "namespace", "epoch")), "filters.tenant"}
)  # fmt: skip
"""Fields of bodies that name something; a call that takes one is among `other_sites`."""
ID_QUERIES = frozenset({"tenant", "a", "b", "node", "namespace", "group", "model"})
NAMES_NOTHING = frozenset({"/api/v1/fleet-key"})
"""Calls whose query is signed as it came: whether there is such a node is not looked up."""


def uncovered(schema: dict[str, Any], sites: list[Site]) -> list[str]:
    """Fields of bodies and queries that name something and are in no site."""
    known = {(s.method, s.path.partition("?")[0]): s for s in sites}
    bodies = {(s.method, s.path, field) for s in sites if isinstance(s.body, dict) for field in _said(s.body)}
    found = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            where = path.replace("{slug}", OWN).replace("{session}", operations.OWN["session"])
            at = method.upper(), where.replace("/policies/{name}", f"/policies/{routed.OWN['policy']}")
            content = operation.get("requestBody", {}).get("content", {})
            for media in content.values():
                fields = _fields(schema, media["schema"])
                found += [f"{at} body {f}" for f in fields if f in ID_FIELDS and (*at, f) not in bodies]
            for p in operation.get("parameters", []):
                if p["in"] == "query" and p["name"] in ID_QUERIES and at[1] not in NAMES_NOTHING:
                    asked = [s.path for s in sites if s.method == at[0] and s.path.startswith(f"{at[1]}?")]
                    found += [] if any(f"{p['name']}=" in a for a in asked) else [f"{at} query {p['name']}"]
    return found if known else ["nothing"]


def _fields(schema: dict[str, Any], of: dict[str, Any], before: str = "") -> Iterator[str]:
    """Fields of a body, with those of a selector in it as `selector.tenant`."""
    name = of.get("$ref", "").rpartition("/")[2]
    for field, about in schema["components"]["schemas"].get(name, {}).get("properties", {}).items():
        yield f"{before}{field}"
        if not before and "$ref" in about:
            yield from _fields(schema, about, f"{field}.")


def _said(body: dict[str, Any]) -> Iterator[str]:
    for field, value in body.items():
        yield field
        yield from (f"{field}.{inner}" for inner in value) if isinstance(value, dict) else ()


# --- ids ------------------------------------------------------------------------------


def own_ids(console: Console) -> dict[str, str]:
    """Parameter → what the own tenant has."""
    of = "tenant_id = (SELECT id FROM tenants_tenant WHERE slug = %s)"
    return {
        "slug": OWN,
        "person_id": rows(console, f"SELECT id::text FROM tenants_user WHERE {of}", OWN)[0][0],
        "token_id": "0" * 16,
        **operations.OWN,
        "namespace": rows(console, f"SELECT id::text FROM tenants_namespace WHERE {of}", OWN)[0][0],
    }


def absent(kind: str) -> str:
    """An id that nothing has, of the same form as those that are there."""
    made: dict[str, Callable[[], str]] = {
        "token": lambda: uuid.uuid4().hex[:16],
        "digest": lambda: uuid.uuid4().hex * 2,
        "adapter": lambda: f"sha256:{uuid.uuid4().hex}",
        "tenant": lambda: f"t-{uuid.uuid4().hex[:12]}",
        "model": lambda: f"m-{uuid.uuid4().hex[:12]}",
        "epoch": lambda: f"m-{uuid.uuid4().hex[:12]}/1",
        "subject": lambda: uuid.uuid4().hex * 2,
        "session": lambda: f"s-{uuid.uuid4().hex[:12]}",
        "node name": lambda: f"n-{uuid.uuid4().hex[:12]}",
        "finding": lambda: str(10**17 + uuid.uuid4().int % (8 * 10**17)),
        "cursor": lambda: signing.dumps([False, f"t-{uuid.uuid4().hex[:12]}"], key="another", compress=True),
    }
    return made.get(kind, lambda: str(uuid.uuid4()))()


def plant(console: Console, count: int) -> dict[str, list[str]]:
    """`count` things of each kind that belong to another tenant, or to the fleet; kind → how they are named."""
    short = "substr(md5(random()::text || {i}::text), 1, 12)"
    digest = "sha256((random()::text || {i}::text)::bytea)"
    with planting(console) as cx:
        ids = dict(cx.execute("SELECT slug, id FROM tenants_tenant").fetchall())
        other, of = f"'{ids[OTHER]}'::uuid", f"tenant_id = '{ids[OTHER]}'"
        fresh = {"id": "gen_random_uuid()"}
        clone(cx, "tenants_tenant", count, f"slug = '{OTHER}'", **fresh, slug=f"'t-' || {short}", lookalike=short)
        clone(cx, "tenants_user", count, of, **fresh, username=f"'u-' || {short}", lookalike=short)
        clone(cx, "tenants_token", count, "true", id=f"substr(md5({short}), 1, 16)", tenant_id=other, user_id="NULL",
              user_tenant_id="NULL", kind="'service'")  # fmt: skip
        clone(cx, "tenants_namespace", count, of, **fresh, digest=digest)
        clone(cx, "tenants_model", count, "name = 'ref-64'", **fresh, tenant_id=other, name=f"'m-' || {short}",
              lookalike=short)  # fmt: skip
        clone(cx, "tenants_adapter", count, "true", **fresh, tenant_id=other, digest=f"'sha256:' || {short}",
              epoch="{i}")  # fmt: skip
        clone(cx, "tenants_sharegroup", count, "true", **fresh, tenant_id=other, owner_slug=f"'{OTHER}'", name=short)
        clone(cx, "audit_approval", count, "true", **fresh, object_id=short, tenant_id=other)
        clone(cx, "audit_event", count, of, event_id="gen_random_uuid()")
        cx.execute(
            "INSERT INTO audit_job (id, tenant_id, kind, state, params, requester, created_at, expires_at, done, total,"
            " position, result, problem, cancel_asked, lease_holder, lease_token)"
            " SELECT gen_random_uuid(), %s, 'export', 'queued', '{}', '{}', now(), now() + interval '1 day', 0, 0,"
            " '{}', '{}', '', false, '', 0"
            " FROM generate_series(1, %s)", (ids[OTHER], count),
        )  # fmt: skip
        cx.execute(
            "INSERT INTO audit_webhook (id, tenant_id, url, name, events, state, reason, key_version, created_by,"
            " created_at) SELECT gen_random_uuid(), %s, 'https://other.invalid/', '', '[\"gap\"]', 'paused', '', 1,"
            " 'user:x', now() FROM generate_series(1, %s)", (ids[OTHER], count),
        )  # fmt: skip
        cx.execute(
            "INSERT INTO audit_finding (id, at, kind, subject, detail, resolved_at) OVERRIDING SYSTEM VALUE"
            " SELECT 1e17::bigint + (random() * 8e17)::bigint, now(), 'gap', 'other ' || i, '', now()"
            " FROM generate_series(1, %s) i", (count,),
        )  # fmt: skip
        clone(cx, "catalog_node", count, "true", **fresh, name=f"'n-' || {short}")
        return {kind: [row[0] for row in cx.execute(f"{query} LIMIT %s", (count,))] for kind, query in {
            "tenant": "SELECT slug FROM tenants_tenant WHERE slug LIKE 't-%%'",
            "person": f"SELECT id::text FROM tenants_user WHERE {of} AND username LIKE 'u-%%'",
            "token": f"SELECT id FROM tenants_token WHERE {of}",
            "namespace": f"SELECT id::text FROM tenants_namespace WHERE {of}",
            "digest": f"SELECT encode(digest, 'hex') FROM tenants_namespace WHERE {of}",
            "model": f"SELECT name FROM tenants_model WHERE {of}",
            "adapter": f"SELECT digest FROM tenants_adapter WHERE {of}",
            "group": f"SELECT id::text FROM tenants_sharegroup WHERE {of}",
            "approval": f"SELECT id::text FROM audit_approval WHERE {of}",
            "event": f"SELECT event_id::text FROM audit_event WHERE {of}",
            "job": f"SELECT id::text FROM audit_job WHERE {of}",
            "webhook": f"SELECT id::text FROM audit_webhook WHERE {of}",
            "finding": "SELECT id::text FROM audit_finding WHERE subject LIKE 'other %%'",
            "node": "SELECT id::text FROM catalog_node WHERE name LIKE 'n-%%'",
            "node name": "SELECT name FROM catalog_node WHERE name LIKE 'n-%%'",
            **operations.plant(cx, count, ids[OTHER]),
            **routed.plant(cx, count, ids[OTHER]),
        }.items()}  # fmt: skip
