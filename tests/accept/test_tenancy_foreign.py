"""Tenancy, seen from outside: what is not yours is not there, in what is answered and in how long that takes."""

import asyncio
import itertools
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import websockets

from tests.accept.fleet import rows, say
from tests.accept.foreign import OTHER, OWN, Site, absent, other_sites, own_ids, path_sites, plant, uncovered
from tests.accept.tenancy import Caller, People, plain, plant_token
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
IDS = 2000 if LONG else 700
ARM = 2000 if LONG else 150
ALPHA, RUNS = 0.01, 3
BY_ROLE = (401, 403, 405)


class Asker:
    """Somebody of the own tenant, or a node: by token to the API, by session to pages."""

    def __init__(self, role: str, api: Caller, browser: Caller | None = None) -> None:
        self.role, self.api, self.browser = role, api, browser

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
        answer = who.http.request(site.method, path, headers=headers, **content)
        names = sorted(k for k in answer.headers if not k.startswith("x-request"))
        return answer.status_code, plain(answer.text, value, who.http.cookies.get("csrftoken", "")), names


World = tuple[Console, People, dict[str, list[str]]]


@pytest.fixture(scope="module")
def world(people: People) -> World:
    """Tenants as of the demonstration, and things of others."""
    people.console.manage("node_create", "first")
    return people.console, people, plant(people.console, max(IDS // 4, ARM))


def askers(console: Console, people: People) -> list[Asker]:
    """One for each role that has no right over other tenants."""
    admin = people.browser("acme-admin")
    member = _member(people)
    node = rows(console, "SELECT id::text FROM catalog_node WHERE name = 'first'")[0][0]
    scopes = ["*:read", "*:write", "people:manage", "people:destroy", "tokens:manage", "share-groups:destroy"]
    url = console.url
    ours = rows(console, "SELECT id FROM tenants_tenant WHERE slug = %s", OWN)[0][0]
    return [
        Asker("tenant-admin", people.token("acme-admin", "tenant-admin", tenant=OWN, scopes=scopes), admin),
        Asker("tenant-member", member.pop("token"), member.pop("browser")),
        Asker("gateway", people.service(OWN, "gateway", kind="gateway")),
        Asker("tenant-admin and all else", Caller(url, plant_token(console, "tenant-admin", "tenant-member", "gateway",
              "operator", "approver", "auditor", "viewer", "destructive-operator", tenant=ours, scopes=scopes))),
        Asker("node", Caller(url, plant_token(console, "node", kind="node", holder=node))),
    ]  # fmt: skip


def _member(people: People) -> dict[str, Any]:
    """A member of the own tenant, invited by its administrator."""
    admin = people.browser("acme-admin")
    made = admin.post("/people", {"username": "member", "roles": ["tenant-member"]})
    browser, password = Caller(people.console.url), "a rather long phrase 4711"
    page = browser.http.get(made["invitation"], follow_redirects=True)
    fields = {"password1": password, "password2": password, "csrfmiddlewaretoken": browser.http.cookies["csrftoken"]}
    assert browser.http.post(str(page.url), data=fields, headers={"Referer": str(page.url)}).status_code == 302
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
    planted["cursor"] = _cursors(console, people)
    supply = {kind: itertools.cycle(values) for kind, values in planted.items()}
    who, told, wrong = askers(console, people), Counter[int](), list[str]()
    asked = Counter[str]()
    same: dict[tuple[str, Site], tuple[Any, ...]] = {}
    pairs = list(itertools.product(who, [s for s in sites]))
    topics = asyncio.run(_topics(people.browser("acme-admin"), planted["node name"], max(40, IDS // 20)))
    for asker, site in itertools.islice(itertools.cycle(pairs), max(IDS - topics, len(pairs))):
        at = asker.role, _key(site)
        if at not in same:
            same[at] = asker.ask(site, absent(site.kind))
        answer = asker.ask(site, next(supply[site.kind]))
        told[answer[0]] += 1
        asked[site.kind] += 1
        if answer != same[at] or not _allowed(answer, site, asker):
            wrong.append(f"{asker.role} {site.name} {site.method} {site.path}: {_apart(answer, same[at])}")
    changed = rows(console, "SELECT count(*) FROM tenants_user WHERE username = 'x'")[0][0]
    say("foreign", ids=sum(told.values()) + topics, sites=len(sites), roles=[a.role for a in who], topics=topics,
        statuses=dict(sorted(told.items())), kinds=dict(asked), different=len(wrong))  # fmt: skip
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(w[:1500] for w in wrong[:12])
    assert not changed
    assert told[404] > 100


def _apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """Where two answers differ."""
    lines = zip(one[1].splitlines(), other[1].splitlines(), strict=False)
    found = [f"{a[:300]!r} instead of {b[:300]!r}" for a, b in lines if a != b]
    return f"{one[0]} instead of {other[0]}; {one[2] if one[2] != other[2] else ''} {found[:3] or one[1][:300]}"


def _key(site: Site) -> str:
    return f"{site.name} {site.method} {site.path}"


def _allowed(answer: tuple[Any, ...], site: Site, asker: Asker) -> bool:
    """Refused by role, whatever the id is, or 404; calls with lists in bodies leave out what is not there."""
    status = answer[0]
    return status in (*BY_ROLE, 404, site.expects) or (site.page and status == 302 and asker.browser is None)


def _cursors(console: Console, people: People) -> list[str]:
    """Cursors of lists of somebody who sees more."""
    operator = people.token("operator", "operator", "viewer")
    paths = ("/tenants?limit=1", "/adapters?limit=1", "/people?limit=1", "/share-groups?limit=1", "/models?limit=1")
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
    content = {} if body is None else {"json": body}
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
)


@pytest.mark.timeout(1800)
def test_foreign_ids_take_as_long_as_absent_ones(world: World) -> None:
    """KS test, n = 2,000 per arm, alpha 0.01; fails only if 3 of 3 runs reject."""
    console, people, planted = world
    own, figures = own_ids(console)["namespace"], {}
    caller = people.token("acme-admin", "tenant-admin", tenant=OWN)
    for site in TIMED if LONG else TIMED[:1] + TIMED[3:5]:
        site = site._replace(path=site.path.replace("<own>", own))
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
