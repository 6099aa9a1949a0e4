"""Tenancy, seen from outside: what is not yours is not there, in what is answered and in how long that takes."""

import asyncio
import itertools
import json
import math
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import websockets

from kvconsole.infra.access import ANY, Principal
from tests.accept.fleet import rows, say
from tests.accept.foreign import (
    OTHER,
    OWN,
    Site,
    absent,
    other_sites,
    own_ids,
    path_sites,
    plant,
    rule_of,
    uncovered,
)
from tests.accept.tenancy import Caller, People, accept, plain, plant_token, planting
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
IDS = 2000 if LONG else 700
ARM = 2000 if LONG else 150
ALPHA, RUNS = 0.01, 3
BY_ROLE = (401, 403, 405)
TENANTS = frozenset({"tenant-admin", "tenant-member", "gateway", "node", ANY})
SCOPES = ("*:read", "*:write", "people:manage", "people:destroy", "tokens:manage", "nodes:manage",
          "share-groups:destroy", "audit:export", "deletions:destroy", "deny-windows:destroy")  # fmt: skip


class Asker:
    """Somebody of the own tenant, or a node: by token to the API, by session to pages."""

    def __init__(self, role: str, api: Caller, browser: Caller | None = None, *, who: Principal) -> None:
        self.role, self.api, self.browser, self.who = role, api, browser, who

    def may(self, site: Site) -> bool:
        """Whether the asker's token may call the API there; leases are for holders of keys alone."""
        rule = rule_of(site)
        if rule is None or (site.name == "lease" and self.who.kind not in ("node", "gateway")):
            return False
        return rule.refusal(self.who, time.time()) is None

    def ask(self, site: Site, value: str) -> tuple[Any, ...]:
        """What is answered for the id, without what differs from call to call."""
        who = self.browser if site.page and self.browser else self.api
        path, headers = site.path.replace("<asked>", value), {"Accept": "text/html" if site.page else "*/*"}
        headers["X-Request-ID"] = "accept"
        content: dict[str, Any] = {}
        if site.page and site.method == "POST":
            csrf = who.http.cookies.get("csrftoken", "")
            content = {"data": {"csrfmiddlewaretoken": csrf, "reason": "x"}}
            headers["Referer"] = str(who.http.base_url)
        elif site.body is not None and not site.page:
            content = {"json": json.loads(json.dumps(site.body).replace("<asked>", value))}
        if site.method in ("PUT", "PATCH"):
            headers["If-Match"] = "*"
        if site.method == "POST" and not site.page:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        answer = who.http.request(site.method, path, headers=headers, **content)
        names = sorted(k for k in answer.headers if not k.startswith("x-request"))
        return answer.status_code, plain(answer.text, value, who.http.cookies.get("csrftoken", "")), names


World = tuple[Console, People, dict[str, list[str]]]


