"""Tenancy, seen from outside: what somebody may, in tokens and open sockets, is what they may now."""

import asyncio
import json
import os
import time
from typing import Any

import pytest
import websockets

from tests.accept.fleet import say
from tests.accept.tenancy import Caller, People, accept

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
TOKEN_SECONDS, SOCKET_SECONDS = 60, 30
TOPICS = ["tiles", "watermarks"]


def ends(caller: Caller, method: str, path: str, body: Any = None) -> tuple[float, int]:
    """(seconds until a call that was good is refused, status of the refusal), asked again and again."""
    start = time.monotonic()
    while (answer := caller(method, path, body)).status_code < 300:
        assert time.monotonic() - start < TOKEN_SECONDS, f"{path} is still answered after {TOKEN_SECONDS} s"
        time.sleep(0.02)
    return round(time.monotonic() - start, 2), answer.status_code


async def socket_of(browser: Caller, topics: list[str]) -> Any:
    """A socket of the person's session on which all the topics have begun."""
    url = str(browser.http.base_url).rstrip("/")
    cookies = "; ".join(f"{k}={v}" for k, v in browser.http.cookies.items())
    socket = await websockets.connect(
        f"{url.replace('http', 'ws', 1)}/ws/live", origin=url, additional_headers={"Cookie": cookies}, proxy=None
    )
    await socket.send(json.dumps({"subscribe": topics}))
    begun: set[str] = set()
    while begun < set(topics):
        frame = json.loads(await asyncio.wait_for(socket.recv(), 15))
        assert "error" not in frame, frame
        begun.add(frame["topic"])
    return socket


async def over(socket: Any, topics: list[str], since: float) -> float:
    """Seconds until nothing of the topics comes any more: each was ended, or the socket was."""
    open_ = set(topics)
    try:
        async with asyncio.timeout(SOCKET_SECONDS + 15):
            while open_:
                frame = json.loads(await socket.recv())
                if "error" in frame:
                    open_.discard(frame["topic"])
    except websockets.ConnectionClosed:
        pass
    return round(time.monotonic() - since, 1)


@pytest.mark.timeout(300)
def test_a_token_cannot_do_what_its_owner_lost_the_right_to_nor_can_an_open_socket(people: People) -> None:
    """Roles taken, a suspension, a removal: tokens end within 60 s, sockets within 30 s."""
    figures = asyncio.run(_rights(people))
    say("rights", token_limit=TOKEN_SECONDS, socket_limit=SOCKET_SECONDS, **figures)
    assert all(status in (401, 403) for _, status in figures["tokens"].values())
    assert all(seconds <= TOKEN_SECONDS for seconds, _ in figures["tokens"].values())
    assert all(seconds <= SOCKET_SECONDS for seconds in figures["sockets"].values())


async def _rights(people: People) -> dict[str, Any]:
    """What becomes of three people's tokens and sockets."""
    operator, tenant = people.browser("operator"), "acme-code"
    ways = {"roles taken": {"roles": []}, "suspended": {"suspended": True}, "removed": None}
    made, sockets, tokens = {}, {}, {}
    for way in ways:
        made[way] = _person(people, "viewer")
        sockets[way] = await socket_of(made[way].browser, TOPICS)
    lost = _service(people, tenant)
    resolve = {"tenant": tenant, "model": "ref-64"}
    for _ in range(5):  # often enough to be answered from memory
        lost.token.post("/namespaces:resolve", resolve)
    begun, waiting = {}, {}
    for way, body in ways.items():
        path, call = f"/people/{made[way].id}", operator
        answer = call("DELETE", path) if body is None else call("PATCH", path, body, **{"If-Match": "*"})
        assert answer.status_code < 300, answer.text
        begun[way] = time.monotonic()
        tokens[way] = ends(made[way].token, "GET", "/tenants")
        waiting[way] = asyncio.create_task(over(sockets[way], TOPICS, begun[way]))
    answer = operator("PATCH", f"/people/{lost.id}", {"suspended": True}, **{"If-Match": "*"})
    assert answer.status_code == 200, answer.text
    tokens["resolve, suspended"] = ends(lost.token, "POST", "/namespaces:resolve", resolve)
    found = {way: await task for way, task in waiting.items()}
    for socket in sockets.values():
        await socket.close()
    return {"tokens": tokens, "sockets": found}


class _Made:
    def __init__(self, id_: str, token: Caller, browser: Caller | None = None, token_id: str = "") -> None:
        self.id, self.token, self.browser, self.token_id = id_, token, browser, token_id


def _person(people: People, *roles: str, tenant: str = "") -> _Made:
    """A new person who has logged in, chosen a password and made a token with all their roles."""
    operator, name = people.browser("operator"), f"p-{time.monotonic_ns()}"
    body = {"username": name, "roles": list(roles), "how": "link", "tenant": tenant}
    person = operator.post("/people", body)
    browser = Caller(people.console.url)
    accept(browser, person["invitation"])
    made = browser.post(f"/tenants/{tenant or 'platform'}/tokens", {"name": "own", "roles": list(roles)})
    return _Made(person["id"], Caller(people.console.url, made["token"]), browser, made["id"])


