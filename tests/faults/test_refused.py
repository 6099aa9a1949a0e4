"""A million refused calls with one token: a handful of events that add up, and a process that stays as it was."""

import http.client
import json
import os
import signal
import threading
import time
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from tests.accept.tenancy import plant_token

CALLS = int(os.environ.get("KVC_FAULT_CALLS", "1000000"))
AT_ONCE = 8
GROWN_BYTES = 64 << 20


def refused(url: str, token: str, left: list[None], answers: list[int]) -> None:
    """Calls until none is left, over one connection."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    while True:
        try:
            left.pop()
        except IndexError:
            return connection.close()
        connection.request("POST", "/api/v1/tenants", b"{}", headers)
        answer = connection.getresponse()
        answer.read()
        answers.append(answer.status)


def told(console) -> tuple[int, int]:
    """(events of refusals, calls that they stand for)."""
    with psycopg.connect(console.database.dsn("audit")) as c:
        rows = c.execute("SELECT body FROM audit_event WHERE event_type = 752").fetchall()
    return len(rows), sum(json.loads(bytes(body))["data"]["calls"] for (body,) in rows)


@pytest.mark.slow
@pytest.mark.walk
@pytest.mark.timeout(7200)
def test_a_million_refused_calls_are_told_by_a_few_events_that_add_up(console):
    console.start("signer", "sequencer", "web")
    token, left, answers = plant_token(console, "viewer"), [None] * CALLS, list[int]()
    process, begin = psutil.Process(console.processes["web"].pid), time.monotonic()
    first = [None] * 2_000
    refused(console.url, token, first, answers)
    before = process.memory_info().rss
    threads = [threading.Thread(target=refused, args=(console.url, token, left, answers)) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, grown = time.monotonic() - begin, process.memory_info().rss - before
    console.kill("web", signal.SIGTERM)
    deadline = time.monotonic() + 60
    while (found := told(console))[1] < len(answers) and time.monotonic() < deadline:
        time.sleep(0.5)
    print(f"{len(answers)} calls in {seconds:.0f} s, {found[0]} events, web grew by {grown >> 20} MiB")
    assert set(answers) <= {403, 429}
    assert found[1] == len(answers) == CALLS + 2_000
    assert found[0] <= 2 * (seconds / 60 + 2)
    assert grown < GROWN_BYTES
