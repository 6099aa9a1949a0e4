"""`manage.py resync` with a real agent: the order goes out, the inventory comes in, the source is verified."""

import subprocess
import sys

import psycopg
import pytest

from kvconsole.serverprocess import CLONE

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def test_a_real_node_is_verified(console):
    console.start("signer", "web", "ingest")
    console.seed()
    console.node("n1")
    assert console.manage("resync", "n1", "--wait", "60", timeout=120).strip() == "n1: verified"
    with psycopg.connect(console.database.dsn("operator"), autocommit=True) as cx:
        states = cx.execute("SELECT DISTINCT state FROM catalog_source").fetchall()
    assert states == [("exact",)]
    unknown = [sys.executable, "manage.py", "resync", "nobody"]
    done = subprocess.run(unknown, capture_output=True, text=True, cwd=CLONE, env=console.env)
    assert done.returncode == 1
    assert "not an enrolled node: nobody" in done.stderr
