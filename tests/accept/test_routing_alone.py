"""A router whose PostgreSQL and Valkey are gone for a minute: it answers everybody, and soon promises nothing."""

import os
import time
from urllib.parse import urlsplit

import pytest

from tests.accept.fleet import say
from tests.frontend.test_walk_database import Line
from tests.routing.walking import Routed

pytestmark = [pytest.mark.accept, pytest.mark.timeout(600)]
SECONDS = 60 if os.environ.get("KVC_ACCEPT", "") == "full" else 12
LEASE = 5.0


def refusals(*answers):
    return [(a.status_code, a.json().get("code")) for a in answers]


def test_router_alive_postgresql_and_valkey_down_every_request_answered_after_five_seconds_none_with_a_hit(
    console, request
):
    lines = (Line(int(console.database["KVC_DB_PORT"])), Line(urlsplit(console.broker.url).port))
    for line in lines:
        request.addfinalizer(line.cut)
    walk = Routed(console, lines=lines)
    walk.drive("n1", [1])
    body = {"block_keys": walk.chain(16).hex(), "key_bytes": 16, "prompt_tokens": 16 * 16 + 5}
    walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    for line in lines:
        line.cut()
    cut, answers = time.monotonic(), []
    while time.monotonic() - cut < SECONDS:
        asked = time.monotonic() - cut
        answer = walk.route(**{**body, "session": f"s{len(answers)}"})
        answers.append((asked, time.monotonic() - cut - asked, answer.status_code, answer.json()))
        time.sleep(0.1)
    late = [a for asked, _, _, a in answers if asked > LEASE]
    slowest = max(took for _, took, _, _ in answers)
    say("routing-alone", seconds=SECONDS, asked=len(answers), answered=sum(a[2] == 200 for a in answers),
        after_the_lease=len(late), hits_after=sum(a["overlap_tokens"] > 0 for a in late),
        last_hit_s=round(max(t for t, _, _, a in answers if a["overlap_tokens"]), 2),
        slowest_ms=round(slowest * 1000, 1))  # fmt: skip
    assert {status for _, _, status, _ in answers} == {200}, answers[-1]
    assert {(a["overlap_tokens"], a["index"]["mode"]) for a in late} == {(0, "recompute")}
    assert all(a["ticket"] and a["cache_salt"] for a in late)
    assert any(a["overlap_tokens"] for asked, _, _, a in answers if asked < 3.0)
    assert slowest < 1.0, slowest
    # who is not known is not guessed at, and an unknown namespace finds and shares nothing
    assert refusals(walk.route("stranger", **body)) == [(503, "unavailable")]
    new = walk.route(**{**body, "label": "new"})
    assert (new.status_code, new.json()["ticket"], new.json()["overlap_tokens"]) == (200, None, 0)
    assert new.json()["cache_salt"] != late[0]["cache_salt"]
    for line in lines:
        line.restore()
    back = walk.until(lambda a: a["overlap_tokens"] == 256 and a["index"]["mode"] == "live", **body)
    assert back["ticket"]
    recorded = "SELECT count(*) FROM routing_decision WHERE answer = 'recompute'"
    deadline = time.monotonic() + 20  # what was decided meanwhile is written once there is somewhere to write it to
    while walk.rows(recorded) < [(len(late) // 2,)] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert walk.rows(recorded) >= [(len(late) // 2,)]
