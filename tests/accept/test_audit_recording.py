"""The trail, seen from outside: a call of an `audited` route leaves exactly one event, of a `counted` one none.

Made from the registry: a new route is asked by itself, as each kind of caller it is for, on both planes: rightly,
without the right, about what nobody has, with a bad body, and by nobody. `FORMS` has what a page's form needs.
"""

import json
import re
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import pytest
from django.test import Client
from django.urls import get_resolver

from audit import refusals, signing
from kvconsole.infra import access, rate
from kvconsole.infra.access import ANY, PUBLIC, TENANT_ROLES, Evidence, Principal
from kvconsole.infra.sql import connect
from tenants import services
from tests.tenants.conftest import index  # noqa: F401 - a fixture
from tests.tenants.making import a_model, a_tenant, a_user, principal, some
from tests.tenants.test_foreign import World, body_of, flat

pytestmark = [
    pytest.mark.accept,
    pytest.mark.django_db(transaction=True, databases=["default", "tenant"]),
    pytest.mark.usefixtures("index"),
]
FIELDS = {"slug": "slug", "name": "model", "person_id": "person", "token_id": "token"}
ACCOUNTS = re.compile(r"^(mfa_|account_|socialaccount_|openid_)|^page-(account|confirm|password|unlink|log|invitation)")
"""Pages of a person's own account: they need a real session (`test_audit_recording_accounts`)."""


def routes():
    """(name, pattern as a path, method, rule) of everything that is served."""
    for pattern, name in flat(get_resolver().url_patterns):
        for method, rule in access.registry().get(name, {}).items():
            yield name, "/" + pattern, method, rule


READING = []
"""The connection on which the trail is read, once there is a database."""


@pytest.fixture(autouse=True)
def reading(transactional_db):
    with connect("audit") as c:
        READING.append(c)
        yield
        READING.clear()


class Asked(list):
    """Who calls, in place of tokens and sessions: the registry and the planes do the rest."""

    def __call__(self, request):
        return self[-1] if self else None


@pytest.fixture
def asked(monkeypatch):
    PEOPLE.clear()
    who = Asked()
    monkeypatch.setattr(access, "_authenticator", lambda: who)
    monkeypatch.setattr(signing, "command_key", lambda: bytes(32))
    return who


@contextmanager
def calling(asked, who):
    refusals._calls._seen.clear()
    rate.buckets.clear()
    asked.append(who)
    try:
        yield
    finally:
        asked.pop()


PEOPLE = {}
"""Who calls: one person of a test for each set of roles of a plane; no call ends them."""


def somebody(rule, tenant=None, *, wrong=False):
    """A person whom the rule lets in, of the fleet or of a tenant (`wrong`: whom it does not); None = there is none."""
    own = tenant is not None
    if PUBLIC in rule.roles or (wrong and ANY in rule.roles):
        return None
    if wrong:
        roles = ["tenant-member", "gateway"] if own else ["viewer", "auditor"]
        unfit = [role for role in roles if role not in rule.roles]
        return principal(tenant, unfit[0]) if unfit else None
    known = sorted(rule.roles & TENANT_ROLES) if own else sorted(rule.roles - TENANT_ROLES - {"node", ANY})
    if ANY in rule.roles:
        known = ["tenant-admin"] if own else ["operator"]
    if not known:
        return None
    place = (tenant and tenant.slug, *known)
    if place not in PEOPLE:
        PEOPLE[place] = str(a_user(username=some("caller"), roles=known[:1], tenant=tenant).id)
    return replace(principal(tenant, *known), id=PEOPLE[place], user_id=PEOPLE[place])


def where(path, values):
    path = re.sub(r"<int:\w+>", "77", path)
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda m: str(values.get(m[1], uuid.uuid4())), path)


