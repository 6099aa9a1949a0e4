"""A gateway between clients, the real router and the real console; the engines are the far side."""

import json
import time

import pytest

from kvcore.keys import engine_salt, subkey
from tests.kvconsole.cli.farengine import Engine
from tests.kvconsole.cli.gatewayprocess import Process
from tests.routing.walking import Routed

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
KEYS = {"sk-walk": "walk", "sk-foreign": "foreign"}
PROMPT = list(range(100, 196))  # six blocks
FENCE = """
from datetime import UTC, datetime
from kvconsole.infra.access import system, tenant_context
from tenants.services.fencing import namespaces_fence
from tenants import selectors
who = system("walk")
with tenant_context(who):
    row = selectors.namespaces_by_digest([bytes.fromhex("%s")])[bytes.fromhex("%s")]
    print(namespaces_fence(namespaces=[row.id], reason="deletion", actor=who, now=datetime.now(UTC))[0].min_gen)
"""

ACKNOWLEDGED = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT seq FROM tenants_fenceack WHERE holder = 'g1'")
    print(cursor.fetchone()[0])
"""


@pytest.fixture(scope="module")
def routed(shared_console):
    made = Routed(shared_console)
    yield made
    made.http.close()


@pytest.fixture(scope="module")
def engines():
    made = {"n1": Engine(name="ref-64"), "n2": Engine(name="ref-64")}
    yield made
    for engine in made.values():
        engine.close()


@pytest.fixture
def gateway(routed, engines, tmp_path):
    made = []

    def make(*nodes, **more):
        places = {n: engines[n].url for n in nodes}
        one = Process(tmp_path / f"g{len(made)}", console=routed.console.url, router=routed.url, keys=KEYS,
                      token=routed.tokens["gateway"], engines=places, renew_seconds=0.5, **more)  # fmt: skip
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def salts(routed, generation):
    """The salt of a generation of the walk's namespace, from the console's own key store."""
    code = (
        f"from kvconsole.infra.keystore import keystore, namespace_name\n"
        f"print(keystore().secret(namespace_name(bytes.fromhex('{routed.digest.hex()}'), {generation})).hex())"
    )
    return engine_salt(subkey(bytes.fromhex(routed.console.manage("shell", "-v", "0", "-c", code).split()[-1]), "salt"))


def ask(gateway, key="sk-walk", **more):
    said = {"model": "ref-64", "prompt": PROMPT, "stream": True, "stream_options": {"include_usage": True}} | more
    answer = gateway.ask(key=key, **said)
    usage = [json.loads(x[6:])["usage"] for x in answer.text.splitlines() if x.startswith("data: {") and '"usage"' in x]
    return answer, usage[-1]["prompt_tokens_details"]["cached_tokens"] if usage else None


def decided(gateway, seconds=20, **more):
    """The first answer whose salt was the namespace's: the lease has come, the router knows the nodes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer, cached = ask(gateway, **more)
        if answer.headers.get("x-kv-reuse") == "namespace":
            return answer, cached
        time.sleep(0.2)
    raise AssertionError((answer.headers, answer.text[:300], gateway.health(), gateway.log))


def test_the_router_decides_our_salt_goes_out_and_the_outcome_is_known(routed, engines, gateway):
    one = gateway("n1")
    answer, _ = decided(one)
    again, cached = ask(one)
    assert (answer.status_code, again.headers["x-kv-reuse"], cached) == (200, "namespace", 96)
    assert engines["n1"].salts()[-1] == salts(routed, 1)
    decision = again.headers["x-kv-route"].removeprefix("decided; decision=")
    one.until(lambda: one.counts().get("reported", 0) >= 2)
    query = ("SELECT gateway, node, prompt_tokens, measured_ms, hit_tokens, measured FROM routing_decision"
             " WHERE id = %s AND measured_at IS NOT NULL")  # fmt: skip
    one.until(lambda: routed.rows(query, decision))
    ((holder, _, prompt, measured_ms, hit, terms),) = routed.rows(query, decision)
    assert (holder, prompt, hit) == ("g1", 96, 96)
    assert 0 < terms["router"] < measured_ms < 10_000