@pytest.fixture(scope="module")
def world(people: People) -> World:
    """Tenants as of the demonstration, and things of others."""
    people.console.manage("node_create", "first")
    with planting(people.console) as cx:  # no agent runs, but the node may ask for keys
        cx.execute("UPDATE catalog_node SET enrolled_at = now(), state = 'ready' WHERE name = 'first'")
    planted = plant(people.console, max(IDS // 4, ARM))
    return people.console, people, {**planted, "cursor": _cursors(people)}


def askers(console: Console, people: People) -> list[Asker]:
    """One for each role that has no right over other tenants."""
    admin = people.browser("acme-admin")
    member = _member(people)
    node = rows(console, "SELECT id::text FROM catalog_node WHERE name = 'first'")[0][0]
    url = console.url
    ours = rows(console, "SELECT id FROM tenants_tenant WHERE slug = %s", OWN)[0][0]
    every = ("tenant-admin", "tenant-member", "gateway", "operator", "approver", "auditor", "viewer",
             "destructive-operator")  # fmt: skip

    def who(*roles: str, kind: str = "token", scopes: tuple[str, ...] = ()) -> Principal:
        tenant = None if kind == "node" else ours
        return Principal(kind=kind, id="x", roles=frozenset(roles), tenant_id=tenant, scopes=frozenset(scopes))

    own = people.token("acme-admin", "tenant-admin", tenant=OWN, scopes=SCOPES)
    planted = plant_token(console, *every, tenant=ours, scopes=SCOPES)
    holder = plant_token(console, "node", kind="node", holder=node)
    return [
        Asker("tenant-admin", own, admin, who=who("tenant-admin", scopes=SCOPES)),
        Asker("tenant-member", member.pop("token"), member.pop("browser"), who=who("tenant-member")),
        Asker("gateway", people.service(OWN, "gateway", kind="gateway"), who=who("gateway", kind="gateway")),
        Asker("tenant-admin and all else", Caller(url, planted), who=who(*every, scopes=SCOPES)),
        Asker("node", Caller(url, holder), who=who("node", kind="node")),
    ]


def _member(people: People) -> dict[str, Any]:
    """A member of the own tenant, invited by its administrator."""
    admin = people.browser("acme-admin")
    made = admin.post("/people", {"username": "member", "roles": ["tenant-member"]})
    browser = Caller(people.console.url)
    accept(browser, made["invitation"])
    token = browser.post(f"/tenants/{OWN}/tokens", {"name": "own", "roles": ["tenant-member"]})["token"]
    return {"browser": browser, "token": Caller(people.console.url, token)}


@pytest.mark.timeout(900)
def test_foreign_ids_in_every_place_of_every_route_are_answered_as_absent_ones(
    world: World,
) -> None:
    """2,000 foreign ids in path, body, query, relation, filter and socket topic: only the same 404."""
    console, people, planted = world
    own, schema = own_ids(console), httpx.get(f"{console.url}/api/schema", trust_env=False).json()
    sites = [*path_sites(own), *other_sites(own)]
    missing = uncovered(schema, sites)
    assert not missing, missing
    supply = {kind: itertools.cycle(values) for kind, values in planted.items()}
    who, told, wrong = askers(console, people), Counter[int](), list[str]()
    asked, reached = Counter[str](), set[str]()
    same: dict[tuple[str, str], tuple[Any, ...]] = {}
    pairs = list(itertools.product(who, sites))
    browsers = [asker.browser for asker in who if asker.browser]
    topics = sum(asyncio.run(_topics(b, planted["node name"], max(40, IDS // 40))) for b in browsers)
    for asker, site in itertools.islice(itertools.cycle(pairs), max(IDS - topics, len(pairs))):
        at = asker.role, _key(site)
        if at not in same:
            same[at] = asker.ask(site, absent(site.kind))
        answer = asker.ask(site, next(supply[site.kind]))
        told[answer[0]] += 1
        asked[site.kind] += 1
        if asker.may(site) and answer[0] in (404, site.expects):
            reached.add(at[1])
        if answer != same[at] or not _allowed(answer, site, asker):
            wrong.append(f"{asker.role} {site.name} {site.method} {site.path}: {_apart(answer, same[at])}")
    changed = rows(console, "SELECT count(*) FROM tenants_user WHERE username = 'x'")[0][0]
    unreached = [_key(s) for s in sites if not s.page and _open(s) and _key(s) not in reached]
    say("foreign", ids=sum(told.values()) + topics, sites=len(sites), roles=[a.role for a in who], topics=topics,
        statuses=dict(sorted(told.items())), kinds=dict(asked), looked_up=len(reached),
        different=len(wrong))  # fmt: skip
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(w[:1500] for w in wrong[:12])
    assert not unreached, "no role of a tenant came as far as the look-up"
    assert not changed
    assert told[404] > 100
    assert len(browsers) == 2


def _apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """Where two answers differ."""
    lines = zip(one[1].splitlines(), other[1].splitlines(), strict=False)
    found = [f"{a[:300]!r} instead of {b[:300]!r}" for a, b in lines if a != b]
    return f"{one[0]} instead of {other[0]}; {one[2] if one[2] != other[2] else ''} {found[:3] or one[1][:300]}"


def _key(site: Site) -> str:
    return f"{site.name} {site.method} {site.path}"


def _allowed(answer: tuple[Any, ...], site: Site, asker: Asker) -> bool:
    """Refused by role, whatever the id is; who may call gets 404; lists in bodies leave out what is not there."""
    status = answer[0]
    if site.page:
        return status in (*BY_ROLE, 404, site.expects) or (status == 302 and asker.browser is None)
    return status in ((404, site.expects) if asker.may(site) else BY_ROLE)


def _open(site: Site) -> bool:
    """Whether some role of a tenant, or a node, may call it with a token."""
    rule = rule_of(site)
    return rule is not None and not rule.person and not TENANTS.isdisjoint(rule.roles)


def _cursors(people: People) -> list[str]:
    """Cursors of lists of somebody who sees more."""
    operator = people.token("operator", "operator", "viewer")
    lists = ("tenants", "adapters", "people", "share-groups", "models", "operations", "holds", "pins", "deny-windows",
             "decisions")  # fmt: skip
    paths = [f"/{name}?limit=1" for name in lists]
    return [operator.get(path)["next"] for path in paths]


async def _topics(browser: Caller, nodes: list[str], count: int) -> int:
    """So many topics that are there were asked for by a tenant's person, and answered like those that are not."""
    url = str(browser.http.base_url).rstrip("/")
    cookies = "; ".join(f"{k}={v}" for k, v in browser.http.cookies.items())
    fleet = ["tiles", "watermarks", "map:resident", "map:hits", f"tenant:{OTHER}"]
    there = [*fleet, *(f"node:{n}" for n in nodes)][:count]
    mixed = [*there, "nothing", *(f"node:{absent('node name')}" for _ in range(20))]
    random.Random(5).shuffle(mixed)
    async with websockets.connect(
        f"{url.replace('http', 'ws', 1)}/ws/live", origin=url, additional_headers={"Cookie": cookies}, proxy=None
    ) as socket:
        for at in range(0, len(mixed), 20):
            await socket.send(json.dumps({"subscribe": mixed[at : at + 20]}))
            for topic in mixed[at : at + 20]:
                frame = json.loads(await asyncio.wait_for(socket.recv(), 10))
                assert frame == {"topic": topic, "error": "no-such-topic"}, frame
            await asyncio.sleep(0.06)
    return len(there)


# --- time -----------------------------------------------------------------------------


def distance(a: list[float], b: list[float]) -> float:
    """The two-sample Kolmogorov-Smirnov statistic."""
    both = sorted([(x, 0) for x in a] + [(x, 1) for x in b])
    seen, most = [0, 0], 0.0
    for i, (value, side) in enumerate(both):
        seen[side] += 1
        if i + 1 == len(both) or both[i + 1][0] != value:
            most = max(most, abs(seen[0] / len(a) - seen[1] / len(b)))
    return most


def rejects(a: list[float], b: list[float], alpha: float) -> bool:
    """Whether the two samples are of different distributions, at this level (asymptotic bound)."""
    return distance(a, b) * math.sqrt(len(a) * len(b) / (len(a) + len(b))) > math.sqrt(-math.log(alpha / 2) / 2)


def timed(caller: Caller, site: Site, value: str) -> float:
    """Seconds of one call."""
    body = None if site.body is None else json.loads(json.dumps(site.body).replace("<asked>", value))
    content: dict[str, Any] = {"headers": {"Accept": "text/html"}} if site.page else {}
    content |= {} if body is None else {"json": body}
    request = caller.http.build_request(site.method, site.path.replace("<asked>", value), **content)
    begin = time.perf_counter()
    answer = caller.http.send(request)
    spent = time.perf_counter() - begin
    assert answer.status_code == site.expects, (answer.status_code, answer.text[:300])
    return spent


TIMED = (
    Site("tenant in a path", "GET", "/api/v1/tenants/<asked>", "tenant"),
    Site("person in a path", "GET", "/api/v1/people/<asked>", "person"),
    Site("share group in a path", "GET", "/api/v1/share-groups/<asked>", "group"),
    Site("namespace in a query", "GET", "/api/v1/explain-reuse?a=<own>&b=<asked>", "namespace"),
    Site("tenant in a body", "POST", "/api/v1/namespaces:resolve", "tenant", {"tenant": "<asked>", "model": "ref-64"}),
    Site("token by its id", "DELETE", f"/api/v1/tenants/{OWN}/tokens/<asked>", "token"),
    Site("adapter in a body", "POST", "/api/v1/namespaces:resolve", "adapter",
         {"tenant": OWN, "model": "llama-3.1-8b", "adapter": "<asked>"}),
    Site("tenant in a filter", "GET", "/api/v1/people?tenant=<asked>", "tenant"),
    Site("cursor", "GET", "/api/v1/adapters?cursor=<asked>", "cursor", expects=400),
    Site("approval in a path", "GET", "/api/v1/approvals/<asked>", "approval", expects=403),
    Site("tenant's page", "GET", "/t/<asked>", "tenant", page=True),
    Site("person's page", "GET", "/people/<asked>", "person", page=True),
)  # fmt: skip
SHORT = ("tenant in a path", "adapter in a body", "tenant in a filter", "tenant's page")


@pytest.mark.timeout(1800)
def test_foreign_ids_take_as_long_as_absent_ones(world: World) -> None:
    """KS test, n = 2,000 per arm, alpha 0.01; fails only if 3 of 3 runs reject."""
    console, people, planted = world
    own, figures = own_ids(console)["namespace"], {}
    token = people.token("acme-admin", "tenant-admin", tenant=OWN)
    for site in TIMED:
        if not LONG and site.name not in SHORT:
            continue
        site = site._replace(path=site.path.replace("<own>", own))
        caller = people.browser("acme-admin") if site.page else token
        runs = list(itertools.islice(_runs(caller, site, planted[site.kind]), RUNS))
        figures[site.name] = runs
    say("timing", n=ARM, alpha=ALPHA, bound=round(math.sqrt(-math.log(ALPHA / 2) / ARM), 4), **figures)
    assert not [name for name, runs in figures.items() if sum(r["rejects"] for r in runs) == RUNS]


def _runs(caller: Caller, site: Site, foreign: list[str]) -> Iterator[dict[str, Any]]:
    """Runs until one does not reject."""
    for turn in range(RUNS):
        rng = random.Random(turn)
        for _ in range(20):
            timed(caller, site, absent(site.kind))
        arms: tuple[list[float], list[float]] = [], []
        order = [0, 1] * ARM
        rng.shuffle(order)
        supply = itertools.cycle(rng.sample(foreign, len(foreign)))
        for arm in order:
            value = next(supply) if arm else absent(site.kind)
            arms[arm].append(timed(caller, site, value))
        rejected = rejects(*arms, ALPHA)
        mid = [round(sorted(a)[ARM // 2] * 1000, 2) for a in arms]
        yield {"distance": round(distance(*arms), 4), "rejects": rejected, "median_ms_absent_foreign": mid}
        if not rejected:
            return


def test_the_comparison_of_times_can_fail() -> None:
    """A difference of a fifth of the spread is seen with the full size, none is not."""
    rng = random.Random(1)
    one, two = ([rng.gauss(5, 1) for _ in range(2000)] for _ in range(2))
    assert not rejects(one, two, ALPHA)
    assert rejects(one, [x + 0.2 for x in two], ALPHA)
