"""Answers `POST /api/v1/namespaces:resolve` for namespaces that are there, before Django is asked.

A gateway asks with every request, and a Django view costs twenty times as much as the answer. What the view has just
found out is remembered for at most `HARD_SECONDS`: who called, what the database said of tenant and model, the
namespace. The same rules (`services.namespace`) then give the same answer; what is not remembered of a caller who is,
is looked up in the caller's context. Whatever is not plain (a refusal, a new namespace, a share group, a subject, an
Idempotency-Key, a rehearsal) goes to the view, which also sees one call in every `SOFT_SECONDS` of each caller. So
nothing is decided here, and nothing older than the second that fences and rights allow is told.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from django.db import DatabaseError, connections
from django.http import HttpRequest

from kvconsole.infra.access import Principal, tenant_context
from kvconsole.infra.rest import Problem, etag
from kvconsole.infra.sql import uuid7
from tenants.bodies import namespace_answer
from tenants.models import Namespace
from tenants.services import resolved
from tenants.services.namespace import namespace_find, namespace_remembered
from tenants.whole import lately_whole

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[..., Awaitable[None]]
Admit = Callable[[Principal], dict[str, str] | None]
PATH = "/api/v1/namespaces:resolve"
MOST_BYTES = 4096
FIELDS = {"tenant": 63, "model": 200, "adapter": 128, "data_class": 63, "label": 200, "session": 200, "request": 200}
"""Fields of the plain form of the body, with how long they may be."""
SAME = ("authorization", "host", "accept", "x-forwarded-for", "x-forwarded-proto", "forwarded", "origin")
"""Headers by which the middleware judges a call: only with the same values is it the same caller."""
NEVER = frozenset({b"cookie", b"idempotency-key", b"content-encoding", b"if-match", b"x-http-method-override"})
"""Headers of calls that are not plain."""
_encode = msgspec.json.Encoder().encode
_threads = ThreadPoolExecutor(2, thread_name_prefix="resolve")
"""Few: each has a connection of its own."""


class Hot:
    """ASGI: answers what it may, hands everything else on as it came."""

    def __init__(self, app: App, *, admit: Admit) -> None:
        """`admit` charges a call to its principal: the headers that tell what is left, or None: the view decides."""
        self.app, self.admit = app, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST" or scope["query_string"]:
            return await self.app(scope, receive, send)
        messages = [await receive()]
        if messages[0]["type"] == "http.request" and not messages[0].get("more_body"):
            answer = await self._answer(scope, messages[0].get("body", b""))
            if answer is not None:
                body, headers = answer
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                return await send({"type": "http.response.body", "body": body})

        async def again() -> MutableMapping[str, Any]:
            return messages.pop() if messages else await receive()

        return await self.app(scope, again, send)

    async def _answer(self, scope: Scope, body: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = f"{headers[name].decode('latin1')},".encode("latin1") + value if name in headers else value
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json" or len(body) > MOST_BYTES or not NEVER.isdisjoint(headers):
            return None
        now, client = resolved.clock(), scope.get("client")
        key = _key(str(client[0] if client else ""), [headers.get(n.encode(), b"") for n in SAME])
        caller: Principal | None = resolved.callers.get(key, now=now)
        fields = plain(body) if caller else None
        if caller is None or fields is None or not lately_whole():
            return None
        found = namespace_remembered(**fields, actor=caller, now=now)
        if found is None:
            found = await asyncio.get_running_loop().run_in_executor(_threads, _look, caller, fields)
        left = self.admit(caller) if found is not None else None
        if found is None or left is None:
            return None
        given = headers.get(b"x-request-id", b"").decode("latin1")
        told = namespace_answer(found)
        raw = _encode(told)
        more = {
            "Content-Type": "application/json",
            "Content-Length": str(len(raw)),
            "X-Request-ID": given if given.isascii() and given.isalnum() and len(given) <= 64 else str(uuid7()),
            "ETag": etag(told),
            "X-Content-Type-Options": "nosniff",
            **left,
        }
        return raw, [(name.lower().encode(), value.encode("latin1")) for name, value in more.items()]


def _look(caller: Principal, fields: dict[str, str]) -> Namespace | None:
    """The namespace if it is there, as the database shows it to the caller; a refusal is the view's to word."""
    try:
        with tenant_context(caller):
            return namespace_find(**fields, actor=caller)
    except Problem:
        return None
    except DatabaseError:
        connections.close_all()  # of this thread
        return None


def plain(body: bytes) -> dict[str, str] | None:
    """The fields of a body in its plain form: one object of known fields, each once, each a clean short text."""
    try:
        pairs = json.loads(body.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, tuple) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
        return None
    fields = dict(pairs)
    if len(fields) != len(pairs) or not FIELDS.keys() >= fields.keys() or not fields.get("tenant"):
        return None
    clean = all(
        isinstance(v, str) and len(v) <= FIELDS[n] and v.isprintable() and v == v.strip() for n, v in fields.items()
    )
    return fields if clean and fields.get("model") else None


def remember(request: HttpRequest, caller: Principal) -> None:
    """This caller may resolve, as the middleware has just found; called by the view."""
    meta = request.META
    if meta.get("HTTP_AUTHORIZATION") and not meta.get("HTTP_COOKIE"):
        values = [str(meta.get(f"HTTP_{n.upper().replace('-', '_')}", "")).encode("latin1") for n in SAME]
        resolved.callers.keep(_key(str(meta.get("REMOTE_ADDR", "")), values), caller, asked=resolved.clock())


def _key(client: str, values: list[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in (client.encode(), *values):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()
