"""Seven steps of a request on real agents: what each finds, computes, gives, commits, and how long each took."""

import threading
import time

import pytest

from nodeagent.serving.words import TERMS
from tests.nodeagent.conftest import eventually
from tests.nodeagent.farside import held
from tests.nodeagent.serving.fleet import wrong_blocks


def test_one_node_computes_what_it_has_not_and_reads_what_it_has(fleet):
    (a,) = fleet.add("a")
    first = fleet.serve(a, [1, 2, 3], tokens=1500, readable=0).outcome
    assert (first["hit_tokens"], first["computed_tokens"]) == (0, 1500)
    again = fleet.serve(a, [1, 2, 9], tokens=1500, readable=64).outcome
    assert (again["hit_tokens"], again["computed_tokens"]) == (1024, 476)
    assert again["tiers"] == {"hbm": 1024}
    whole = fleet.serve(a, [1, 2, 3], tokens=1500).outcome
    assert (whole["hit_tokens"], whole["computed_tokens"]) == (93 * 16, 12)
    assert fleet.serve(a, [1, 2, 3], tokens=1500, readable=0).outcome["hit_tokens"] == 0  # nothing may be read
    assert wrong_blocks(fleet, a) == 0


def test_what_one_node_computes_the_other_decodes_on(fleet):
    p, d = fleet.add("p", "d")
    fleet.serve(p, [1, 2], readable=0)
    answer = fleet.serve(d, [1, 2, 3, 4], prefill=p, readable=64)
    o = answer.outcome
    assert (o["hit_tokens"], o["computed_tokens"]) == (1024, 1024)
    assert o["fetched_blocks"] == 128
    assert o["fell_back"] == {}
    order = [e.at for _, e in answer.events if e.at not in ("published", "alive")]
    assert order == ["arrived", "admitted", "loaded", "computed", "committed", "turn", "first", "done"]
    assert sum(e.at == "published" for _, e in answer.events) >= 3  # range by range, before the prefill ends
    assert answer.at("published") < answer.at("computed")
    eventually(lambda: d.status()["idle"])
    assert d.far.believed("reference") == held(d.loop.inventory(), "reference")
    assert len(d.far.believed("reference")) == 128
    assert not [n for n in d.far.notes if type(n).__name__ != "StaleGeneration"]
    assert wrong_blocks(fleet, d) == wrong_blocks(fleet, p) == 0
    assert d.serving()["transferring"] == d.serving()["reserved_blocks"] == 0
    again = fleet.serve(d, [1, 2, 3, 4], prefill=p).outcome
    assert (again["hit_tokens"], again["fetched_blocks"]) == (2048, 0)


def test_a_remote_range_is_fetched_by_who_computes(fleet):
    p, d, x = fleet.add("p", "d", "x")
    fleet.serve(x, [1, 2, 3], readable=0)
    answer = fleet.serve(d, [1, 2, 3, 4], prefill=p, readable=96, giver=(x, 0, 96))
    o = answer.outcome
    assert (o["hit_tokens"], o["computed_tokens"], o["fell_back"]) == (96 * 16, 512, {})
    assert p.serving()["committed_blocks"] >= 96
    assert x.serving()["given_bytes"] > 96 * 1024
    assert wrong_blocks(fleet, d) == wrong_blocks(fleet, p) == 0


def test_the_terms_are_the_time_to_first_token(fleet):
    p, d = fleet.add("p", "d", time_scale=0.2)
    apart = []
    for i in range(6):
        answer = fleet.serve(d, [*range(4), 100 + i, 200 + i], prefill=p, readable=128 if i else 0)
        o = answer.outcome
        assert set(o["terms"]) == set(TERMS)
        assert min(o["terms"].values()) >= 0
        assert sum(o["terms"].values()) == pytest.approx(o["ttft_ms"], abs=0.01)
        apart.append(abs(o["ttft_ms"] - (answer.at("first") - answer.at("arrived"))))
        assert answer.at("arrived") < answer.at("first")
    assert min(apart) < 5  # the caller's clock says the same


def test_tokens_are_found_or_computed_and_nothing_else(fleet):
    p, d = fleet.add("p", "d")
    for i, tokens in enumerate((1, 15, 16, 17, 511, 512, 513, 3000)):
        o = fleet.serve(d, [7, 8, 9, 10, 11, 12], tokens=tokens, prefill=p if i % 2 else None).outcome
        assert o["hit_tokens"] + o["computed_tokens"] == tokens


def test_what_becomes_of_the_blocks_is_said(fleet):
    (a,) = fleet.add("a")
    fleet.serve(a, [1, 2, 3], readable=0)
    eventually(lambda: a.agent.serving.road.recent)
    record = a.agent.serving.road.recent[-1]
    assert record["settled"]["blocks"] == {"keep": 96}
    assert record["settled"]["reasons"] == {"room": 96}
    assert set(record["settled"]["terms"]) == {"reuse", "fill", "high"}


def test_the_load_that_is_told_is_the_queue_that_is_there(fleet):
    (a,) = fleet.add("a", time_scale=100.0)
    threads = [threading.Thread(target=fleet.serve, args=(a, [i, i + 50]), kwargs={"readable": 0}) for i in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: any(e.get("waiting", 0) >= 2 and e["queue_ms"] > 300 for b in a.far.beats for e in b.load))
    for thread in threads:
        thread.join(20)
    fleet.serve(a, [90, 91], readable=0)
    time.sleep(0.7)
    last = [e for b in a.far.beats for e in b.load][-1]
    assert last["curve"][3] >= 5
    assert last["first_decode_ms"] >= 0


def test_keys_of_a_new_namespace_are_asked_for_when_its_first_request_comes(fleet):
    p, d = fleet.add("p", "d")
    fleet.ns = fleet.namespace()
    o = fleet.serve(d, [1, 2], prefill=p).outcome
    assert (o["computed_tokens"], o["fetched_blocks"], o["fell_back"]) == (1024, 64, {})
