"""The scrubber: a whole log is found whole, its place survives restarts, its verdicts are events."""

import sys
import threading
import time

import pytest

from audit.scrubber import Scrubber

SCRUBBED, DIVERGENCE = 0x0F04, 0x0F03


@pytest.fixture
def scrubber(log):
    made = Scrubber(log.database.dsn("seq"), rate=0)
    yield made
    made.close()


@pytest.mark.parametrize("size", [1, 256, 700, 9000])
def test_a_log_as_it_was_sealed(log, scrubber, size):
    log.events(size)
    log.seal()
    turns = sys.getswitchinterval()
    verdict = scrubber.round()
    assert sys.getswitchinterval() == turns, "of the whole process"
    assert (verdict.size, verdict.first_divergent, verdict.divergences) == (size, None, 0)
    assert log.findings() == []
    assert log.told(SCRUBBED) == 1
    log.seal()
    assert scrubber.round().size == size + 1


def test_an_edit_is_an_event_once_and_settled_when_it_is_put_right(log, scrubber):
    log.events(600)
    log.seal()
    swap = "UPDATE audit_leaf SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE idx = 300"
    log.attack("ALTER TABLE audit_leaf DROP CONSTRAINT IF EXISTS audit_leaf_hash_check, ADD CHECK (true)", swap)
    assert scrubber.round().first_divergent == 300
    assert scrubber.round().first_divergent == 300
    assert (log.told(DIVERGENCE), log.told(SCRUBBED)) == (1, 2)
    assert log.findings() == [("leaf", 300)]
    log.attack(swap)
    assert scrubber.round().divergences == 0
    assert log.findings() == []


def test_a_round_goes_on_where_it_was_stopped(log):
    log.events(9000)
    log.seal()
    first = Scrubber(log.database.dsn("seq"), rate=2000)

    def work() -> None:
        first.round()
        first.close()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.7)
    first.stopping.set()
    thread.join(20)
    ((at,),) = log.rows("SELECT next FROM audit_walk WHERE name = 'scrub'")
    assert 0 < at < 9000
    second = Scrubber(log.database.dsn("seq"), rate=0)
    verdict = second.round()
    second.close()
    assert (verdict.size, verdict.divergences) == (9000, 0)


def test_one_scrubber_at_a_time(log, scrubber):
    other = Scrubber(log.database.dsn("seq"))
    assert scrubber._lead()
    assert not other._lead()


def test_rounds_come_by_themselves_and_rest_between(log, scrubber):
    log.events(10)
    log.seal()
    thread = threading.Thread(target=scrubber.run)
    thread.start()
    deadline = time.monotonic() + 15
    while not log.told(SCRUBBED) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    scrubber.stopping.set()
    thread.join(10)
    assert log.told(SCRUBBED) == 1


def test_a_large_body_is_hashed_as_well(log, scrubber):
    log.event(b'{"x":"' + b"a" * (1 << 20) + b'"}')
    id_ = log.event(b'{"x":"' + b"b" * 9000 + b'"}')
    log.seal()
    assert scrubber.round().divergences == 0
    log.attack(f"UPDATE audit_event SET body = set_byte(body, 5000, 99) WHERE id = {id_}")
    assert scrubber.round().first_divergent == 1
    assert log.findings() == [("body", 1)]
