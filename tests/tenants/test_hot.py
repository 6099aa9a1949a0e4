"""The short way of resolving: what it must leave to the view, then that it says what the view says."""

import asyncio
import json

import pytest
from django.db import connections

from tenants import hot, services
from tenants.services import resolved
from tests.tenants.making import a_model, a_namespace, a_tenant, principal

TOKEN = b"Bearer kvc_service_x"


@pytest.fixture(autouse=True)
def _forgotten():
    resolved.forget()
    yield
    resolved.forget()


class View:
    """Stands for everything behind the short way."""

    def __init__(self):
        self.bodies = []

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"view"})


def ask(app, body, *, headers=(), parts=None, only=None, **scope):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    pieces = parts or [raw]
    queue = [{"type": "http.request", "body": p, "more_body": i < len(pieces) - 1} for i, p in enumerate(pieces)]
    sent = []

    async def receive():
        return queue.pop(0)

    async def send(message):
        sent.append(message)

    given = [(b"content-type", b"application/json"), (b"authorization", TOKEN), (b"host", b"h"), *headers]
    place = {"type": "http", "method": "POST", "path": hot.PATH, "query_string": b"", "headers": only or given,
             "client": ("127.0.0.1", 1), **scope}  # fmt: skip
    asyncio.run(app(place, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


class Seen:
    """A request as the view has it."""

    def __init__(self, **meta):
        self.META = {"HTTP_AUTHORIZATION": TOKEN.decode(), "HTTP_HOST": "h", "REMOTE_ADDR": "127.0.0.1", **meta}


@pytest.fixture
def warm(db, monkeypatch):
    monkeypatch.setattr(hot, "_look", lambda caller, fields: None)  # another connection sees nothing of this test
    tenant, model = a_tenant(erasure_scope="session", classes=["a"]), a_model()
    who = principal(tenant, "gateway")
    body = {"tenant": tenant.slug, "model": model.name, "session": "s"}
    for _ in "ab":
        found = services.namespace_resolve(**body, actor=who)
    hot.remember(Seen(), who)
    view = View()
    return hot.Hot(view, admit=lambda who: {"RateLimit": "x"}), view, body, found, who


def test_what_is_not_plain_is_the_views_with_its_whole_body(warm):
    app, view, body, *_ = warm
    raw = json.dumps(body).encode()
    for change in (
        {"method": "GET"}, {"path": "/api/v1/models"}, {"query_string": b"validate_only=true"},
        {"headers": [(b"idempotency-key", b"k")]}, {"headers": [(b"cookie", b"c")]},
        {"headers": [(b"x-forwarded-for", b"1.2.3.4")]}, {"headers": [(b"accept", b"text/html")]},
        {"headers": [(b"authorization", b"Bearer other")]}, {"headers": [(b"content-type", b"text/plain")]},
        {"client": ("127.0.0.2", 1)}, {"parts": [raw[:5], raw[5:]]},
    ):  # fmt: skip
        assert ask(app, body, **change)[0] == 299
        assert view.bodies[-1] == raw
    for other in (
        b"", b"[]", b"null", b"\xff", b'{"tenant": 1}', raw[:-1] + b', "tenant": "x"}', raw[:-1] + b', "subject": "p"}',
        raw[:-1] + b', "label": "a\\u0000"}', raw[:-1] + b', "label": " a"}', raw[:-1] + b', "data_class": "b"}',
        raw[:-1] + b', "share_group": "g"}', json.dumps({**body, "label": "x" * 201}).encode(),
        json.dumps({**body, "model": ""}).encode(), json.dumps({**body, "session": "new"}).encode(), b"[" * 4000,
    ):  # fmt: skip
        assert ask(app, other)[0] == 299, other
        assert view.bodies[-1] == other


def test_it_says_what_the_view_says(warm):
    app, view, body, found, _ = warm
    status, headers, raw = ask(app, body, headers=[(b"x-request-id", b"r1")])
    assert (status, view.bodies) == (200, [])
    assert json.loads(raw)["namespace"] == str(found.id)
    assert headers[b"x-request-id"] == b"r1"
    assert headers[b"ratelimit"] == b"x"
    assert headers[b"content-length"] == str(len(raw)).encode()


def test_whoever_has_nothing_left_is_refused_by_the_view(warm):
    _, view, body, *_ = warm
    assert ask(hot.Hot(view, admit=lambda who: None), body)[0] == 299


def test_what_is_old_is_asked_anew(warm, monkeypatch):
    app, _, body, *_ = warm
    at = resolved.clock()
    monkeypatch.setattr(resolved, "clock", lambda: at + resolved.SOFT_SECONDS)
    assert [ask(app, body)[0] for _ in range(5)].count(299) >= 1
    monkeypatch.setattr(resolved, "clock", lambda: at + resolved.HARD_SECONDS)
    assert {ask(app, body)[0] for _ in range(5)} == {299}


def test_memory_is_bounded_and_sends_one_caller_to_ask(monkeypatch):
    monkeypatch.setattr(resolved, "MOST", 2)
    memory = resolved.Memory()
    memory.keep("a", 1, asked=0.0)
    later = resolved.SOFT_SECONDS
    assert [memory.get("a", now=t) for t in (0.1, later, later, 0.59, 0.59, 0.61)] == [1, None, 1, None, 1, None]
    memory.keep("b", 2, asked=0.0), memory.keep("c", 3, asked=0.0)
    assert [memory.get(k, now=0.0) for k in "abc"] == [None, None, 3]


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_it_repeats_the_real_view_until_a_generation_is_raised(caller):
    tenant, model = a_tenant(), a_model()
    namespace = a_namespace(tenant, model)
    call = caller("gateway", tenant=tenant, kind="gateway", holder="g")
    body = {"tenant": tenant.slug, "model": model.name}
    said = call.post("/namespaces:resolve", body)
    app = hot.Hot(View(), admit=lambda who: {})
    token = [(b"content-type", b"application/json"), (b"authorization", f"Bearer {call.bearer}".encode())]
    status, told, raw = ask(app, body, only=token)
    assert (status, json.loads(raw), told[b"etag"].decode()) == (200, said.json(), said["ETag"])
    resolved.contexts.clear(), resolved.answers.clear()
    assert json.loads(ask(app, body, only=token)[2]) == said.json()
    assert ask(app, {**body, "label": "new"}, only=token)[0] == 299
    assert ask(app, {**body, "model": "nothing"}, only=token)[0] == 299
    services.generation_bump(namespace=namespace, reason="test", actor=None)
    assert ask(app, body, only=token)[0] == 299
    hot._threads.submit(connections.close_all).result(), hot._threads.submit(connections.close_all).result()
