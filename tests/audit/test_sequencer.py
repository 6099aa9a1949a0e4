"""The sequencer: each event is one leaf, in the order of commits, whoever is killed and whoever else tries."""

import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from audit import gaps
from audit.sequencer import AGAIN_SECONDS, BATCH, FEW, GATHER_SECONDS, IDLE_SECONDS, MONTHS_SECONDS, Loop, Sequencer
from kvconsole.infra.sql import PLATFORM
from kvcore.leaf import body_hash, parse_leaf
from tests.audit.loglab import INSERT, body_of

ONE = f"{INSERT} VALUES (gen_random_uuid(), 3841, %s, %s, %s, 1, 0, %s, %s, %s, '', '', '')"
VALUES = (PLATFORM, bytes(16), bytes(16), b"{}", body_hash(b"{}"), bytes(32))
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE usename = 'kv_seq' AND datname = current_database() AND pid <> pg_backend_pid()"
)


def test_events_become_leaves_with_all_their_fields(log):
    ids = log.events(3)
    assert log.seal() == 3
    rows = log.rows(
        "SELECT l.idx, l.data, e.id, e.event_type, e.time_us, e.event_id, e.tenant_ref, e.actor_ref, e.outcome,"
        " e.flags, e.producer_id, e.producer_seq, e.body_hash, e.pii_commit FROM audit_leaf l"
        " JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us ORDER BY l.idx"
    )
    assert [row[2] for row in rows] == ids
    for at, (idx, data, _, kind, time_us, event_id, *rest) in enumerate(rows):
        leaf = parse_leaf(data)
        assert (leaf.index, leaf.event_type, leaf.time_us, leaf.event_id) == (idx, kind, time_us, event_id.bytes)
        assert [
            *(leaf.tenant_ref, leaf.actor_ref, leaf.outcome, leaf.flags),
            *(leaf.producer_id, leaf.producer_seq, leaf.body_hash, leaf.pii_commit),
        ] == rest
        assert leaf.body_hash == body_hash(body_of(at))
    assert log.check() == 3


def test_nothing_to_seal_is_no_batch(log):
    assert log.seal() == 0
    assert log.sequencer.seal().leaves == 0
    assert log.check() == 0


