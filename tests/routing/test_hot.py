"""The ASGI application in-process over a real database: who may ask, what is answered, and hostile bytes."""

import asyncio
import time
import uuid

import httpx
import msgspec
import pytest

from kvconsole.infra.sql import uuid7
from routing.hot import BODY_BYTES, Hot
from tenants import services
from tenants.selectors import namespaces_by_digest
from tests.routing.deciding import Stand, worker
from tests.tenants.making import a_namespace, a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
IDLE = {"queue_ms": 0.0}


class App:
    """The application of one router in memory; namespaces and tokens are the database's."""

    def __init__(self, namespace, tenant):
        self.stand = Stand(worker("a", load=IDLE), worker("b", load={"queue_ms": 30.0}))
        self.hot = Hot(self.stand.router, begin=lambda: None, end=lambda: None)
        self.slug, self.model = tenant.slug, services_model(namespace)
        number = 2
        self.stand.view.keyspace(number, bytes(namespace.digest), namespace.generation, 0)
        self.stand.view.source(9, uuid.uuid5(uuid.NAMESPACE_DNS, "a"), "e", 0, "exact")
        self.stand.view.owner(99, 9, "hbm", False)
        self.stand.view.index.add(number, 99, self.stand.prints)

    def send(self, *requests):
        """The answers to (method, path, token, content, headers), one event loop for all."""

        async def all_of_them():
            transport = httpx.ASGITransport(self.hot)
            async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
                answers = []
                for method, path, token, content, headers in requests:
                    known = {"Authorization": f"Bearer {token}"} if token else {}
                    answers.append(await client.request(method, path, content=content, headers={**known, **headers}))
                return answers

        return asyncio.run(all_of_them())

    def route(self, token, kind="msgpack", **fields):
        body = {"tenant": self.slug, "model": self.model, "block_keys": self.stand.keys, "prompt_tokens": 700, **fields}
        body = {k: v for k, v in body.items() if v is not None}
        if kind == "json":
            body = {k: v.hex() if isinstance(v, bytes) else v for k, v in body.items()}
        content = msgspec.json.encode(body) if kind == "json" else msgspec.msgpack.encode(body)
        (answer,) = self.send(("POST", "/api/v1/route", token, content, {"Content-Type": f"application/{kind}"}))
        return answer


def services_model(namespace):
    from tenants.models import Model

    return Model.objects.get(id=namespace.model_id).name


@pytest.fixture
def app():
    tenant = a_tenant()
    made = App(a_namespace(tenant=tenant), tenant)
    made.tenant = tenant
    made.gateway = services.token_issue("gateway", roles=["gateway"], holder=some("g"))[1]
    made.member = services.token_issue("service", tenant_id=tenant.id, roles=["tenant-member"])[1]
    made.stranger = services.token_issue("service", tenant_id=a_tenant().id, roles=["tenant-member"])[1]
    made.viewer = services.token_issue("service", roles=["viewer"])[1]
    yield made
    made.hot.close()


