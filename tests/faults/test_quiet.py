"""PostgreSQL goes for some seconds under a running console: each process says so in a few lines, and who was refused
meanwhile is on disk, and on the trail afterwards."""

import contextlib
import json
import re
import time
import urllib.error
import urllib.request
from datetime import datetime

import httpx
import psycopg
import pytest

AWAY_SECONDS = 8.0


def ask(url):
    with contextlib.suppress(urllib.error.HTTPError, OSError), urllib.request.urlopen(url, timeout=5):
        pass


class Stranger:
    """Somebody who has the log-in page open and types names and passwords."""

    def __init__(self, url):
        self.client = httpx.Client(base_url=url, headers={"Referer": f"{url}/login", "Origin": url}, timeout=10)
        page = self.client.get("/login").text
        self.token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]

    def guess(self, name):
        form = {"username": name, "password": "guessed", "csrfmiddlewaretoken": self.token}
        return self.client.post("/login", data=form).status_code

    def call(self):
        answer = self.client.post("/api/v1/tenants", json={}, headers={"Authorization": "Bearer kvc_user_x"})
        return answer.status_code


def late(doomed):
    """Events that were recorded after the time they happened: (type, what is said of it, when, when recorded)."""
    with psycopg.connect(doomed.database.dsn("superuser"), autocommit=True) as c:
        rows = c.execute(
            "SELECT event_type, body, time_us FROM audit_event WHERE flags & 8 <> 0 ORDER BY id"
        ).fetchall()
    bodies = [json.loads(bytes(body)) for _, body, _ in rows]
    return [(r[0], b["data"], b.get("happened_at", ""), r[2] / 1e6) for r, b in zip(rows, bodies, strict=True)]


def spooled(doomed):
    paths = (doomed.state / "spool").glob("*.jsonl")
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.walk
def test_an_absence_is_a_few_lines_in_each_log(doomed):
    doomed.start("signer", "web", "ingest", "worker", "beat")
    doomed.node("n1")  # whose heartbeats keep the writer at work
    time.sleep(3)
    names = ("web", "ingest", "worker", "beat")
    before = {name: len(doomed.log(name)) for name in names}
    stranger = Stranger(doomed.url)
    doomed.database.postgres.kill()
    began = time.time()
    assert ({stranger.guess(name) for name in ("root", "root", "admin")}, stranger.call()) == ({503}, 401)
    stranger.client.close()
    waits = spooled(doomed)  # on disk before the answer, and nobody reads a name there
    assert {line["event"]["event_type"] for line in waits} == {"user.login_refused", "access.refused"}
    assert not [line for line in waits if "root" in json.dumps(line) or "admin" in json.dumps(line)]
    until = time.monotonic() + AWAY_SECONDS
    while time.monotonic() < until:
        ask(f"{doomed.url}/login")
        ask(f"{doomed.url}/readyz")
        ask(f"{doomed.url}/api/v1/fleet-key")
        time.sleep(0.2)
    doomed.database.postgres.start()
    doomed.wait(f"{doomed.ingest_url}/readyz", "ingest")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not all("is back" in doomed.log(n) for n in ("web", "ingest", "worker")):
        ask(f"{doomed.url}/login")
        time.sleep(0.2)
    _taken_in(doomed, began)
    said = {name: doomed.log(name)[before[name] :] for name in names}
    for name in ("web", "ingest", "worker"):
        assert len(re.findall(r"PostgreSQL is away \(", said[name])) == 1, said[name]
        assert len(re.findall(r"PostgreSQL is back after \d+\.\d s", said[name])) == 1, said[name]
    for name in names:
        assert "Traceback" not in said[name], said[name]
        assert len(said[name].splitlines()) <= 12, said[name]


def _taken_in(doomed, began):
    """Each refusal is one late event, with the time it happened, and all calls are told or will be in a count."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(kind == 0x0F07 for kind, *_ in late(doomed)):
        time.sleep(0.5)
    found = late(doomed)
    logins = [row for row in found if row[0] == 0x0113]
    calls = [row for row in found if row[0] == 0x02F0 and row[1]["code"] == "token-invalid"]
    assert {row[1]["reason"] for row in logins} == {"unavailable"}
    assert len(logins) == 2, "two names, whose second tries are counted"
    assert any(row[1]["route"] == "tenants" for row in calls)
    for _, _, happened, recorded in logins:
        at = datetime.fromisoformat(happened).timestamp()
        assert began - 1 < at < began + AWAY_SECONDS < recorded
    assert not spooled(doomed)
