"""Real processes: a router decides, explains, records; killed and begun again; two side by side."""

import time
import uuid

import pytest

from tests.routing.walking import Routed

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def question(walk):
    walk.drive("n1", [1])
    return {"block_keys": walk.chain(16).hex(), "key_bytes": 16, "prompt_tokens": 16 * 16 + 5}


def codes(answers):
    return [(a.status_code, a.json().get("code")) for a in answers]


def test_a_decision_from_the_question_to_the_record(console):
    walk = Routed(console)
    body = question(walk)
    answer = walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    assert answer["prefill"]["node"] == "n1"
    assert (answer["plan"][0]["from_block"], answer["plan"][0]["to_block"], answer["plan"][0]["source"]) == (
        0, 16, "local")  # fmt: skip
    assert answer["cache_salt"]
    assert answer["ticket"]["node"] == walk.nodes["n1"]["id"]
    assert answer["index"]["mode"] == "live"
    assert sum(answer["predicted"]["terms"].values()) == pytest.approx(answer["predicted"]["ttft_ms"])
    member = walk.route("member", **body).json()
    assert (member["cache_salt"], member["overlap_tokens"]) == (None, 256)
    # foreign and unknown tenants answer alike; so do models
    stranger, nobody = walk.route("stranger", **body), walk.route("stranger", **{**body, "tenant": "nobody"})
    assert codes([stranger, nobody]) == [(404, "not-found")] * 2
    assert stranger.json()["title"] == nobody.json()["title"]
    assert codes([walk.route(**{**body, "model": "nothing"})]) == [(404, "unknown-model")]
    assert codes([walk.route("member", token_ids=[1, 2, 3])]) == [(403, "token-ids-refused")]
    # the outcome: once, and only from who got the answer
    path = f"decisions/{answer['decision_id']}/outcome"
    told = {"ttft_ms": answer["predicted"]["ttft_ms"] + 3, "terms": {"prefill": 2.5}, "hit_tokens": 10**6}
    absent = walk.post(f"decisions/{uuid.uuid4()}/outcome", told)
    assert codes([walk.post(path, told, "other"), absent]) == [(404, "not-found")] * 2
    assert walk.post(path, told).json() == {"taken": True}
    assert codes([walk.post(path, told)]) == [(409, "outcome-known")]
    seen = recorded(walk, answer["decision_id"])
    assert seen[:3] == ("hit", "n1", 256)
    assert seen[3:5] == (told["ttft_ms"], 261)
    # a router that begins anew does not know it, the table does
    console.kill("router")
    console.start("router")
    assert codes([walk.post(path, told)]) == [(409, "outcome-known")]
    again = walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    time.sleep(1)
    console.kill("router")
    console.start("router")
    assert walk.post(f"decisions/{again['decision_id']}/outcome", told).json() == {"taken": True}
    foreign = walk.post("decisions", {**body, "tenant": "walk", "model": "ref-64", "origin": "dynamo",
                                      "chosen": {"node": "n2"}})  # fmt: skip
    assert foreign.status_code == 200, foreign.text
    assert foreign.json()["ours"]["node"] == "n1"
    assert foreign.json()["regret_ms"] > 0
    # REST in web re-scores it
    logins = console.seed()
    assert logins
    shown = console.manage("shell", "-v", "0", "-c",
                           "from uuid import UUID\nfrom routing.selectors import decision_view\n"
                           f"print(decision_view(UUID('{answer['decision_id']}')).reproducible)")  # fmt: skip
    assert shown.split() == ["True"]


def recorded(walk, decision, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rows = walk.rows("SELECT answer, node, overlap_tokens, measured_ms, hit_tokens FROM routing_decision"
                         " WHERE id = %s AND measured_ms IS NOT NULL", uuid.UUID(decision))  # fmt: skip
        if rows:
            return rows[0]
        time.sleep(0.1)
    raise AssertionError("it was not recorded")


def test_two_routers_side_by_side_acknowledge_a_fence_and_a_killed_ones_lease_ends(console):
    walk = Routed(console)
    body = question(walk)
    walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    assert walk.rows("SELECT count(*) FROM routing_indexlease WHERE until > now()")[0][0] >= 1
    bump = (
        "from tenants import services\nfrom tenants.selectors import namespaces_by_digest\n"
        f"row = namespaces_by_digest([bytes.fromhex('{walk.digest.hex()}')])\n"
        "from kvconsole.infra.access import system, tenant_context\n"
        "with tenant_context(system('walk')):\n"
        "    services.generation_bump(namespace=next(iter(row.values())).id, reason='walk', actor=system('walk'))"
    )
    console.manage("shell", "-v", "0", "-c", bump)
    answer = walk.until(lambda a: a["ticket"]["gen"] == 2, seconds=5, **body)
    assert answer["overlap_tokens"] == 0
    (seq,) = walk.rows("SELECT max(seq) FROM tenants_fenceentry")[0]
    deadline = time.monotonic() + 5
    behind = "SELECT count(*) FROM routing_indexlease WHERE until > now() AND fence_seq < %s"
    while walk.rows(behind, seq)[0][0] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert walk.rows(behind, seq) == [(0,)]
    console.kill("router")
    time.sleep(5.5)
    assert walk.rows("SELECT count(*) FROM routing_indexlease WHERE until > now() AND name LIKE '%%/%%'")[0][0] <= 1