def test_no_salt_of_a_client_reaches_what_another_tenant_cached(routed, engines, gateway):
    one = gateway("n1")
    decided(one)
    assert ask(one)[1] == 96
    mine = engines["n1"].salts()[-1]
    ways = ({}, {"cache_salt": mine}, {"extra_body": {"cache_salt": mine}}, {"vllm_xargs": {"Cache-Salt": mine}})
    hits = []
    for n, smuggled in enumerate(ways):
        answer, cached = ask(one, "sk-foreign", prompt=[*PROMPT, n], **smuggled)
        assert answer.status_code == 200
        assert engines["n1"].salts()[-1] != mine
        hits.append(cached)
    assert hits[0] == 0, "it never had this prompt, whoever else had"


def test_after_a_fence_the_old_salt_is_never_used_again(routed, engines, gateway):
    one = gateway("n1")
    decided(one)
    old = engines["n1"].salts()[-1]
    generation = int(routed.console.manage("shell", "-v", "0", "-c", FENCE % ((routed.digest.hex(),) * 2)).split()[-1])
    one.until(lambda: one.health()["fence_seq"] >= 1, 20)
    time.sleep(1.5)  # two renewals: heard of, and acknowledged
    assert int(routed.console.manage("shell", "-v", "0", "-c", ACKNOWLEDGED).split()[-1]) >= 1
    seen = len(engines["n1"].asked)
    _, cached = decided(one)
    assert old not in [body.get("cache_salt") for _, body in engines["n1"].asked[seen:]]
    assert engines["n1"].salts()[-1] == salts(routed, generation)
    assert cached == 0, "nothing of the old generation is read"


def test_without_the_router_every_request_is_answered_and_none_shares(routed, engines, gateway):
    two = gateway("n1", "n2")
    decided(two)
    shared = {body["cache_salt"] for e in engines.values() for path, body in e.asked if path.startswith("/v1/")}
    routed.console.kill("router")
    try:
        answers = [ask(two) for _ in range(6)]
        assert {a.status_code for a, _ in answers} == {200}
        assert {a.headers["x-kv-route"] for a, _ in answers} == {"round-robin; why=router-unreachable"}
        assert {(a.headers["x-kv-reuse"], cached) for a, cached in answers} == {("none", 0)}
        newest = [e.salts()[-3:] for e in engines.values()]
        assert not shared & {salt for some in newest for salt in some}
    finally:
        routed.console.start("router")
    decided(two)


def test_what_the_router_refuses_is_served_without_reuse(routed, engines, gateway):
    one = gateway("n1")
    decided(one)
    engines["n1"].name = "another"
    try:
        answer, _ = ask(one, model="another")
        assert answer.status_code == 200
        assert answer.headers["x-kv-route"].startswith("round-robin; why=unknown-model")
        assert answer.headers["x-kv-reuse"] == "none"
    finally:
        engines["n1"].name = "ref-64"


def test_what_was_announced_comes_and_the_tenant_is_believed_the_more(routed, gateway):
    """The worker judges; a router saw it. What does not come is missed."""
    one = gateway("n1")
    decided(one)
    web, head = routed.console.url, {"Authorization": f"Bearer {routed.tokens['gateway']}"}

    def trust():
        return routed.http.get(f"{web}/api/v1/tenants/walk/trust", headers=head).json()

    before = trust()
    one.until(lambda: routed.rows("SELECT 1 FROM routing_watch WHERE at > now() - interval '5 seconds'"), 20)
    body = {"event": "tool_start", "eta_ms": 500, "tenant": "walk"}
    said = routed.http.post(f"{web}/api/v1/sessions/s-tool/hints", json=body, headers=head)
    assert (said.status_code, said.json()["reason"]) == (202, "not-separable"), said.text
    time.sleep(1.5)  # the router hears of it
    ask(one, headers={"X-KV-Session": "s-tool"})
    one.until(lambda: trust()["came"] == before["came"] + 1, 30)
    assert trust()["share"] > before["share"]
