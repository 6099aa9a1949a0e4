"""A gateway in front of engines, with no router to ask: clients of all kinds, and what the engines see of them.

The engines are the far side; the gateway is the real process.
"""

import json
import socket
import threading
import time

import httpx
import pytest

from kvconsole.serverprocess import free_port
from tests.kvconsole.cli.farengine import Engine
from tests.kvconsole.cli.gatewayprocess import Process

SECRET = "the-words-of-a-prompt-that-nobody-may-read"
LIMITS = {"body_bytes": 200_000, "read_seconds": 1.0, "route_seconds": 0.5, "connect_seconds": 1.0,
          "first_byte_seconds": 2.0, "send_seconds": 1.5, "requests_per_tenant": 4}  # fmt: skip


@pytest.fixture(scope="module")
def engines():
    made = [Engine(), Engine()]
    yield made
    for engine in made:
        engine.close()


@pytest.fixture(autouse=True)
def _clean(engines):
    for engine in engines:
        engine.asked, engine.heads, engine.cancelled, engine.pause, engine.silent = [], [], 0, 0.0, 0.0


@pytest.fixture(scope="module")
def gateway(engines, tmp_path_factory):
    nowhere = f"http://127.0.0.1:{free_port()}"
    made = Process(tmp_path_factory.mktemp("gateway"), console=nowhere, router=nowhere, token="kvc_gateway_x",
                   engines={f"n{i}": e.url for i, e in enumerate(engines)}, limits=LIMITS)  # fmt: skip
    yield made
    made.close()


def test_without_a_router_it_goes_round_and_claims_no_reuse(gateway, engines):
    answers = [gateway.ask() for _ in range(4)]
    assert [a.status_code for a in answers] == [200] * 4
    assert {a.headers["x-kv-route"] for a in answers} == {"round-robin; why=router-unreachable"}
    assert {a.headers["x-kv-reuse"] for a in answers} == {"none"}
    assert [len(e.salts()) for e in engines] == [2, 2]
    salts = engines[0].salts() + engines[1].salts()
    assert len(set(salts)) == 4
    assert all(len(salt) == 43 for salt in salts)
    assert {a.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers} == {0}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chat", [False, True])
