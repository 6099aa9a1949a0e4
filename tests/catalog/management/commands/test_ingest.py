"""`manage.py ingest`: where it listens is told to readers of the shard; the rest is in tests/catalog/ingest."""

import httpx
import psycopg
import pytest

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def test_it_tells_where_it_is_and_ends_when_asked(console):
    console.start("ingest")
    with psycopg.connect(console.database.dsn("ingest"), autocommit=True) as cx:
        while cx.execute("SELECT url FROM catalog_shard").fetchone() != (console.ingest_url,):
            assert httpx.get(console.ingest_url + "/healthz").status_code == 200
    process = console.processes["ingest"]
    process.terminate()
    assert process.wait(30) in (0, -15)
    assert "Traceback" not in console.log("ingest")