def send(path, method, body, *, form=False, **headers):
    """(answer, events of the call)."""
    given = f"r-{uuid.uuid4().hex}"
    headers |= {"X-Request-ID": given, "Accept": "text/html" if form else "*/*"}
    if method in ("PUT", "PATCH"):
        headers["If-Match"] = "*"
    content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
    CLIENT.cookies.clear()
    if form and method == "POST":
        answer = CLIENT.post(path, body or {}, headers=headers)
    else:
        answer = CLIENT.generic(method, path, headers=headers, **content)
    return answer, events(given)


CLIENT = Client()
"""Nobody's browser: whoever calls is `asked`; its handler is built once."""


def events(request_id):
    query = "SELECT event_type, outcome, actor_ref, body, tenant_id FROM audit_event WHERE request_id = %s"
    rows = READING[-1].execute(query, (request_id,)).fetchall()
    return [
        (number, outcome, bytes(ref), json.loads(bytes(body)), tenant) for number, outcome, ref, body, tenant in rows
    ]


def count():
    with connect("audit") as c:
        return c.execute("SELECT count(*) FROM audit_event").fetchone()[0]


def wrong_with(found, answer, who, rule):
    """What is not as it must be with the events of one call, "" = nothing."""
    if rule.evidence is Evidence.COUNTED:
        return f"{len(found)} events" if found else ""
    if len(found) != 1:
        return f"{len(found)} events: {[b['action'] for *_, b, _ in found]}"
    _, outcome, ref, body, _ = found[0]
    if who is None:
        return "" if body["actor"]["kind"] in ("nobody", "node") else f"nobody called, and it was {body['actor']}"
    if body["actor"] != {"kind": who.kind, "roles": sorted(who.roles)}:
        return f"it was {body['actor']}"
    if ref == bytes(16):
        return "its actor has no name"
    refused = answer.status_code >= 400 or body["action"] == "access.refused"
    return f"{answer.status_code}, and the outcome is {outcome}" if refused != (outcome in (2, 3)) else ""


class Things:
    """What paths and forms can name, each made when it is named first."""

    def __init__(self, world, tenant_side):
        self.world, self.tenant_side = world, tenant_side

    @cached_property
    def tenant(self):
        return self.world.mine if self.tenant_side else a_tenant(slug=some("t"))

    @cached_property
    def slug(self):
        return self.tenant.slug

    @cached_property
    def model(self):
        return self.world.made["mine"]["model"] if self.tenant_side else a_model().name

    @cached_property
    def user(self):
        return a_user(username=some("u"), tenant=self.tenant, roles=["tenant-member"])

    @cached_property
    def person(self):
        return str(self.user.id)

    @cached_property
    def token(self):
        return services.token_issue("user", tenant_id=self.tenant.id, roles=["tenant-member"], user=self.user)[0].id


FORMS = {
    "page-tenant-new": lambda made, who: {"slug": some("n"), "name": "New", **SHARED},
    "page-tenant-change": lambda made, who: {"slug": made.slug, "name": "Other", **SHARED},
    "page-person-new": lambda made, who: {"username": some("p"), "roles": [], "kind": "person", "tenant": made.slug},
    "page-person": lambda made, who: {"email": "x@example.org", "roles": ["tenant-member"]},
    "page-person-state": lambda made, who: {"active": "no"},
    "page-token-new": lambda made, who: {
        "owner": who.user_id if who else "", "name": "t", "roles": sorted(who.roles) if who else [],
        "tenant": who.tenant_slug if who else "", "days": "10",
    },
    "page-model-new": lambda made, who: {
        "name": some("m"), "config": json.dumps(MODEL), "block_tokens": "16", "kv_dtype": "auto",
    },
    "page-epoch-new": lambda made, who: {"model": made.model, "weights_digest": some("w")},
    "page-adapter-new": lambda made, who: {
        "model": made.model, "name": some("a"), "digest": some("d"), "tenant": made.slug,
    },
    "page-share-new": lambda made, who: {
        "owner": made.slug, "name": some("g"), "audience": a_tenant(slug=some("t")).slug, "days": "5", "reason": "why",
    },
}  # fmt: skip
"""The fields of a page's form."""
SHARED = {"isolation": "shared", "erasure_scope": "label"}
MODEL = {
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256,
}  # fmt: skip
OVER = {
    "people": lambda made: {"username": some("p"), "tenant": made.slug, "roles": ["tenant-member"], "how": "link"},
    "audit-retentions": lambda made: {"class": 1, "month": "2021-03"},
    "tenants": lambda made: {"slug": some("n"), "name": "N", "isolation": "shared"},
    "key-leases": lambda made: {"held": [], "fence_seq": 0, "all": True},
}
PERSONS_OWN = {"tokens"}


