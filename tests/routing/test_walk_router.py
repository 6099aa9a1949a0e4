"""Real processes: a router decides, explains, records; killed and begun again; without PostgreSQL it answers on."""

import time
import uuid
from urllib.parse import urlsplit

import pytest

from tests.frontend.test_walk_database import Line
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


def test_with_postgresql_and_valkey_gone_every_request_is_answered_and_after_five_seconds_none_with_a_hit(console):
    lines = (Line(int(console.database["KVC_DB_PORT"])), Line(urlsplit(console.broker.url).port))
    walk = Routed(console, lines=lines)
    body = question(walk)
    walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    for line in lines:
        line.cut()
    cut, answers = time.monotonic(), []
    while time.monotonic() - cut < 60:
        asked = time.monotonic() - cut
        fields = {**body, "session": f"s{len(answers)}"}
        answer = walk.route(**fields)
        answers.append((asked, time.monotonic() - cut - asked, answer.status_code, answer.json()))
        time.sleep(0.1)
    assert {status for _, _, status, _ in answers} == {200}, answers[-1]
    late = [a for asked, _, _, a in answers if asked > 5.0]
    assert {(a["overlap_tokens"], a["index"]["mode"]) for a in late} == {(0, "recompute")}
    assert all(a["ticket"] and a["cache_salt"] for a in late)
    assert any(a["overlap_tokens"] for asked, _, _, a in answers if asked < 3.0)
    slowest = max(took for _, took, _, _ in answers)
    assert slowest < 1.0, slowest
    # who is not known is not guessed at, and an unknown namespace finds and shares nothing
    assert codes([walk.route("stranger", **body)]) == [(503, "unavailable")]
    new = walk.route(**{**body, "label": "new"})
    assert (new.status_code, new.json()["ticket"], new.json()["overlap_tokens"]) == (200, None, 0)
    assert new.json()["cache_salt"] != late[0]["cache_salt"]
    for line in lines:
        line.restore()
    back = walk.until(lambda a: a["overlap_tokens"] == 256 and a["index"]["mode"] == "live", **body)
    assert back["ticket"]
    assert walk.rows("SELECT count(*) FROM routing_decision WHERE answer = 'recompute'") >= [(len(late) // 2,)]


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
