"""A trace goes through a router to real agents: what is decided, found and measured is in the record."""

import json
import time
import urllib.request

import psycopg
import pytest

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def trace(path, sessions=6, turns=4):
    """Sessions over one shared head, turn by turn."""
    rows, at = [], 0
    for turn in range(turns):
        for s in range(sessions):
            ids = [1, 2, *(100 + 10 * s + t for t in range(turn + 1))]
            at += 10
            rows.append({"timestamp": at, "input_length": len(ids) * 512 - 5, "output_length": 20, "hash_ids": ids,
                         "session": f"s{s}"})  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def measured(console, count, seconds=20):
    """The decisions of the record once so many have their outcome."""
    deadline = time.monotonic() + seconds
    while True:
        with psycopg.connect(console.database.dsn("superuser")) as cx:
            rows = cx.execute(
                "SELECT answer, node, prompt_tokens, hit_tokens, overlap_tokens, measured_ms, measured"
                " FROM routing_decision WHERE measured_ms IS NOT NULL"
            ).fetchall()
        if len(rows) >= count or time.monotonic() > deadline:
            return rows
        time.sleep(0.2)


def test_a_replay_asks_the_router_and_tells_it_what_came_of_it(console, tmp_path):
    console.start("web", "signer", "ingest", "worker", "beat", "router")
    console.seed()
    console.nodes("n1", "n2", profile="ref-64")
    rows = trace(tmp_path / "t.jsonl")
    time.sleep(3)  # both have reported, and the router has read it
    said = console.manage("replay", str(tmp_path / "t.jsonl"), "--speed", "max", "--model", "ref-64",
                          "--concurrency", "4", timeout=120)  # fmt: skip
    assert said.startswith(f"{len(rows)} requests replayed, 0 failed")
    found = measured(console, len(rows))
    assert len(found) == len(rows)
    assert {row[1] for row in found} <= {"n1", "n2"}
    assert sum(row[2] for row in found) == sum(row["input_length"] for row in rows)
    assert sum(row[3] for row in found) > sum(row["input_length"] for row in rows) // 2
    for row in found:
        assert set(row[6]) == {"router", "queue_p", "cache_load", "prefill", "transfer", "queue_d", "first_decode"}
        assert sum(row[6].values()) == pytest.approx(row[5], abs=0.01)
    with psycopg.connect(console.database.dsn("superuser")) as cx:
        tokens = cx.execute("SELECT revoked_at IS NULL FROM tenants_token WHERE name = 'replay'").fetchall()
    assert tokens == [(False,)]
    assert console.manage("replay", str(tmp_path / "t.jsonl"), "--speed", "max", "--model", "ref-64", "--no-router",
                          "--limit", "3").startswith("3 requests replayed")  # fmt: skip
    assert len(measured(console, 0, 0)) == len(rows)


def test_where_one_node_computes_and_another_decodes_nothing_is_lost(console, tmp_path):
    console.start("web", "signer", "ingest", "worker", "beat")
    console.seed()
    console.nodes("p", "d", profile="ref-64")
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        cx.execute("SET session_replication_role = replica")  # what a test plants is nobody's act
        for name, role in (("p", "prefill"), ("d", "decode")):
            cx.execute("UPDATE catalog_node SET role = %s WHERE name = %s", (role, name))
    console.start("router")
    rows = trace(tmp_path / "t.jsonl", sessions=4, turns=3)
    time.sleep(3)
    said = console.manage("replay", str(tmp_path / "t.jsonl"), "--speed", "max", "--model", "ref-64",
                          "--concurrency", "2", timeout=120)  # fmt: skip
    assert said.startswith(f"{len(rows)} requests replayed, 0 failed")
    found = measured(console, len(rows))
    assert len(found) == len(rows)
    assert {row[1] for row in found} == {"p"}
    served = {name: status(console, name)["serving"] for name in ("p", "d")}
    assert served["p"]["prefills"] > 0
    assert served["p"]["given_bytes"] > 0
    assert served["d"]["committed_blocks"] > 0
    assert (served["d"]["transferring"], served["d"]["reserved_blocks"], served["d"]["reservations"]) == (0, 0, 0)
    assert not [code for code in served["d"]["counts"] if code.startswith("fell-back")]


def status(console, name):
    with urllib.request.urlopen(console._status_url(name), timeout=5) as answer:
        return json.load(answer)