@pytest.mark.parametrize("counts", [(1, 254, 1), (255, 2), (256,), (257, 255), (1000, 1000, 600), (3, 1500)])
def test_tiles_are_complete_wherever_batches_end(log, counts):
    for count in counts:
        log.events(count)
        log.seal()
    size = log.check()
    assert size == sum(counts)
    assert [n for (n,) in log.rows("SELECT tile FROM audit_tile WHERE level = 0 ORDER BY tile")] == list(
        range(size // 256)
    )


def test_the_sequencer_goes_on_after_its_connection_broke(log):
    log.events(300)
    log.seal()
    log.events(900)
    log.rows(CUT)
    with pytest.raises(psycopg.OperationalError):
        log.sequencer.seal()
    log.sequencer.close()
    assert log.seal() == 900
    assert log.check() == 1200


def test_events_of_a_transaction_that_is_undone_leave_no_gap(log):
    log.events(2)
    with psycopg.connect(log.database.dsn("operator")) as c:
        c.execute(ONE, VALUES)
        c.rollback()
    log.events(2)
    log.seal()
    assert log.check() == 4


def test_who_commits_late_is_sealed_late_and_not_lost(log):
    late = psycopg.connect(log.database.dsn("operator"))
    late.execute(ONE, VALUES)
    log.events(5)
    assert log.seal() == 5
    late.commit()
    late.close()
    assert log.seal() == 1
    assert log.check() == 6


def test_numbers_of_a_producer_go_up_in_the_order_of_the_log(log):
    def work() -> None:
        for _ in range(30):
            log.events(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        log.seal()
    log.seal()
    last: dict[int, int] = {}
    for (data,) in log.rows("SELECT data FROM audit_leaf ORDER BY idx"):
        leaf = parse_leaf(data)
        assert leaf.producer_seq == last.get(leaf.producer_id, 0) + 1
        last[leaf.producer_id] = leaf.producer_seq
    assert log.check() == 180


def test_two_at_once_one_leads_and_the_other_takes_over(log):
    log.events(10)
    assert log.sequencer.lead()
    second = Sequencer(log.database.dsn("seq"))
    assert not second.lead()
    with pytest.raises(psycopg.OperationalError):
        second.seal()
    log.seal()
    log.events(5)
    log.sequencer.close()
    deadline = time.monotonic() + 10
    while not second.lead() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert second.seal().leaves == 5
    second.close()
    assert log.check() == 15


def test_two_that_both_believe_to_lead_cannot_both_append(log):
    """Should a lock be taken away under the leader: the row of the tree is locked too, and the index is a key."""
    log.events(BATCH * 2)
    log.sequencer.lead()
    second = Sequencer(log.database.dsn("seq"))
    second._connection = psycopg.connect(log.database.dsn("seq"), autocommit=True)
    threads = [threading.Thread(target=s.seal) for s in (log.sequencer, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    second.close()
    log.seal()
    assert log.check() == BATCH * 2


def test_the_loop_seals_within_a_moment_and_survives_a_lost_connection(log):
    sizes: list[int] = []
    loop = Loop(log.sequencer, told=sizes.append)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        log.events(3)
        _until(lambda: sizes == [3])
        log.rows(CUT)
        log.events(2)
        _until(lambda: sizes[-1] == 5)
    finally:
        loop.stopping.set()
        thread.join(10)
    assert log.check() == 5


def test_after_a_full_batch_the_next_follows_at_once_and_after_a_large_one_more_are_waited_for(log):
    loop = Loop(Sequencer(log.database.dsn("seq"), batch=2 * FEW))
    waits = []
    for count in (0, 1, FEW, FEW + 1, 2 * FEW + 1):
        log.events(count)
        waits.append(loop._turn())
    waits.append(loop._turn())
    loop.sequencer.close()
    assert waits == [IDLE_SECONDS, IDLE_SECONDS, IDLE_SECONDS, GATHER_SECONDS, 0.0, IDLE_SECONDS]
    assert log.check() == 4 * FEW + 3


def test_clock_back_by_an_hour_and_bodies_of_a_mebibyte(log):
    log.events(2)
    log.event(b'{"x":"' + b"a" * (1 << 20) + b'"}')
    early = "((extract(epoch FROM clock_timestamp()) - 3600) * 1000000)::bigint"
    log.rows(
        f"{INSERT.replace('(event_id', '(time_us, event_id')} SELECT {early}, gen_random_uuid(), 3841,"
        " '00000000-0000-7000-8000-000000000001', tenant_ref, actor_ref, 1, 0, body, body_hash, pii_commit, '', '', ''"
        " FROM audit_event ORDER BY id LIMIT 1 RETURNING id"
    )
    log.events(1)
    assert log.seal() == 5
    times = [t for (t,) in log.rows("SELECT time_us FROM audit_leaf ORDER BY idx")]
    assert times[3] < times[2] < times[4]
    assert log.check() == 5


def test_months_are_made_ahead(log):
    log.sequencer.lead()
    log.sequencer.months_ahead(datetime(2045, 11, 15, tzinfo=UTC))
    made = [
        name
        for (name,) in log.rows("SELECT relname FROM pg_class WHERE relname LIKE 'audit_event_204%' AND relkind = 'r'")
    ]
    assert {"audit_event_204511", "audit_event_204512", "audit_event_204601", "audit_event_204602"} <= set(made)


def test_a_tree_that_is_not_that_of_its_leaves_is_made_from_them(log):
    log.events(1300)
    log.seal()
    log.attack("UPDATE audit_tree SET frontier = set_byte(frontier, 3, get_byte(frontier, 3) # 1)")
    log.events(10)
    assert log.seal() == 10
    assert log.check() == 1310


def test_an_event_that_was_taken_away_before_it_was_sealed_does_not_stop_the_others(log):
    ids = log.events(5)
    log.attack(f"DELETE FROM audit_event WHERE id = {ids[2]}")
    log.sequencer.lead()
    sealed = log.sequencer.seal()
    assert (sealed.leaves, sealed.lost) == (4, (ids[2],))


def test_numbers_that_come_again_lose_no_event(log):
    """The sequence was set back: an event is its number at its time."""
    ids = log.events(20)
    log.seal()
    log.rows("SELECT setval('audit_event_id_seq', %s)", ids[4])
    again = log.events(10)
    assert set(again) <= set(ids)
    log.events(20)
    assert log.seal() == 30
    assert log.rows("SELECT count(*), count(DISTINCT (event, time_us)) FROM audit_leaf") == [(50, 50)]
    assert (gaps.look(), log.findings()) == (0, [])


def test_an_event_that_somebody_put_into_the_queue_again_stops_nothing_and_is_sealed_once(log):
    ids = log.events(5)
    log.seal()
    log.attack(f"INSERT INTO audit_pending SELECT id, time_us FROM audit_event WHERE id = {ids[2]}")
    log.events(3)
    with pytest.raises(psycopg.errors.UniqueViolation):
        log.sequencer.seal()
    sealed = log.sequencer.seal()
    assert (sealed.leaves, sealed.lost) == (3, (ids[2],))
    assert log.check() == 8


def test_months_that_cannot_be_made_now_do_not_keep_the_log_from_growing(log):
    """Somebody copies all of the trail, which may take hours."""
    ahead = f"audit_event_{datetime.now(UTC) + timedelta(days=60):%Y%m}"
    log.attack(f"DROP TABLE {ahead}")
    loop = Loop(log.sequencer)
    log.sequencer.lead()
    with psycopg.connect(log.database.dsn("superuser")) as c:
        c.execute("LOCK TABLE audit_event_rest IN ACCESS SHARE MODE")
        assert loop._months() == AGAIN_SECONDS
        log.events(3)
        assert log.seal() == 3
    assert loop._months() == MONTHS_SECONDS
    assert log.rows("SELECT to_regclass(%s) IS NOT NULL", ahead) == [(True,)]


def _until(true, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
