"""What a `web` process counted and had not told yet is told when it ends."""

import json
import signal
import time

import psycopg
import pytest

from tests.accept.conftest import a_console
from tests.accept.tenancy import Caller, plant_token

pytestmark = [pytest.mark.accept, pytest.mark.walk]
CALLS = 40


@pytest.mark.timeout(300)
def test_no_count_is_lost_when_the_process_ends(postgres, template, service_base):
    with a_console(postgres, template, service_base) as console:
        console.start("signer", "web")
        caller = Caller(console.url, plant_token(console, "viewer"))
        for _ in range(CALLS):
            assert caller("POST", "/tenants", {}).status_code == 403
        console.kill("web", signal.SIGTERM)
        until = time.monotonic() + 30
        while (calls := told(console)) != CALLS and time.monotonic() < until:
            time.sleep(0.2)
        assert calls == CALLS


def told(console):
    """Calls that events stand for."""
    with psycopg.connect(console.database.dsn("audit")) as c:
        rows = c.execute("SELECT body FROM audit_event WHERE event_type = 752").fetchall()
    return sum(json.loads(bytes(body))["data"]["calls"] for (body,) in rows)
