"""`manage.py scrubber --once`: one round over a log that a real sequencer sealed; a spoiled leaf is named."""

import subprocess
import sys
import time

import psycopg
import pytest

from tests.architecture.tree import CLONE

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def one(cx: psycopg.Connection, query: str) -> int:
    (found,) = cx.execute(query).fetchone()
    return int(found)


def round_of(console) -> subprocess.CompletedProcess:
    command = [sys.executable, "manage.py", "scrubber", "--once"]
    env = console.site.env("sequencer")
    return subprocess.run(command, cwd=CLONE, env=env, capture_output=True, text=True, timeout=120)


def test_what_was_sealed_is_found_as_sealed_and_a_spoiled_leaf_is_named(console):
    console.start("signer", "sequencer")
    console.seed()
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        until = time.monotonic() + 30
        while one(cx, "SELECT count(*) FROM audit_pending") or not one(cx, "SELECT count(*) FROM audit_leaf"):
            assert time.monotonic() < until, console.log("sequencer")
            time.sleep(0.1)
        console.processes["sequencer"].terminate()
        assert console.processes["sequencer"].wait(30) == 0
        good = round_of(console)
        assert good.returncode == 0, good.stderr
        assert "as sealed" in good.stdout
        cx.execute("ALTER TABLE audit_leaf DISABLE TRIGGER ALL")
        cx.execute("UPDATE audit_leaf SET data = set_byte(data, 20, get_byte(data, 20) # 1) WHERE idx = 3")
        spoiled = round_of(console)
    assert spoiled.returncode == 1, spoiled.stderr
    assert "diverges first at index 3" in spoiled.stdout
