"""Tenancy, seen from outside: what somebody may, in tokens and open sockets, is what they may now."""

import asyncio
import json
import os
import time
from typing import Any

import pytest
import websockets

from tests.accept.fleet import say
from tests.accept.tenancy import Caller, People

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
    def __init__(self, id_: str, token: Caller, browser: Caller | None = None) -> None:
        self.id, self.token, self.browser = id_, token, browser


def _person(people: People, role: str) -> _Made:
    """A new person of the fleet who has logged in, chosen a password and made a token."""
    operator, name = people.browser("operator"), f"p-{time.monotonic_ns()}"
    body = {"username": name, "roles": [role], "how": "link"}
    person = operator.post("/people", body)
    browser = Caller(people.console.url)
    _accept(browser, person["invitation"])
    token = browser.post("/tenants/platform/tokens", {"name": "own", "roles": [role]})["token"]
    return _Made(person["id"], Caller(people.console.url, token), browser)


def _accept(browser: Caller, link: str) -> None:
    """The invitation is taken: a password is chosen, and the person is in."""
    page = browser.http.get(link, follow_redirects=True)
    password = "a rather long phrase 4711"
    fields = {"password1": password, "password2": password, "csrfmiddlewaretoken": browser.http.cookies["csrftoken"]}
    answer = browser.http.post(str(page.url), data=fields, headers={"Referer": str(page.url)})
    assert answer.status_code == 302, (answer.status_code, answer.text[-2500:])


def _service(people: People, tenant: str) -> _Made:
    """A service account of a tenant with its token."""
    operator = people.browser("operator")
    fields = {"username": f"s-{time.monotonic_ns()}", "tenant": tenant, "kind": "service", "roles": ["gateway"]}
    owner = operator.post("/people", fields)["id"]
    body = {"name": "accept", "owner": owner, "kind": "gateway", "roles": ["gateway"]}
    made = operator.post(f"/tenants/{tenant}/tokens", body)["token"]
    return _Made(owner, Caller(people.console.url, made))
