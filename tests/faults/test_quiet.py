"""PostgreSQL goes for some seconds under a running console: each process says so in a few lines."""

import contextlib
import re
import time
import urllib.error
import urllib.request

import pytest

AWAY_SECONDS = 8.0


def ask(url):
    with contextlib.suppress(urllib.error.HTTPError, OSError), urllib.request.urlopen(url, timeout=5):
        pass


@pytest.mark.walk
def test_an_absence_is_a_few_lines_in_each_log(doomed):
    doomed.start("signer", "web", "ingest", "worker", "beat")
    doomed.node("n1")  # whose heartbeats keep the writer at work
    time.sleep(3)
    names = ("web", "ingest", "worker", "beat")
    before = {name: len(doomed.log(name)) for name in names}
    doomed.database.postgres.kill()
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
    said = {name: doomed.log(name)[before[name] :] for name in names}
    for name in ("web", "ingest", "worker"):
        assert len(re.findall(r"PostgreSQL is away \(", said[name])) == 1, said[name]
        assert len(re.findall(r"PostgreSQL is back after \d+\.\d s", said[name])) == 1, said[name]
    for name in names:
        assert "Traceback" not in said[name], said[name]
        assert len(said[name].splitlines()) <= 12, said[name]
