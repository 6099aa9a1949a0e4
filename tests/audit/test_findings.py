"""Findings: the same one is told once, and again when it comes back after it was settled."""

from audit.findings import finding_open, findings_settle

FOUND = {
    "kind": "leaf", "subject": "leaf/3", "first_index": 3, "detail": "x" * 900, "event_type": "log.divergence_found",
    "body": {"kind": "leaf", "index": 3, "detail": "x"},
}  # fmt: skip


def test_a_finding_is_a_row_and_an_event_once(log):
    assert finding_open(**FOUND)
    assert not finding_open(**FOUND)
    assert finding_open(**FOUND | {"subject": "leaf/4"})
    assert log.findings() == [("leaf", 3), ("leaf", 3)]
    assert log.told(0x0F03) == 2
    log.seal()
    assert log.check() == 2


def test_a_settled_finding_may_come_back(log):
    finding_open(**FOUND)
    assert findings_settle(kinds=("body",), why="w") == 0
    assert findings_settle(kinds=("leaf",), why="w", but=("leaf/3",)) == 0
    assert findings_settle(kinds=("leaf",), why="w") == 1
    assert log.findings() == []
    assert finding_open(**FOUND)
    assert log.told(0x0F03) == 2
    assert log.told(0x0F08) == 1, "that it was settled is an event too"


def test_what_was_seen_since_stays_open(log):
    finding_open(**FOUND)
    finding_open(**FOUND | {"subject": "leaf/4"})
    ((now,),) = log.rows("SELECT clock_timestamp()")
    assert not finding_open(**FOUND)
    assert findings_settle(kinds=("leaf",), why="w", unseen_since=now) == 1
    assert log.rows("SELECT subject FROM audit_finding WHERE resolved_at IS NULL") == [("leaf/3",)]
