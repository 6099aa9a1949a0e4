import uuid
from datetime import UTC, datetime

import msgspec
import psycopg
import pytest

from kvconsole.infra import sql
from routing import recorder as recording
from routing.recorder import Outcome, Refused, regret
from routing.selectors import decision_view, decisions_mix, decisions_newest, policies_compared, recorded, slot_of
from tests.routing.deciding import Stand, worker

IDLE = {"queue_ms": 0.0}
NOW = datetime.now(UTC)


def told(ms, hit=100, **terms):
    return Outcome(datetime.now(UTC), ms, terms, hit)


@pytest.fixture
def stand():
    made = Stand(worker("a", load=IDLE), worker("b", load={"queue_ms": 50.0}))
    made.holds("a", 40)
    return made


@pytest.fixture
def cx(transactional_db):
    with sql.connect("router") as connection:
        yield connection


def test_a_decision_is_written_read_and_scored_again(stand, cx):
    answer = stand.route()
    stand.recorder.write(cx)
    view = decision_view(uuid.UUID(answer.decision_id))
    assert view.reproducible is True
    assert view.row["answer"] == "hit"
    assert (view.row["node"], view.row["overlap_tokens"], view.row["kept"]) == ("a", 640, "all")
    assert view.row["predicted_ms"] == answer.predicted.ttft_ms
    assert view.row["measured_ms"] is None
    assert decisions_newest(limit=5)[0]["id"] == view.row["id"]
    (row,) = cx.execute("SELECT made, recorded, dropped FROM routing_tally").fetchall()
    assert row == (1, 1, 0)


def test_an_outcome_counts_once_from_its_holder_and_gives_regret(stand, cx):
    answer = stand.route(holder="g1")
    decision = uuid.UUID(answer.decision_id)
    assert stand.recorder.outcome(decision, "g2", told(9.0)) == "not-found"
    assert stand.recorder.outcome(uuid.uuid4(), "g1", told(9.0)) == "not-found"
    assert stand.recorder.outcome(decision, "g1", told(200.0, hit=10**6, prefill=3.0)) == ""
    assert stand.recorder.outcome(decision, "g1", told(1.0)) == "outcome-known"
    stand.recorder.write(cx)
    view = decision_view(decision)
    assert (view.row["measured_ms"], view.row["hit_tokens"], view.measured) == (200.0, 643, {"prefill": 3.0})
    assert view.row["regret_ms"] == pytest.approx(200.0 - answer.cards[1].total_ms)


def test_beyond_the_rate_one_in_n_is_kept_and_stands_for_n(stand, cx, monkeypatch):
    monkeypatch.setattr(recording, "FULL_RATE", 10)
    monkeypatch.setattr(recording, "ONE_IN", 4)
    decisions = [made(stand) for _ in range(50)]
    with monkeypatch.context() as patch:
        patch.setattr(recording.time, "monotonic", lambda: 1e6 + 0.5)  # one long second
        for decision in decisions:
            stand.recorder.add(decision)
    stand.recorder.write(cx)
    rows = cx.execute("SELECT kept, stands_for, count(*) FROM routing_decision GROUP BY 1, 2 ORDER BY 1").fetchall()
    assert rows == [("all", 1, 10), ("sample", 4, 10)]
    assert stand.recorder.tallies.sampled_out == 30
    assert decisions_mix(since=datetime(2000, 1, 1, tzinfo=UTC), until=datetime(2100, 1, 1, tzinfo=UTC)).made == 50


def made(stand):
    """The record of one more decision, not yet given to the recorder."""
    kept = []
    add, stand.recorder.add = stand.recorder.add, lambda item, **_: kept.append(item)
    try:
        stand.route()
    finally:
        stand.recorder.add = add
    return msgspec.structs.replace(kept[0], id=sql.uuid7())


