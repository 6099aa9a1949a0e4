"""Requests of a trace reach a node with a ticket that the node would accept, and refusals name their reason."""

import asyncio
import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import msgspec
import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from audit.services import record
from catalog.models import Node
from catalog.reference_fleet import ReferenceFleet
from catalog.replay import NodeUnreachable, Outcome, Totals, replay
from catalog.trace import TraceRequest
from kvcore.messages import Ticket, ticket_refusal
from tenants.services import epoch_create, model_register, namespace_resolve, tenant_create
from tenants.services.key_lease import ticket_day, ticket_key
from tests.catalog.test_services import NOW

pytestmark = pytest.mark.django_db(transaction=True)
CONFIG = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "head_dim": 32,
}
REQUEST = TraceRequest(at_ms=0, input_length=600, output_length=3, hash_ids=[1, 2], session="s")


class Engine:
    """The far side: takes requests as a reference agent does, or answers what the test says."""

    def __init__(self) -> None:
        self.seen: list[dict] = []
        self.answer: tuple[int, bytes] = (
            200,
            msgspec.msgpack.encode({"results": [{"prompt_tokens": 600, "hit_tokens": 9}]}),
        )
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                engine.seen.append(msgspec.msgpack.decode(self.rfile.read(int(self.headers["Content-Length"]))))
                status, body = engine.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def node(engine):
    tenant_create(slug="acme", name="Acme", classes=["internal"])
    model = model_register(name="toy", config=CONFIG | {"torch_dtype": "float16"})
    epoch_create(model=model, weights_digest="sha256:1")
    place = {"region": "eu", "state_since": NOW, "created_at": NOW, "enrolled_at": NOW}
    with audited():
        return Node.objects.create(name="n1", state="ready", agent_url=engine.url, **place)


@contextlib.contextmanager
def audited():
    """A change of a node and an event of it commit together or not at all."""
    with transaction.atomic():
        yield
        record(event_type="node.created", outcome="success", actor=None, tenant_id=None, object_kind="node",
               object_id="n1", body={})  # fmt: skip


def submit(request: TraceRequest = REQUEST, name: str = "n1") -> tuple[list[str], Outcome]:
    async def go():
        async with httpx.AsyncClient(trust_env=False) as client:
            fleet = ReferenceFleet(tenant="acme", model="toy", client=client)
            try:
                return list(await fleet.nodes(request)), await fleet.submit(name, request)
            finally:
                await sync_to_async(connections.close_all)()

    return asyncio.run(go())


def test_a_request_carries_a_ticket_that_its_node_accepts(engine, node) -> None:
    names, outcome = submit()
    assert names == ["n1"]
    assert outcome == Outcome(prompt_tokens=600, hit_tokens=9, saved_ms=0.0)
    sent = engine.seen[0]
    ticket = Ticket(**sent["ticket"])
    key = ticket_key(str(node.id), ticket_day(str(node.id), NOW.__class__.now(NOW.tzinfo)))
    assert ticket_refusal(ticket, key, node=str(node.id), now=time.time()) is None
    namespace = namespace_resolve(tenant="acme", model="toy")
    assert sent["requests"][0]["ns"] == ticket.ns == bytes(namespace.digest)
    assert sent["requests"][0]["hash_ids"] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((409, b'{"code":"lease-over"}'), r"^n1: the node has no keys .*\(lease-over, docs/problems/lease-over.md\)$"),
        ((500, b""), "^n1: it answered with status 500$"),
        ((500, b'["code"]'), "^n1: it answered with status 500$"),
        ((200, b"\xc1"), "DecodeError"),
        ((200, msgspec.msgpack.encode({"results": []})), "IndexError"),
        ((200, msgspec.msgpack.encode(["results"])), "TypeError"),
        ((200, msgspec.msgpack.encode({"results": ["taken"]})), "AttributeError"),
        ((200, msgspec.msgpack.encode({"results": [{"code": "residency"}]})), r"in another one \(residency, docs/"),
        ((200, msgspec.msgpack.encode({"results": [{"code": "odd"}]})), r"it did not take the request \(odd\)"),
    ],
)
def test_what_a_node_does_not_take_is_unreachable_and_says_why(engine, node, answer, why) -> None:
    engine.answer = answer
    with pytest.raises(NodeUnreachable, match=why):
        submit()


def test_nodes_that_are_not_ready_get_nothing(engine, node) -> None:
    with audited():
        Node.objects.filter(id=node.id).update(state="lost")
    with pytest.raises(NodeUnreachable):
        submit()
    assert not engine.seen


def placed() -> list[str]:
    async def go():
        async with httpx.AsyncClient(trust_env=False) as client:
            try:
                return list(await ReferenceFleet(tenant="acme", model="toy", client=client).nodes(REQUEST))
            finally:
                await sync_to_async(connections.close_all)()

    return asyncio.run(go())


def test_placement_obeys_isolation_and_residency(engine, node) -> None:
    from catalog.dedication import nodes_dedicate
    from tenants.models import Tenant
    from tenants.placing import tenant_place

    def change(**fields):
        with audited():
            Tenant.objects.filter(slug="acme").update(**fields)

    change(isolation="node")
    assert placed() == []  # no node is its own yet
    nodes_dedicate(tenant=tenant_place("acme"), names=["n1"], actor=None)
    assert placed() == ["n1"]
    tenant_create(slug="other", name="Other", isolation="node")
    change(isolation="shared", residency="us")
    assert placed() == []
    change(residency="eu")
    assert placed() == ["n1"]


def test_a_replay_sends_a_tenant_with_a_residency_to_nodes_of_its_region_only(engine, node):
    """Each node has an engine of its own; the tenant without a residency goes to both."""
    far = Engine()
    try:
        place = {"region": "us", "state_since": NOW, "created_at": NOW, "enrolled_at": NOW}
        with audited():
            Node.objects.create(name="n2", state="ready", agent_url=far.url, **place)
        tenant_create(slug="bound", name="Bound", classes=["internal"], residency="eu")
        totals = driven([TraceRequest(at_ms=i, input_length=600, output_length=0, hash_ids=[i, i + 1], tenant=tenant)
                         for i in range(20) for tenant in ("acme", "bound")])  # fmt: skip
        assert (totals.done, totals.failed, totals.refusals) == (40, 0, {})
        bound = bytes(namespace_resolve(tenant="bound", model="toy").digest)
        assert [sent["ticket"]["ns"] for sent in engine.seen].count(bound) == 20
        assert {sent["ticket"]["ns"] for sent in far.seen} == {
            bytes(namespace_resolve(tenant="acme", model="toy").digest)
        }
    finally:
        far.server.shutdown()
        far.server.server_close()


def driven(requests: list[TraceRequest]) -> Totals:
    async def go():
        async with httpx.AsyncClient(trust_env=False) as client:
            try:
                return await replay(requests, ReferenceFleet(tenant="acme", model="toy", client=client), speed=None)
            finally:
                await sync_to_async(connections.close_all)()

    return asyncio.run(go())
