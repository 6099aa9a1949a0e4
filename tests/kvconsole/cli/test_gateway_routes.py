"""Where a request goes, as far as no router is needed to tell; with one: the walk of routing."""

import asyncio
import contextlib

import httpx
import msgspec
import pytest

from kvconsole.cli import gateway_routes as gr
from kvconsole.cli.gateway_config import Config, Served
from kvconsole.cli.gateway_keys import Keeper, Ring
from tests.kvconsole.cli.farengine import Engine
from tests.tenants.making import a_model, a_tenant

NOWHERE = "http://127.0.0.1:1"
WHO = gr.Who(tenant="acme")


def config(**more):
    base = {"console_url": NOWHERE, "router_url": NOWHERE, "engines": {"n0": NOWHERE, "n1": NOWHERE}, "token_file": "t"}
    return Config(**(base | more))


@contextlib.asynccontextmanager
async def routes(token="t", **more):
    said = config(**more)
    async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0), trust_env=False) as client:
        keeper = Keeper(Ring(), client, said.console_url, token)
        yield gr.Routes(said, client, keeper, token, "")


def within(work, **more):
    async def run():
        async with routes(**more) as made:
            return await work(made)

    return asyncio.run(run())


def decision(**more):
    said = {
        "decision_id": "01890000-0000-7000-8000-000000000001", "overlap_tokens": 48, "plan": [], "cards": [],
        "prefill": {"node": "n1", "source": "e", "dp_rank": 0}, "cache_salt": "s", "index": {"mode": "exact"},
    }  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(said | more), type=gr._Decision)


def test_a_decision_is_taken_where_its_worker_has_an_engine_here():
    async def decide(made):
        return made._decided(decision()), made._decided(decision(prefill={"node": "n9"})), made.counts

    way, unknown, counts = within(decide)
    assert (way.node, way.salt, way.overlap_tokens) == ("n1", "s", 48)
    assert way.decision == "01890000-0000-7000-8000-000000000001"
    assert (unknown.decision, unknown.salt, unknown.why) == ("", "", "worker-unknown")
    assert counts == {"routed": 1, "unrouted": 1}


def test_a_decision_without_a_salt_has_none():
    async def decide(made):
        return made._decided(decision(cache_salt=None)).salt

    assert within(decide) == ""


def test_engines_that_were_not_reached_come_last():
    async def go(made):
        made.unreached("n0")
        return [made.next_engine().node for _ in range(4)], made.down()

    assert within(go) == (["n1"] * 4, {"n0"})

    async def all_down(made):
        made.unreached("n0")
        made.unreached("n1")
        return {made.next_engine().node for _ in range(4)}

    assert within(all_down) == {"n0", "n1"}


def test_the_router_is_asked_with_the_engines_own_tokens():
    engine = Engine()

    async def question(made):
        said = {"model": "fast", "prompt": "ab", "max_tokens": 3}
        return await made._question(said, gr.Who(tenant="acme", session="s", ttft_ms=250.0), 100)

    try:
        served = {"fast": Served("llama", "digest")}
        asked = within(question, engines={"n0": engine.url}, served=served)
        assert asked == {
            "tenant": "acme", "model": "llama", "adapter": "digest", "session": "s", "slo": {"ttft_ms": 250.0},
            "candidates": ["n0"], "token_ids": b"\x61\0\0\0\x62\0\0\0", "prompt_tokens": 2,
        }  # fmt: skip
        assert engine.asked == [("/tokenize", {"model": "fast", "prompt": "ab"})]
        guessed = within(question, engines={"n0": engine.url}, tokenize=False)
        assert (guessed["prompt_tokens"], "token_ids" in guessed) == (25, False)
    finally:
        engine.close()
    untold = within(question)
    assert (untold["prompt_tokens"], "token_ids" in untold) == (25, False)


def test_outcomes_are_told_once_and_only_of_decisions():
    async def tell(made):
        made.report(gr.Way("n0", NOWHERE), {"ttft_ms": 1.0})
        made.report(gr.Way("n0", NOWHERE, decision="d"), {})
        made.report(gr.Way("n0", NOWHERE, decision="d"), {"ttft_ms": 1.0})
        await made.settle()
        return made.counts

    assert within(tell) == {"reports_lost": 1, "unmeasured": 1}


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b'{"code":"no-candidates"}', "no-candidates"), (b'{"code":"a b"}', "router-refused"),
     (b'{"code":"x\\r\\nSet-Cookie: a"}', "router-refused"), (b"", "router-refused"), (b"[]", "router-refused")],
)  # fmt: skip
def test_the_code_of_a_refusal_is_one_word(raw, code):
    assert gr._code(httpx.Response(422, content=raw)) == code


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_namespace_that_nobody_asked_for_is_made_and_leased_once(live_server, settings):
    from tenants import services
    from tenants.models import Namespace

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    a_tenant(slug="acme", erasure_scope="session")
    model = a_model()
    token = services.token_issue("gateway", roles=["gateway"], holder="g1")[1]
    before = Namespace.objects.count()

    async def ask(made):
        said = {"model": model.name, "prompt": "x"}
        who = gr.Who(tenant="acme", session="s1")
        ways = [await made.way(said, who, 10), await made.way(said, who, 10)]
        foreign = await made.way(said, gr.Who(tenant="nobody-here"), 10)
        return [way.why for way in (*ways, foreign)], made._keeper.ring.count()

    found = within(ask, token=token, console_url=live_server.url, router_url=live_server.url, tokenize=False)
    assert found == (["not-found"] * 3, 1), "the console itself routes nothing"
    assert Namespace.objects.count() == before + 1