def test_an_outlier_is_kept_though_it_was_not_its_turn(stand, cx, monkeypatch):
    monkeypatch.setattr(recording, "FULL_RATE", 0)
    one, two = made(stand), made(stand)
    stand.recorder.add(one)
    stand.recorder.add(two)
    assert stand.recorder.outcome(one.id, "g1", told(one.choice.prefill.total_ms + 1)) == ""
    assert stand.recorder.outcome(two.id, "g1", told(5000.0)) == ""
    stand.recorder.write(cx)
    assert cx.execute("SELECT id, kept, measured_ms FROM routing_decision").fetchall() == [(two.id, "outlier", 5000.0)]


def test_refusals_are_kept_without_what_was_never_made(stand, cx):
    item = Refused(id=sql.uuid7(), at=NOW, tenant_id=stand.place.tenant_id, model="x", holder="g1",
                   code="unknown-model", mode="live", prompt_tokens=7)  # fmt: skip
    stand.recorder.refuse(item)
    stand.recorder.write(cx)
    view = decision_view(item.id)
    assert (view.row["answer"], view.row["code"], view.reproducible, view.inputs) == (
        "refused", "unknown-model", None, None)  # fmt: skip


def test_what_does_not_fit_is_dropped_and_counted_exactly(stand, cx, monkeypatch):
    monkeypatch.setattr(recording, "QUEUE_MOST", 5)
    for _ in range(8):
        stand.recorder.add(made(stand))
    stand.recorder.write(cx)
    stand.recorder.write(cx)
    assert cx.execute("SELECT made, recorded, dropped FROM routing_tally").fetchall() == [(8, 5, 3)]


def test_a_batch_that_fails_waits_and_is_written_once(stand, cx):
    stand.route()
    with sql.connect("router") as broken:
        broken.close()
        with pytest.raises(psycopg.Error):
            stand.recorder.write(broken)
    assert len(stand.recorder._queue) == 1
    stand.recorder.write(cx)
    stand.recorder.write(cx)
    assert cx.execute("SELECT count(*) FROM routing_decision").fetchone() == (1,)
    assert stand.recorder.tallies.recorded == 1


def test_policies_are_compared_on_the_same_recorded_requests(stand, cx):
    from kvcore.policies import built_in

    for _ in range(6):
        stand.route()
    stand.recorder.write(cx)
    inputs = recorded(limit=100)
    ours, spread = policies_compared([built_in(), built_in("round_robin")], inputs)
    assert (ours.requests, ours.changed, ours.overlap_tokens) == (6, 0, 6 * 640)
    assert spread.overlap_tokens < ours.overlap_tokens
    assert ours.predicted_ms <= spread.predicted_ms


def test_a_tenant_sees_its_own_and_the_ring_is_emptied_by_whole_slots(stand, cx):
    stand.route()
    stand.recorder.write(cx)
    with sql.connect("tenant") as tenant, tenant.transaction():
        assert tenant.execute("SELECT count(*) FROM routing_decision").fetchone() == (0,)
        sql.enter(tenant, uuid.uuid4())
        assert tenant.execute("SELECT count(*) FROM routing_decision").fetchone() == (0,)
        sql.enter(tenant, stand.place.tenant_id)
        assert tenant.execute("SELECT count(*) FROM routing_decision").fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tenant.execute("DELETE FROM routing_decision")
    old = msgspec.structs.replace(made(stand), at=datetime(2026, 1, 1, tzinfo=UTC), id=uuid.UUID(int=7 << 76))
    stand.recorder.add(old)
    stand.recorder.write(cx)
    assert slot_of(old.id) == 0
    before = cx.execute("SELECT count(*) FROM routing_decision").fetchone()
    assert before == (2,)
    cleared = cx.execute("SELECT routing_decisions_clear(1)").fetchone()[0]
    left = cx.execute("SELECT id FROM routing_decision").fetchall()
    assert (cleared, old.id in [row[0] for row in left]) in ((1, False), (0, True))


def test_regret_is_never_below_zero_and_unknown_without_another():
    assert regret(10.0, 12.0) == 0.0
    assert regret(10.0, None) is None
    assert regret(15.0, 12.0) == 3.0
