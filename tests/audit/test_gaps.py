"""The gap finder: what is missing is named, with the first index that shows it; what is only late is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import gaps
from audit.gaps import Hole, Tally
from audit.selectors import place_of, places

GAP, DIVERGENCE, SETTLED = 0x0F02, 0x0F03, 0x0F08
REQUEUE = "INSERT INTO audit_pending (event, time_us) SELECT id, time_us FROM audit_event WHERE id = %s RETURNING 1"


def test_numbers_without_a_gap():
    tally = Tally()
    tally.add((1, n, n) for n in range(1, 100))
    tally.add((1, n, n) for n in range(100, 120))
    assert (tally.holes(), tally.doubled, tally.newest(1), tally.newest(2)) == ([], [], 119, 0)


def test_a_gap_is_named_by_the_leaf_behind_it():
    tally = Tally()
    tally.add([(7, 2, 10), (7, 3, 11), (7, 6, 12), (9, 1, 13)])
    assert tally.holes() == [Hole(7, 1, 1, 10), Hole(7, 4, 5, 12)]
    tally.add([(7, 5, 20), (7, 4, 21), (7, 1, 22)])
    assert tally.holes() == []


def test_a_number_that_comes_twice():
    tally = Tally()
    tally.add([(1, 1, 0), (1, 2, 1), (1, 3, 2)])
    tally.add([(1, 2, 9)])
    assert tally.doubled == [(1, 2, 9)]
    tally = Tally()
    tally.add([(1, 1, 0), (1, 1, 1)])
    assert tally.doubled == [(1, 1, 1)]


@given(st.permutations(range(1, 40)), st.sets(st.integers(1, 39)), st.integers(1, 10))
def test_any_order_and_any_cut_finds_what_is_missing(order, missing, cut):
    seen = [n for n in order if n not in missing]
    tally = Tally()
    for at in range(0, len(seen), cut):
        tally.add((3, n, n) for n in seen[at : at + cut])
    tally = Tally(__import__("json").loads(tally.pack()))
    said = {n for hole in tally.holes() for n in range(hole.first, hole.last + 1)}
    assert said == {n for n in missing if n < max(seen, default=0)}
    assert tally.doubled == []


def test_a_whole_log_has_no_findings_and_is_read_once(log):
    log.events(30)
    log.seal()
    log.events(5)
    assert gaps.look() == 0
    assert log.rows("SELECT next FROM audit_walk WHERE name = 'gaps'") == [(30,)]
    log.seal()
    assert gaps.look() == 0
    assert log.findings() == []


@pytest.mark.parametrize("also_queue", [True, False])
def test_an_event_deleted_before_it_was_sealed(log, also_queue):
    log.events(10)
    log.seal()
    ids = log.events(3)
    rest = [f"DELETE FROM audit_pending WHERE event = {ids[1]}"] if also_queue else []
    log.attack(f"DELETE FROM audit_event WHERE id = {ids[1]}", *rest)
    log.seal()
    assert gaps.look() == 1
    assert log.findings() == [("producer-gap", 11)]
    assert log.told(GAP) == 1
    log.seal()
    assert gaps.look() == 0, "the same is told once"


def test_the_last_event_of_a_producer_is_missed_too(log):
    log.events(4)
    log.seal()
    (id_,) = log.events(1)
    log.attack(f"DELETE FROM audit_event WHERE id = {id_}", f"DELETE FROM audit_pending WHERE event = {id_}")
    assert gaps.look() == 1
    assert log.findings() == [("producer-gap", 4)]


def test_an_event_taken_out_of_the_queue(log):
    ids = log.events(4)
    log.attack(f"DELETE FROM audit_pending WHERE event = {ids[3]}")
    log.seal()
    gaps.look()
    assert ("event-unsealed", None) in log.findings()
    assert log.told(DIVERGENCE) == 1


def test_an_event_under_the_number_of_another_one_is_not_in_the_log(log):
    """A superuser writes an event past the log, under a number and with a proof that are another one's."""
    ids = log.events(4)
    log.seal()
    columns = (
        "event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, producer_id, producer_seq, body, body_hash,"
        " pii_commit, object_kind, object_id, request_id"
    )
    log.attack(f"INSERT INTO audit_event (id, event_id, time_us, {columns}) SELECT id, gen_random_uuid(), time_us + 1,"
               f" {columns} FROM audit_event WHERE id = {ids[2]}")  # fmt: skip
    assert gaps.look() == 1
    assert log.findings() == [("event-unsealed", None)]
    true, false = (t for (t,) in log.rows("SELECT time_us FROM audit_event WHERE id = %s ORDER BY time_us", ids[2]))
    found = places(ids)
    assert place_of(ids[2], true, found).index == 2
    assert place_of(ids[2], false, found) is None
    assert gaps.look() == 0
    assert log.findings() == [("event-unsealed", None)], "it stays so"


def test_what_comes_late_closes_its_gap_with_when_it_was_seen(log):
    log.events(5)
    log.seal()
    ids = log.events(3)
    held = [f"DELETE FROM audit_pending WHERE event = {ids[1]}"]
    log.attack(*held)
    log.seal()
    gaps.look()
    assert sorted(kind for kind, _ in log.findings()) == ["event-unsealed", "producer-gap"]
    gaps.look()
    log.rows(REQUEUE, ids[1])
    assert gaps.look() == 0
    assert log.findings() == [], "it is on its way"
    log.seal()
    assert gaps.look() == 0
    closed = log.rows("SELECT kind, at < seen_at, resolved_at >= seen_at FROM audit_finding ORDER BY kind")
    assert closed == [("event-unsealed", True, True), ("producer-gap", True, True)], "they stay readable"
    bodies = log.rows("SELECT body FROM audit_event WHERE event_type = %s", SETTLED)
    told = [json.loads(bytes(body))["data"] for (body,) in bodies]
    assert {(t["kind"], t["reason"]) for t in told} == {("event-unsealed", "sealed"), ("producer-gap", "came-late")}
    assert all(t["first_seen"] < t["last_seen"] for t in told)


def test_a_gap_that_shrinks_is_another_one_and_one_that_stays_is_not_closed(log):
    log.events(5)
    log.seal()
    ids = log.events(4)
    log.attack(
        f"DELETE FROM audit_event WHERE id = {ids[1]}", f"DELETE FROM audit_pending WHERE event = ANY(ARRAY{ids[1:3]})"
    )
    log.seal()
    gaps.look()
    log.rows(REQUEUE, ids[2])
    log.seal()
    gaps.look()
    gaps.look()
    assert [kind for kind, _ in log.findings()] == ["producer-gap"]
    assert log.told(GAP) == 1


def test_every_event_is_looked_for_in_turn_also_one_that_is_committed_behind_the_turn(log, monkeypatch):
    monkeypatch.setattr(gaps, "RECENT", 2)
    monkeypatch.setattr(gaps, "IN_TURN", 10)
    ids = log.events(12) + log.events(15) + log.events(12)
    log.seal()
    turns = []
    for _ in range(3):
        assert gaps.look() == 0
        turns += log.rows("SELECT next FROM audit_walk WHERE name = 'events'")
    assert turns[0] < turns[1] < turns[2]
    log.attack(f"DELETE FROM audit_leaf WHERE event = {ids[3]}")
    found = 0
    for _ in range(5):
        found += gaps.look()
    assert found >= 1
    assert ("event-unsealed", None) in log.findings()
    assert log.rows("SELECT done_at IS NOT NULL FROM audit_walk WHERE name = 'events'") == [(True,)]
