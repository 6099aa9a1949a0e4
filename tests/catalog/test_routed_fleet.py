"""What goes to nodes is what the router said: tickets to whom they are for, plans by ids, sessions moved before."""

import asyncio
from types import SimpleNamespace

import httpx
import msgspec
import pytest

from catalog.replay import NodeUnreachable
from catalog.routed_fleet import RoutedFleet
from catalog.trace import TraceRequest
from kvcore.made_tokens import MadeChains

REQUEST = TraceRequest(at_ms=0, input_length=1000, output_length=3, hash_ids=[1, 2], session="s")
NODES = {name: SimpleNamespace(id=f"id-{name}", name=name, agent_url=f"http://{name}") for name in ("p", "d", "x")}
TERMS = {"queue_p": 1.0, "cache_load": 0.0, "prefill": 5.0, "transfer": 2.0, "queue_d": 0.0, "first_decode": 1.0}


def ticket(node):
    return {"node": f"id-{node}", "ns": bytes(32), "gen": 3, "expires_at": 1.0, "mac": bytes(32), "scope": None}


class World:
    """A router and three nodes behind one transport."""

    def __init__(self):
        self.asked, self.served, self.told = [], [], []
        self.decode = ["d"]
        self.dead = set()
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        self.fleet = RoutedFleet(tenant="t", model="m", client=client, router="http://router", token=lambda: "tok")
        self.fleet._nodes, self.fleet._read = dict(NODES), float("inf")
        self.fleet._leave = lambda node, request: ticket(node.name)  # which asks the database
        self.fleet._chains["t", ""] = MadeChains(bytes(32), block_tokens=16, hash_tokens=512)

    def answer(self, request):
        body = msgspec.msgpack.decode(request.content)
        if request.url.host == "router":
            assert request.headers["authorization"] == "Bearer tok"
            if request.url.path.endswith("/outcome"):
                self.told.append((request.url.path, body))
                return httpx.Response(200, json={"taken": True})
            self.asked.append(body)
            names = [n for n in self.decode if n in body.get("candidates", self.decode)]
            if not names:
                return httpx.Response(409, json={"code": "no-candidates"})
            place, first = {"source": "reference", "dp_rank": 0}, {"node": "p", "source": "reference", "dp_rank": 0}
            plan = [{"from_block": 0, "to_block": 32, "source": "remote", "node": "x", "tier": "hbm"},
                    {"from_block": 32, "to_block": 62, "source": "compute", "node": "p", "tier": None}]  # fmt: skip
            found = {"decision_id": "dec", "prefill": first, "decode": {"node": names[0], **place}, "plan": plan,
                     "ticket": ticket("p"), "decode_ticket": ticket(names[0]), "grants": [ticket("x")]}  # fmt: skip
            return httpx.Response(200, content=msgspec.msgpack.encode(found))
        if request.url.host in self.dead:
            raise httpx.ConnectError("gone")
        self.served.append((request.url.host, request.url.path, body))
        outcome = {"prompt_tokens": 1000, "hit_tokens": 512, "saved_ms": 4.0, "terms": TERMS}
        events = [{"at": "arrived"}, {"at": "first"}, {"at": "done", "outcome": outcome}]
        return httpx.Response(200, content=b"".join(msgspec.json.encode(e) + b"\n" for e in events))

    def submit(self, request=REQUEST):
        return asyncio.run(self.fleet.submit("the router", request))


def test_the_order_is_what_the_router_said():
    world = World()
    outcome = world.submit()
    assert (outcome.prompt_tokens, outcome.hit_tokens, outcome.saved_ms) == (1000, 512, 4.0)
    (asked,) = world.asked
    assert (asked["prompt_tokens"], len(asked["block_keys"]), asked["session"]) == (1000, 62 * 32, "s")
    ((host, path, order),) = world.served
    assert (host, path, order["prefill"]) == ("d", "/v1/serve", "id-p")
    assert order["ticket"]["node"] == "id-d"
    assert [t["node"] for t in order["tickets"]] == ["id-p", "id-x"]
    assert [(p["source"], p["node"]) for p in order["plan"]] == [("remote", "id-x"), ("compute", "id-p")]
    ((path, told),) = world.told
    assert path == "/api/v1/decisions/dec/outcome"
    assert told["hit_tokens"] == 512
    assert set(told["terms"]) == {"router", *TERMS}
    assert sum(told["terms"].values()) == pytest.approx(told["ttft_ms"])
    assert min(told["terms"].values()) >= 0


def test_who_does_not_take_it_is_left_out_of_the_next_question():
    world = World()
    world.decode, world.dead = ["d", "x"], {"d"}
    assert world.submit().hit_tokens == 512
    assert [a.get("candidates") for a in world.asked] == [None, ["p", "x"]]
    assert [host for host, _, _ in world.served] == ["x"]
    world.dead = {"d", "x"}
    with pytest.raises(NodeUnreachable):
        world.submit()


def test_a_session_that_is_sent_elsewhere_is_moved_first():
    world = World()
    world.submit()
    world.decode = ["x"]
    world.submit()
    assert [(host, path) for host, path, _ in world.served] == [
        ("d", "/v1/serve"), ("d", "/v1/sessions"), ("x", "/v1/serve")]  # fmt: skip
    assert world.served[1][2] == {"ticket": ticket("d"), "session": "s", "version": 1}
    assert [body["version"] for _, path, body in world.served if path == "/v1/serve"] == [0, 1]
    assert world.fleet.moves == 1


def test_without_a_router_the_request_fails_with_a_reason():
    world = World()
    world.decode, world.fleet._since = [], float("-inf")
    with pytest.raises(NodeUnreachable, match="the router"):
        world.submit()


def test_a_router_that_knows_of_no_node_yet_is_asked_again():
    world = World()
    answer, seen = world.answer, []

    def slow(request):
        if request.url.path.endswith("/route"):
            seen.append(1)
            world.decode = ["d"] if len(seen) > 2 else []
        return answer(request)

    world.fleet.client = httpx.AsyncClient(transport=httpx.MockTransport(slow))
    assert world.submit().hit_tokens == 512
    assert len(seen) == 3
