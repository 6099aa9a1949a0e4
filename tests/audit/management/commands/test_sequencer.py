"""`manage.py sequencer`: events of a fresh database are sealed from index 0; a second process waits and takes over."""

import time

import psycopg
import pytest

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def until(check, what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def test_events_are_sealed_from_index_0_and_the_second_process_takes_over(console):
    console.start("signer", "sequencer")
    console.seed()
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:

        def sealed() -> bool:
            row = cx.execute(
                "SELECT (SELECT count(*) FROM audit_event), count(*), min(idx), max(idx) FROM audit_leaf"
            ).fetchone()
            return row[0] == row[1] > 0 and row[2:] == (0, row[1] - 1)

        until(sealed, "every event has its leaf")
        console._spawn("second", console.site.command("sequencer"), console.site.env("sequencer"))
        time.sleep(1.0)
        assert console.processes["second"].poll() is None
        console.kill("sequencer")
        before = cx.execute("SELECT count(*) FROM audit_leaf").fetchone()
        console.manage("node_create", "n1=http://127.0.0.1:9")
        until(
            lambda: sealed() and cx.execute("SELECT count(*) FROM audit_leaf").fetchone() > before, "the second seals"
        )
    console.processes["second"].terminate()
    assert console.processes["second"].wait(30) == 0
    assert "Traceback" not in console.log("second")