def test_an_answer_passes_untouched(gateway, engines, chat, stream):
    said = {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": "hello"}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    through = gateway.ask(path, stream=stream, stream_options={"include_usage": True}, **said)
    direct = httpx.post(engines[0].url + path, timeout=10, json={
        "model": "tiny", "stream": stream, "stream_options": {"include_usage": True}, "cache_salt": "another", **said,
    })  # fmt: skip
    assert (through.status_code, through.content) == (200, direct.content)
    assert through.headers["content-type"] == direct.headers["content-type"]


def test_pieces_come_as_the_engine_makes_them(gateway, engines):
    for engine in engines:
        engine.pause = 0.4
    came, begun = [], time.perf_counter()
    body = {"model": "tiny", "prompt": "x", "stream": True}
    with gateway.client.stream("POST", "/v1/completions", json=body, headers={"Authorization": "Bearer sk-acme"}) as a:
        for _ in a.iter_raw():
            came.append(time.perf_counter() - begun)
    assert came[0] < 0.9 * came[-1] - 0.3, came
    assert came[-1] > 1.1


def test_a_clients_salt_and_head_do_not_reach_the_engine(gateway, engines):
    mine = "the-salt-of-globex"
    answer = gateway.ask(
        cache_salt=mine, extra_body={"cache_salt": mine}, vllm_xargs={"Cache-Salt": mine},
        kv_transfer_params={"remote_block_ids": [1, 2]},
        headers={"X-Cache-Salt": mine, "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4", "X-Data-Parallel-Rank": "1",
                 "X-KV-Session": "s1", "X-Request-Id": "mine"},
    )  # fmt: skip
    assert answer.status_code == 200
    ((_, body),) = [x for e in engines for x in e.asked if x[0] == "/v1/completions"]
    (head,) = [
        h
        for e in engines
        for h in e.heads
        if "v1" not in h.get("x", "") and h.get("Accept", "").startswith("application/json, text")
    ]
    told = json.dumps([body, head])
    assert mine not in told
    assert "remote_block_ids" not in told
    assert not {"cookie", "x-forwarded-for", "authorization", "x-kv-session", "x-data-parallel-rank", "x-request-id",
                "x-cache-salt"} & {name.lower() for name in head}  # fmt: skip
    assert "sk-acme" not in told
    assert answer.headers["x-request-id"] != "mine"


@pytest.mark.parametrize("key", ["", "sk-nobody", "kvc_service_x", "x" * 5000, "sk-acme\u00e9"])
def test_who_is_not_known_is_refused(gateway, engines, key):
    headers = {"Authorization": f"Bearer {key}".encode()} if key else {}
    answer = gateway.client.post("/v1/completions", json={"model": "tiny", "prompt": "x"}, headers=headers)
    refused = (503, "unavailable") if key.startswith("kvc_") else (401, "not-authenticated")  # the console is away
    assert (answer.status_code, answer.json()["error"]["code"]) == refused
    assert not any(e.asked for e in engines)


@pytest.mark.parametrize(
    ("content", "kind", "refused"),
    [(b"{", "application/json", (400, "bad-request")), (b"[" * 100_000, "application/json", (400, "bad-request")),
     (b'{"model":"tiny"}', "text/plain", (415, "unsupported-media-type")),
     (b"x" * 200_001, "application/json", (413, "body-too-large"))],
)  # fmt: skip
def test_bodies_that_are_none(gateway, engines, content, kind, refused):
    head = {"Authorization": "Bearer sk-acme", "Content-Type": kind}
    answer = gateway.client.post("/v1/completions", content=content, headers=head)
    assert (answer.status_code, answer.json()["error"]["code"]) == refused
    assert not any(e.asked for e in engines)


def test_an_encoded_body_is_refused(gateway):
    head = {"Authorization": "Bearer sk-acme", "Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert gateway.client.post("/v1/completions", content=b"{}", headers=head).status_code == 415


@pytest.mark.parametrize("words", [{"X-KV-Session": "x" * 201}, {"X-KV-SLO-TTFT-MS": "nan"}, {"X-KV-SLO-TPOT-MS": "0"}])
def test_words_of_heads_that_are_none(gateway, words):
    answer = gateway.ask(headers=words)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad-request")


def test_a_body_without_a_length_is_counted(gateway):
    def endless():
        for _ in range(100):
            yield b"x" * 10_000

    head = {"Authorization": "Bearer sk-acme", "Content-Type": "application/json"}
    try:
        answer = gateway.client.post("/v1/completions", content=endless(), headers=head)
    except (httpx.WriteError, httpx.RemoteProtocolError):
        return  # it hung up while we were still sending
    assert answer.status_code == 413


def _raw(gateway, sent):
    s = socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), timeout=10)
    s.sendall(sent)
    return s


HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer sk-acme\r\nContent-Type: application/json\r\n"
)


def test_a_body_that_does_not_come_is_not_waited_for(gateway):
    begun = time.monotonic()
    with _raw(gateway, HEAD + b'Content-Length: 100\r\n\r\n{"mo') as s:
        assert s.recv(4096).startswith(b"HTTP/1.1 408")
    assert 0.8 < time.monotonic() - begun < 5


def test_a_length_that_is_none_is_refused(gateway):
    with _raw(gateway, HEAD + b"Content-Length: 99999999999\r\n\r\n") as s:
        assert s.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("POST", "/reset_prefix_cache", 404), ("POST", "/tokenize", 404),
     ("GET", "/metrics", 404), ("POST", "/v1/load_lora_adapter", 404), ("POST", "/collective_rpc", 404),
     ("POST", "/v1/completions/../../pause", 404)],
)  # fmt: skip
def test_only_what_is_a_clients_is_there(gateway, engines, method, path, status):
    answer = gateway.client.request(method, path, headers={"Authorization": "Bearer sk-acme"})
    assert answer.status_code == status
    assert not any(e.asked for e in engines)