def rightly(name, path, method, rule, world, asked, *, made, tenant_side):
    """One call as it should be: (answer, events, who), None where nobody of this plane may."""
    who = somebody(rule, world.mine if tenant_side else None)
    if who is None and PUBLIC not in rule.roles:
        return None
    at = where(path, {k: getattr(made, v) for k, v in FIELDS.items() if f"{k}>" in path})
    form = not path.startswith("/api/")
    body = None
    if form:
        body = FORMS.get(name, lambda made, who: {})(made, who)
    elif method in ("POST", "PUT", "PATCH"):
        described = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)
        body = OVER[name](made) if name in OVER and method == "POST" else body_of(method.lower(), described, world)
        body = {**body, **({"tenant": made.slug} if "tenant" in body else {})}
        if name == "tokens" and who:
            at = where(path, {"slug": who.tenant_slug or "platform"})
            body = {"name": "t", "roles": sorted(who.roles)}
        body = body or None
    with calling(asked, who):
        answer, found = send(at, method, body, form=form)
    return answer, found, who


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tenant_side", [False, True], ids=["fleet", "tenant"])
def test_a_call_that_is_made_rightly_leaves_one_event_and_a_counted_one_none(asked, tenant_side):
    told, good = [], set()
    world = World()
    looked_at = Things(world, tenant_side)
    for name, path, method, rule in routes():
        if ACCOUNTS.match(name):
            continue
        made = looked_at if method == "GET" else Things(world, tenant_side)  # a call that changes may end what it names
        call = rightly(name, path, method, rule, world, asked, made=made, tenant_side=tenant_side)
        if call is None:
            continue
        answer, found, who = call
        if wrong := wrong_with(found, answer, who, rule):
            told.append(f"{method} {name} → {answer.status_code}: {wrong}")
        if (
            answer.status_code < 400
            and rule.evidence is Evidence.AUDITED
            and not answer.headers.get("Location", "").startswith(("/login", "/account"))
        ):
            good.add(f"{method} {name}")
    print(
        json.dumps({"accept": "audit-recording", "plane": "tenant" if tenant_side else "fleet", "done": sorted(good)})
    )
    assert not told, "\n".join(told)
    assert len(good) >= (9 if tenant_side else 25), sorted(good)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tenant_side", [False, True], ids=["fleet", "tenant"])
def test_a_refused_call_leaves_one_event_with_its_actor(asked, tenant_side):
    told, refused = [], 0
    tenant = a_tenant(slug=some("t"))
    for name, path, method, rule in routes():
        if ACCOUNTS.match(name):
            continue
        form, own = not path.startswith("/api/"), tenant if tenant_side else None
        right, unfit = somebody(rule, own), somebody(rule, own, wrong=True)
        stale = replace(right, proved_at=time.time() - 9e5) if right and rule.step_up else None
        token = Principal(kind="token", id=some("t"), roles=right.roles, scopes=frozenset({"none:read"}),
                          tenant_id=right.tenant_id, tenant_slug=right.tenant_slug) if right else None  # fmt: skip
        nobodys = where(path, {"slug": some("none"), "name": some("none"), "token_id": some("none")})
        ways = {
            "without the right": unfit,
            "without a proof": stale,
            "without the scope": token,
            "about nothing": right,
        }
        for way, who in ways.items():
            if who is None or (way == "about nothing" and (nobodys == path or method == "GET")):
                continue
            with calling(asked, who):
                body = {} if form else {"no-such-field": 1} if method in ("POST", "PUT", "PATCH") else None
                answer, found = send(nobodys, method, body, form=form)
            refused += answer.status_code >= 400
            if wrong := wrong_with(found, answer, who, rule):
                told.append(f"{method} {name} {way} → {answer.status_code}: {wrong}")
    assert not told, "\n".join(told)
    assert refused > 100


