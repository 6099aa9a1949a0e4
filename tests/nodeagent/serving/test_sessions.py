"""A session's next turn never reads less than it wrote, and a session that moved is served where it is now."""

import httpx
import msgspec

from kvcore.keys import KEY_BYTES
from nodeagent.serving.words import SessionMove


def test_the_next_turn_reads_what_was_held_back(fleet):
    (a,) = fleet.add("a", tpot_ms=40.0)
    first = fleet.serve(a, [1, 2], readable=0, session="s", output=100)
    assert first.outcome["computed_tokens"] == 1024
    assert a.agent.engine.running == 1  # 4 s of decode, and the next turn is here already
    again = fleet.serve(a, [1, 2, 3], readable=0, session="s").outcome
    assert a.agent.serving.road.sessions.waited == 1
    written = a.agent.serving.road.sessions.of(fleet.ns, "s")
    assert written.blocks >= 64 + 100 // 16
    assert again["hit_tokens"] + again["computed_tokens"] == 1536


def test_what_the_session_wrote_is_read_although_the_router_knew_of_less(fleet):
    (a,) = fleet.add("a")
    fleet.serve(a, [1, 2], readable=0, session="s")
    o = fleet.serve(a, [1, 2, 3], readable=0, session="s").outcome
    assert (o["hit_tokens"], o["floor_tokens"]) == (1024, 1024)
    assert fleet.serve(a, [1, 2, 3], readable=0, session="t").outcome["hit_tokens"] == 0


def test_a_move_is_flush_acknowledge_fence(fleet):
    a, b = fleet.add("a", "b", tpot_ms=40.0)
    fleet.serve(a, [1, 2], readable=0, session="s", output=100)
    chain = fleet.chain([1, 2])
    move = SessionMove(ticket=fleet.ticket(a, chain, 0, "m"), session="s", version=1)
    answer = httpx.post(a.url + "/v1/sessions", content=msgspec.msgpack.encode(move), trust_env=False)
    said = msgspec.msgpack.decode(answer.content)
    assert said["blocks"] >= 64 + 6  # what was held back is committed before it is acknowledged
    assert said["last"] in a.agent.pool.index
    assert said["version"] == 1
    assert fleet.serve(a, [1, 2, 3], session="s").refused == "session-fenced"
    o = fleet.serve(b, [1, 2, 3], giver=(a, 0, 64), readable=64, session="s", version=1).outcome
    assert (o["hit_tokens"], o["fell_back"]) == (1024, {})
    assert len(chain) == 64 * KEY_BYTES
    assert fleet.serve(a, [1, 2, 3], session="s", version=2).outcome["computed_tokens"] >= 0  # it came back
    bad = httpx.post(a.url + "/v1/sessions", content=b"\xc1", trust_env=False)
    assert (bad.status_code, bad.json()["code"]) == (400, "request-malformed")