def test_models_are_the_engines(gateway):
    assert gateway.client.get("/v1/models").status_code == 401
    answer = gateway.client.get("/v1/models", headers={"Authorization": "Bearer sk-globex"})
    assert [m["id"] for m in answer.json()["data"]] == ["tiny"]


def test_what_the_engine_refuses_passes_too(gateway):
    answer = gateway.ask(model="other")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")


def test_who_leaves_ends_the_engines_work(gateway, engines):
    for engine in engines:
        engine.pause = 0.5
    before = gateway.counts().get("requests cancelled", 0)
    body = {"model": "tiny", "prompt": "x", "stream": True}
    with gateway.client.stream("POST", "/v1/completions", json=body, headers={"Authorization": "Bearer sk-acme"}) as a:
        next(a.iter_raw())
    gateway.until(lambda: sum(e.cancelled for e in engines) == 1)
    assert gateway.counts()["requests cancelled"] == before + 1


def test_who_leaves_before_the_answer_ends_the_engines_work(gateway, engines):
    for engine in engines:
        engine.silent = 1.0
    before = gateway.counts().get("left", 0)
    body = b'{"model":"tiny","prompt":"x"}'
    with _raw(gateway, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body):
        gateway.until(lambda: any(p == "/v1/completions" for e in engines for p, _ in e.asked))
    gateway.until(lambda: gateway.counts().get("left", 0) == before + 1)
    assert gateway.health()["requests"] == 0


def test_one_tenant_does_not_take_all_places(gateway, engines):
    for engine in engines:
        engine.silent = 1.0
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(_once(gateway, "sk-acme"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    gateway.until(lambda: gateway.health()["requests"] >= 4)
    assert _once(gateway, "sk-globex") == 200
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 4 + [429] * 4
    assert gateway.health()["requests"] == 0


def _once(gateway, key):
    body, head = {"model": "tiny", "prompt": "x"}, {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{gateway.url}/v1/completions", json=body, headers=head, timeout=10).status_code


def test_an_engine_that_says_nothing_is_given_up(gateway, engines):
    for engine in engines:
        engine.silent = 3.5
    answer = gateway.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine-silent")


def test_nothing_of_a_prompt_is_logged(gateway):
    for body in ({"prompt": SECRET}, {"prompt": SECRET, "model": "other"}, {"prompt": SECRET, "stream": True}):
        gateway.ask(**body)
    gateway.client.post("/v1/completions", content=f'{{"prompt":"{SECRET}'.encode(),
                        headers={"Authorization": "Bearer sk-acme", "Content-Type": "application/json"})  # fmt: skip
    assert SECRET not in gateway.log
    assert SECRET not in json.dumps(gateway.health())
    assert "Traceback" not in gateway.log, gateway.log


def test_an_engine_that_is_gone_is_passed_over(engines, tmp_path):
    nowhere = f"http://127.0.0.1:{free_port()}"
    gateway = Process(tmp_path / "g", console=nowhere, router=nowhere, token="t", limits=LIMITS,
                      engines={"n0": nowhere, "n1": engines[1].url}, tokenize=False)  # fmt: skip
    try:
        assert [gateway.ask().status_code for _ in range(4)] == [200] * 4
        assert gateway.counts()["engines unreachable"] == 1
    finally:
        gateway.close()


def test_without_a_lease_nothing_is_served_where_that_is_wanted(engines, tmp_path):
    nowhere = f"http://127.0.0.1:{free_port()}"
    gateway = Process(tmp_path / "g", console=nowhere, router=nowhere, token="t", limits=LIMITS,
                      engines={"n0": engines[0].url}, without_lease="refuse")  # fmt: skip
    try:
        answer = gateway.ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no-lease")
        assert not engines[0].salts()
    finally:
        gateway.close()