@pytest.mark.timeout(600)
def test_a_call_by_nobody_or_with_a_bad_token_leaves_one_event_of_nobody(asked):
    told = []
    for name, path, method, rule in routes():
        if ACCOUNTS.match(name) and method == "POST" and PUBLIC in rule.roles:
            continue
        form = not path.startswith("/api/")
        with calling(asked, None):
            answer, found = send(where(path, {}), method, {} if method != "GET" else None, form=form)
        if wrong := wrong_with(found, answer, None, rule):
            told.append(f"{method} {name} → {answer.status_code}: {wrong}")
        elif found and answer.status_code in (302, 401) and found[0][1] != 3:
            told.append(f"{method} {name}: the outcome is {found[0][1]}")
    assert not told, "\n".join(told)


def test_a_token_that_is_not_good_is_an_event_of_nobody():
    refusals._calls._seen.clear()
    answer, found = send("/api/v1/tenants", "POST", {}, Authorization="Bearer kvc_user_x")
    assert (answer.status_code, len(found)) == (401, 1)
    assert (found[0][3]["data"]["code"], found[0][3]["actor"]["kind"]) == ("token-invalid", "nobody")


def test_repetitions_and_rehearsals_are_events_that_say_so(asked):
    who, body = principal(None, "operator"), {"slug": some("n"), "name": "N", "isolation": "shared"}
    with calling(asked, who):
        rehearsed = send("/api/v1/tenants?validate_only=true", "POST", body)
        first = send("/api/v1/tenants", "POST", body, **{"Idempotency-Key": "k"})
        again = send("/api/v1/tenants", "POST", body, **{"Idempotency-Key": "k"})
        same = send(f"/api/v1/tenants/{body['slug']}", "PATCH", {"name": "N"})
    assert [a.status_code for a, _ in (rehearsed, first, again, same)] == [201, 201, 201, 200]
    assert [found[0][3]["action"] for _, found in (rehearsed, first, again, same)] == [
        "call.unchanged", "tenant.created", "call.unchanged", "call.unchanged",
    ]  # fmt: skip
    assert [found[0][3]["data"]["why"] for _, found in (rehearsed, again, same)] == [
        "rehearsal",
        "repeated",
        "unchanged",
    ]


def test_what_follows_from_a_call_stands_in_its_event(asked):
    tenant = a_tenant(slug=some("t"))
    user = a_user(username=some("u"), tenant=tenant, roles=["tenant-member"])
    for _ in range(3):
        services.token_issue("user", tenant_id=tenant.id, roles=["tenant-member"], user=user)
    before = count()
    with calling(asked, principal(None, "operator")):
        answer, found = send(f"/api/v1/people/{user.id}", "DELETE", None)
    assert (answer.status_code, count() - before, len(found)) == (204, 1, 1)
    body = found[0][3]
    assert body["action"] == "user.removed"
    assert [part["action"] for part in body["also"]] == ["token.revoked"] * 3


def test_many_refused_calls_of_one_token_are_a_handful_of_events_that_add_up(asked):
    who = principal(None, "viewer")
    with calling(asked, who):
        for _ in range(300):
            assert CLIENT.generic("POST", "/api/v1/tenants").status_code in (403, 429)
        refusals.tell(everything=True)
    with connect("audit") as c:
        rows = c.execute("SELECT body FROM audit_event WHERE event_type = 752").fetchall()
    calls = [json.loads(bytes(body))["data"]["calls"] for (body,) in rows]
    assert len(calls) <= 4
    assert sum(calls) == 300