def _service(people: People, tenant: str) -> _Made:
    """A service account of a tenant with its token."""
    operator = people.browser("operator")
    fields = {"username": f"s-{time.monotonic_ns()}", "tenant": tenant, "kind": "service", "roles": ["gateway"]}
    owner = operator.post("/people", fields)["id"]
    body = {"name": "accept", "owner": owner, "kind": "gateway", "roles": ["gateway"]}
    made = operator.post(f"/tenants/{tenant}/tokens", body)["token"]
    return _Made(owner, Caller(people.console.url, made))


@pytest.mark.timeout(300)
def test_within_a_tenant_what_somebody_may_is_what_they_may_now(people: People) -> None:
    """An administrator is one no longer, somebody is suspended, a token is revoked, the tenant is closed."""
    operator, slug = people.browser("operator"), f"rights-{time.monotonic_ns()}"
    operator.post("/tenants", {"slug": slug, "name": "Rights", "isolation": "shared"})
    admin, member, third = (_person(people, role, tenant=slug) for role in ("tenant-admin", *["tenant-member"] * 2))
    assert admin.browser is not None
    assert member.browser is not None
    found: dict[str, tuple[float, int]] = {}
    _now(operator("PATCH", f"/people/{admin.id}", {"roles": ["tenant-member"]}, **{"If-Match": "*"}))
    found["administrator's token"] = ends(admin.token, "GET", "/people")
    found["administrator's session"] = ends(admin.browser, "GET", "/people")
    assert admin.browser("GET", f"/tenants/{slug}").status_code == 200, "a member still"
    _now(operator("PATCH", f"/people/{member.id}", {"suspended": True}, **{"If-Match": "*"}))
    found["suspended one's token"] = ends(member.token, "GET", f"/tenants/{slug}")
    found["suspended one's session"] = ends(member.browser, "GET", f"/tenants/{slug}")
    _now(operator("DELETE", f"/tenants/{slug}/tokens/{third.token_id}"))
    found["revoked token"] = ends(third.token, "GET", f"/tenants/{slug}")
    service = _service(people, slug)
    assert service.token("GET", "/me").status_code == 200
    destroyer = _person(people, "viewer", "operator")
    _now(people.browser("approver")("PATCH", f"/people/{destroyer.id}",
         {"roles": ["viewer", "operator", "destructive-operator"]}, **{"If-Match": "*"}))  # fmt: skip
    assert destroyer.browser is not None
    _now(destroyer.browser("DELETE", f"/tenants/{slug}"))
    found["closed tenant's token"] = ends(service.token, "GET", "/me")
    found["closed tenant's session"] = ends(admin.browser, "GET", f"/tenants/{slug}")
    say("rights_within", limit=TOKEN_SECONDS, **found)
    assert all(status in (401, 403, 404) for _, status in found.values())
    assert all(seconds <= TOKEN_SECONDS for seconds, _ in found.values())


def _now(answer: Any) -> None:
    """It is done."""
    assert answer.status_code < 300, answer.text


@pytest.mark.timeout(300)
def test_a_role_that_is_taken_ends_its_topics_on_the_open_socket_and_no_others(people: People) -> None:
    """Not the viewer's: an operator without any other role hears nothing more; who keeps one role hears on."""
    seconds, closed, still = asyncio.run(_topics(people))
    say("rights_topics", seconds=seconds, limit=SOCKET_SECONDS)
    assert seconds <= SOCKET_SECONDS
    assert not closed, "the socket stays, its topics do not"
    assert still, "one role less, and the other one still opens them"


async def _topics(people: People) -> tuple[float, bool, bool]:
    """(seconds until the topics had ended, whether the socket had too, whether who kept a role hears them still)."""
    operator, topics = people.browser("operator"), ["tiles", "watermarks", "map:resident"]
    one, two = _person(people, "operator"), _person(people, "operator", "auditor")
    first, second = await socket_of(one.browser, topics), await socket_of(two.browser, topics)
    _now(operator("PATCH", f"/people/{two.id}", {"roles": ["auditor"]}, **{"If-Match": "*"}))
    _now(operator("PATCH", f"/people/{one.id}", {"roles": []}, **{"If-Match": "*"}))
    seconds = await over(first, topics, time.monotonic())
    closed = first.close_code is not None
    await second.send(json.dumps({"unsubscribe": ["tiles"]}))
    await second.send(json.dumps({"subscribe": ["tiles"]}))
    still = False
    async with asyncio.timeout(15):
        while not still:
            frame = json.loads(await second.recv())
            assert "error" not in frame, frame
            still = frame["topic"] == "tiles"
    for socket in (first, second):
        await socket.close()
    return seconds, closed, still
