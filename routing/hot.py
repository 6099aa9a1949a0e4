"""Decides what a router takes in over HTTP: who speaks, how large it may be, and what is answered when.

Raw ASGI, because a framework would cost ten times what the decision does. What is known is answered in the event loop
without a thread or a query; what is asked for the first time is resolved in a thread. Called by `manage.py router`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import Error

from kvconsole.infra.access import Principal, counted
from kvconsole.infra.addresses import origin
from kvconsole.infra.sql import PLATFORM, uuid7
from routing import meters
from routing.answers import Answer
from routing.asks import JSON, MSGPACK, Wanted, wanted
from routing.callers import Callers, leave
from routing.codes import Refusal
from routing.deciding import Asked, Router
from routing.foreign import Hindsight, report
from routing.namespaces import Place
from routing.outcomes import Outcomes, outcome_of
from routing.recorder import Refused

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]

LEARNERS = 2
READ_SECONDS, LEARN_SECONDS = 20.0, 2.0
"""How long a body may take, and how long a request waits for its namespace; then it is answered without."""
BODY_BYTES, SMALL_BYTES, READING_BYTES = 4 * 2**20, 64 * 2**10, 128 * 2**20
ROUTE, DECISIONS, OUTCOME = "/api/v1/route", "/api/v1/decisions", "/outcome"
ASKERS = ("gateway", "tenant-admin", "tenant-member", "operator")
RULES = {
    "route": counted(*ASKERS, scope="route:write"),
    "decisions": counted("gateway", "operator", scope="decisions:write"),
    "outcome": counted("gateway", scope="decisions:write"),
}
"""Who may call what; none of these changes intent, so they are counted and not audited."""
_json, _packed = msgspec.json.Encoder().encode, msgspec.msgpack.Encoder().encode


class Gone(Exception):
    """The other side closed the connection; nobody is answered."""


class Hot:
    """The ASGI application in front of one router."""

    def __init__(self, router: Router, *, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """`begin` and `end` start and stop what the router decides from; `begin` is called in the event loop."""
        self.router, self.begin, self.end = router, begin, end
        self.callers, self.outcomes = Callers(), Outcomes(router.recorder)
        self.learners = ThreadPoolExecutor(LEARNERS, "namespaces")
        self.reading = 0
        self._learning: dict[tuple[Any, ...], asyncio.Future[Place]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        started = time.monotonic()
        headers = {k.lower(): v for k, v in scope["headers"]}
        try:
            await self._dispatch(scope, headers, receive, send, started)
        except Gone:
            return
        except Refusal as e:
            meters.REFUSED.labels(e.code).inc()
            await _problem(send, headers, e)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.begin()
                await send({"type": "lifespan.startup.complete"})
                continue
            await asyncio.to_thread(self.end)
            await asyncio.to_thread(self.close)
            await send({"type": "lifespan.shutdown.complete"})
            return

    def close(self) -> None:
        """No thread of requests runs, and none left a connection open."""
        self.callers.close()
        self.outcomes.close()
        leave(self.learners, LEARNERS)

    # ------------------------------------------------------------------ routes
    async def _dispatch(self, scope: Scope, headers: Headers, receive: Receive, send: Send, started: float) -> None:
        path, method = scope["path"], scope["method"]
        if path in ("/healthz", "/readyz", "/metrics"):
            if method not in ("GET", "HEAD"):
                raise Refusal("method-not-allowed", "GET, HEAD")
            await self._plain(path, send)
            return
        name = "route" if path == ROUTE else "decisions" if path == DECISIONS else ""
        if path.startswith(f"{DECISIONS}/") and path.endswith(OUTCOME):
            name = "outcome"
        if not name:
            raise Refusal("not-found")
        if method != "POST":
            raise Refusal("method-not-allowed", "POST")
        principal = await self._caller(scope, headers, name)
        body = await self._body(headers, receive, SMALL_BYTES if name == "outcome" else BODY_BYTES)
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if name == "route":
            answer: Any = await self._route(body, kind, principal, started)
        elif name == "decisions":
            answer = await self._foreign(body, kind, principal, started)
        else:
            answer = await self._outcome(path, body, kind, principal)
        encoded = _packed(answer) if kind == MSGPACK else _json(answer)
        await _respond(send, 200, encoded, MSGPACK if kind == MSGPACK else JSON)
        meters.SECONDS.labels(name).observe(time.monotonic() - started)

    async def _caller(self, scope: Scope, headers: Headers, name: str) -> Principal:
        client = scope.get("client")
        forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
        address = origin(client[0] if client else "", forwarded)
        header = headers.get(b"authorization", b"")
        principal = self.callers.at_once(header, address) or await self.callers.caller(header, address)
        if code := RULES[name].refusal(principal, time.time()):
            raise Refusal(code)
        return principal

    async def _route(self, body: bytes, kind: bytes, principal: Principal, started: float) -> Answer:
        gateway = principal.kind == "gateway"
        asked = wanted(body, kind, gateway=gateway)
        if not asked.key[0]:
            asked = msgspec.structs.replace(asked, key=(principal.tenant_slug, *asked.key[1:]))
        if not asked.key[0]:
            raise Refusal("validation-failed", "Say whose request it is.", pointer="/tenant")
        holder = principal.holder or principal.id
        try:
            place = await self.place(principal, asked)
            text, trusted = bytes if kind == MSGPACK else bytes.hex, gateway and principal.tenant_id is None
            return self.router.route(asked, place, Asked(gateway, holder, text, trusted), started)
        except Refusal as e:
            if e.code != "no-candidates":  # that one is recorded with all it was made from
                self._refused(principal, asked, holder, e.code)
            raise

    async def place(self, principal: Principal, asked: Wanted) -> Place:
        """The namespace of the request; while it cannot be asked for, none in which anything is found or shared.

        Raises:
            Refusal: there is none for this caller, or unavailable: nothing is known of its tenant or model either.
        """
        known, standing = self.router.standing.namespaces, self.router.standing
        plane = principal.tenant_id
        place = known.find(plane, asked.key)
        if place is not None and not self.router.fenced(place):
            return place
        if not standing.away:
            try:
                return await asyncio.wait_for(asyncio.shield(self._learn(principal, asked)), LEARN_SECONDS)
            except (Error, TimeoutError):
                standing.away_until = time.monotonic() + 1.0
        place = known.stand_in(plane, asked.key)
        if place is None:
            raise Refusal("unavailable", "It cannot be asked whose request this is.", retry=1)
        return place

    def _learn(self, principal: Principal, asked: Wanted) -> "asyncio.Future[Place]":
        """One question at a time for a namespace, however many wait for the answer."""
        key = (principal.tenant_id, *asked.key)
        asking = self._learning.get(key)
        if asking is None:
            loop, learn = asyncio.get_running_loop(), self.router.standing.namespaces.learn
            asking = self._learning[key] = loop.run_in_executor(self.learners, learn, principal, asked.key)
            asking.add_done_callback(lambda done: (self._learning.pop(key, None), done.cancelled() or done.exception()))
        return asking

    def _refused(self, principal: Principal, asked: Wanted, holder: str, code: str) -> None:
        self.router.recorder.refuse(
            Refused(id=uuid7(), at=datetime.now(UTC), tenant_id=principal.tenant_id or PLATFORM, model=asked.key[1],
                    holder=holder, code=code, mode=self.router.replica.mode, prompt_tokens=asked.prompt_tokens or 0)
        )  # fmt: skip

    async def _foreign(self, body: bytes, kind: bytes, principal: Principal, started: float) -> Hindsight:
        told, asked = report(body, kind)
        if not asked.key[0]:
            raise Refusal("validation-failed", "Say whose request it was.", pointer="/tenant")
        place = await self.place(principal, asked)
        return self.router.hindsight(told, asked, place, principal.holder or principal.id)

    async def _outcome(self, path: str, body: bytes, kind: bytes, principal: Principal) -> dict[str, bool]:
        try:
            decision = UUID(path[len(DECISIONS) + 1 : -len(OUTCOME)])
        except ValueError:
            raise Refusal("not-found") from None
        told = outcome_of(body, kind, now=datetime.now(UTC))
        await self.outcomes.take(decision, principal.holder or principal.id, told)
        return {"taken": True}

    # ------------------------------------------------------------------ bytes
    async def _body(self, headers: Headers, receive: Receive, most: int) -> bytes:
        said = headers.get(b"content-length")
        if said is not None and (not said.isdigit() or len(said) > 20 or int(said) > most):
            raise Refusal("body-too-large", f"At most {most} bytes.")
        first = await receive()
        if first["type"] == "http.request" and not first.get("more_body") and len(first.get("body", b"")) <= most:
            whole: bytes = first.get("body", b"")
            return whole
        return await self._rest(first, receive, most)

    async def _rest(self, message: Mapping[str, Any], receive: Receive, most: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(READ_SECONDS):
                while True:
                    if message["type"] == "http.disconnect":
                        raise Gone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self.reading += len(chunk)
                    if size > most:
                        raise Refusal("body-too-large", f"At most {most} bytes.")
                    if self.reading > READING_BYTES:  # many that began together grow together
                        raise Refusal("unavailable", "Too many bodies at once.", retry=1)
                    chunks.append(chunk)
                    if not message.get("more_body"):
                        return b"".join(chunks)
                    message = await receive()
        except TimeoutError:
            raise Refusal("body-too-slow") from None
        finally:
            self.reading -= size

    async def _plain(self, path: str, send: Send) -> None:
        if path == "/healthz":
            await _respond(send, 200, b'{"status":"ok"}', JSON)
        elif path == "/metrics":
            await _respond(send, 200, meters.text(self.router), b"text/plain; version=0.0.4; charset=utf-8")
        else:
            status, body = self.router.readiness()
            await _respond(send, status, _json(body), JSON)


async def _respond(
    send: Send, status: int, body: bytes, kind: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *(extra or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _problem(send: Send, headers: Headers, e: Refusal) -> None:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    request_id = given if 0 < len(given) <= 64 and given.isascii() and given.isprintable() else str(uuid7())
    errors = [{"pointer": e.pointer, "code": e.code, "detail": e.detail or e.title}] if e.pointer else []
    body: dict[str, Any] = {
        "type": f"/docs/problems/{e.code}",
        "title": e.title,
        "status": e.status,
        "detail": e.detail or e.title,
        "code": e.code,
        "request_id": request_id,
        "errors": errors,
    }
    extra = [(b"x-request-id", request_id.encode())]
    if e.retry is not None:
        body["retry_after_seconds"] = e.retry
        extra.append((b"retry-after", str(max(1, round(e.retry))).encode()))
    if e.status == 401:
        extra.append((b"www-authenticate", b'Bearer realm="kv-console"'))
    if e.status == 405:
        extra.append((b"allow", e.detail.encode()))
    if e.status == 413:
        extra.append((b"connection", b"close"))
    await _respond(send, e.status, _json(body), b"application/problem+json", extra)