def code(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_json_and_msgpack_say_the_same(app):
    packed, text = app.route(app.gateway), app.route(app.gateway, kind="json")
    assert (packed.status_code, text.status_code) == (200, 200), (packed.content, text.text)
    one, two = msgspec.msgpack.decode(packed.content), text.json()
    assert one["overlap_tokens"] == two["overlap_tokens"] == 640
    assert one["ticket"]["mac"].hex() != one["ticket"]["ns"].hex() == two["ticket"]["ns"]
    assert one["cache_salt"] == two["cache_salt"]
    assert set(one) >= {"decision_id", "prefill", "decode", "cache_salt", "plan", "ticket", "overlap_tokens",
                        "predicted", "cards", "index"}  # fmt: skip
    assert set(one["predicted"]["terms"]) == {
        "router", "queue_p", "cache_load", "prefill", "transfer", "queue_d", "first_decode"}  # fmt: skip


def test_who_may_ask_and_for_whom(app):
    assert app.route(app.member, tenant=None).status_code == 200, "a tenant's own need not be named"
    assert msgspec.msgpack.decode(app.route(app.member).content)["cache_salt"] is None
    assert code(app.route(app.gateway, tenant=None)) == (400, "validation-failed")
    assert code(app.route("")) == (401, "not-authenticated")
    assert code(app.route("kvc_gateway_x")) == (401, "token-invalid")
    assert code(app.route(app.viewer)) == (403, "forbidden")
    foreign, nobody = app.route(app.stranger), app.route(app.stranger, tenant="nobody-at-all")
    assert code(foreign) == code(nobody) == (404, "not-found")
    assert {k: v for k, v in foreign.json().items() if k != "request_id"} == {
        k: v for k, v in nobody.json().items() if k != "request_id"}  # fmt: skip
    assert code(app.route(app.gateway, model="nothing")) == (404, "unknown-model")
    assert code(app.route(app.gateway, share_group="nobody's")) == (404, "not-found")


def test_what_was_asked_once_is_answered_from_memory(app):
    assert app.route(app.gateway).status_code == 200
    learned = []
    app.stand.standing.namespaces.learn = lambda *args: learned.append(args)
    assert app.route(app.gateway, session="another").status_code == 200
    assert not learned
    app.stand.standing.away_until = time.monotonic() + 60
    stand_in = app.route(app.gateway, label="never-seen")
    assert msgspec.msgpack.decode(stand_in.content)["ticket"] is None
    assert code(app.route(app.stranger)) == (503, "unavailable")


def test_a_namespace_of_another_generation_is_resolved_anew(app):
    assert msgspec.msgpack.decode(app.route(app.gateway).content)["overlap_tokens"] == 640
    namespace = next(iter(app.stand.standing.namespaces.by_digest.values()))
    found = namespaces_by_digest([namespace.digest])[namespace.digest]
    bumped = services.generation_bump(namespace=found.id, reason="test", actor=None)
    app.stand.view.fence(namespace.digest, bumped.generation)
    answer = msgspec.msgpack.decode(app.route(app.gateway).content)
    assert (answer["overlap_tokens"], answer["ticket"]["gen"]) == (0, bumped.generation)


def test_outcomes_and_reports_over_http(app):
    decision = msgspec.msgpack.decode(app.route(app.gateway).content)["decision_id"]
    path, json = f"/api/v1/decisions/{decision}/outcome", {"Content-Type": "application/json"}
    told = b'{"ttft_ms": 5, "hit_tokens": 3}'
    answers = app.send(
        ("POST", path, app.member, told, json), ("POST", path, app.gateway, b'{"ttft_ms": -1}', json),
        ("POST", path, app.gateway, told, json), ("POST", path, app.gateway, told, json),
        ("POST", "/api/v1/decisions/nonsense/outcome", app.gateway, told, json),
        ("POST", f"/api/v1/decisions/{uuid7()}/outcome", app.gateway, told, json),
    )  # fmt: skip
    assert [a.status_code for a in answers] == [403, 422, 200, 409, 404, 404]
    body = {"origin": "sglang", "chosen": {"node": "b"}, "tenant": app.slug, "model": app.model,
            "block_keys": app.stand.keys.hex(), "prompt_tokens": 700}  # fmt: skip
    (report,) = app.send(("POST", "/api/v1/decisions", app.gateway, msgspec.json.encode(body), json))
    assert report.status_code == 200, report.text
    assert (report.json()["ours"]["node"], report.json()["chosen"]["node"]) == ("a", "b")
    (refused,) = app.send(("POST", "/api/v1/decisions", app.member, msgspec.json.encode(body), json))
    assert code(refused) == (403, "forbidden")


def test_other_addresses_and_methods(app):
    answers = app.send(
        ("GET", "/api/v1/route", app.gateway, b"", {}), ("POST", "/api/v1/policies/default", app.gateway, b"", {}),
        ("GET", "/healthz", "", b"", {}), ("GET", "/metrics", "", b"", {}), ("GET", "/readyz", "", b"", {}),
        ("DELETE", "/healthz", "", b"", {}),
    )  # fmt: skip
    assert [a.status_code for a in answers] == [405, 404, 200, 200, 503, 405]
    assert answers[0].headers["allow"] == "POST"
    assert b"kvc_router_decisions" in answers[3].content


def test_bodies_that_are_too_long_are_refused_unread_and_in_pieces(app):
    pieces = (b"x" * 2**20 for _ in range(6))

    async def stream():
        for piece in pieces:
            yield piece

    async def both():
        transport = httpx.ASGITransport(app.hot)
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
            headers = {"Authorization": f"Bearer {app.gateway}", "Content-Type": "application/msgpack"}
            one = await client.post("/api/v1/route", content=b"x" * (BODY_BYTES + 1), headers=headers)
            two = await client.post("/api/v1/route", content=stream(), headers=headers)
            return one, two

    for answer in asyncio.run(both()):
        assert code(answer) == (413, "body-too-large")
    assert app.hot.reading == 0


def test_a_refusal_of_a_known_caller_is_recorded_with_its_code_and_nothing_of_the_body(app):
    app.route(app.member, label="x" * 50, model="nothing")
    kept = [i for i in app.stand.recorder._queue if hasattr(i, "tenant_id")]
    assert [(i.code, i.tenant_id) for i in kept] == [("unknown-model", app.tenant.id)]
