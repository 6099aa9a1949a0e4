"""kill -9 of sequencer, signer and PostgreSQL while events are written: none is lost, doubled or out of order."""

import os
import random
import threading
import time

import psycopg
import pytest

from audit import gaps
from audit.scrubber import Scrubber
from kvconsole.infra.sql import PLATFORM
from kvcore.leaf import body_hash
from tests.audit.loglab import INSERT, Log, as_sequencer

pytestmark = pytest.mark.walk
SECONDS = float(os.environ.get("KVC_FAULT_SECONDS", "30"))
WRITE = f"{INSERT} VALUES (gen_random_uuid(), 3841, %s, %s, %s, 1, 0, %s, %s, %s, 'note', %s, '') RETURNING id"


SECOND = "sequencer-2"


class Writer(threading.Thread):
    """Writes events, two to a transaction now and then; knows which were committed, and in which order."""

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__()
        self.dsn, self.who = dsn, name
        self.committed: list[int] = []
        self.doubtful: set[int] = set()
        self.over = threading.Event()

    def run(self) -> None:
        rng, number = random.Random(self.who), 0
        while not self.over.is_set():
            try:
                with psycopg.connect(self.dsn, connect_timeout=2) as c:
                    while not self.over.is_set():
                        number += 1
                        self._one(c, number, rng)
            except psycopg.Error:
                self.over.wait(0.05)

    def _one(self, c: psycopg.Connection, number: int, rng: random.Random) -> None:
        ids, body = [], b'{"n":%d}' % number
        values = (PLATFORM, bytes(16), bytes(16), body, body_hash(body), bytes(32), f"{self.who}/{number}")
        for _ in range(1 + (rng.random() < 0.2)):
            ids += [row[0] for row in c.execute(WRITE, values)]
        if rng.random() < 0.05:
            c.rollback()
            return
        self.doubtful.update(ids)
        c.commit()
        self.doubtful.difference_update(ids)
        self.committed += ids


def killed(doomed, seconds: float, seed: int) -> list[str]:
    """Kills at random for so long, and starts again what was killed; what it did. Two sequencers run at once."""
    rng, done = random.Random(seed), []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(done) < 4:
        time.sleep(rng.uniform(0.3, 2.0))
        what = ("sequencer", "postgres", SECOND, "signer")[len(done) % 4]
        done.append(what)
        if what == "postgres":
            doomed.database.postgres.kill()
            time.sleep(0.2)
            doomed.database.postgres.start()
        else:
            doomed.kill(what)
            a_second(doomed) if what == SECOND else doomed.start(what)
    return done


def a_second(doomed) -> None:
    """A sequencer that waits for the first one to be gone."""
    doomed._spawn(SECOND, doomed.site.command("sequencer"), doomed.site.env("sequencer"))


def rounds(doomed, blocker, seconds: float, seed: int) -> None:
    doomed.start("signer", "sequencer")
    a_second(doomed)
    writers = [Writer(doomed.database.dsn("operator"), str(i)) for i in range(4)]
    for writer in writers:
        writer.start()
    try:
        kills = killed(doomed, seconds, seed)
    finally:
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join(30)
    log = Log(doomed.database)
    settled(log, doomed)
    size = log.check()
    places = dict(log.rows("SELECT event, idx FROM audit_leaf"))
    for writer in writers:
        own = [places[id_] for id_ in writer.committed]
        assert own == sorted(own), "in the log they stand in another order than they were committed"
        assert len(set(own)) == len(own)
    known = {id_ for w in writers for id_ in (*w.committed, *w.doubtful)}
    strangers = log.rows("SELECT count(*) FROM audit_event WHERE object_kind = 'note' AND id <> ALL(%s)", list(known))
    assert strangers == [(0,)]
    assert sum(len(w.committed) for w in writers) > 50
    for name in ("sequencer", SECOND):
        doomed.kill(name)
    with blocker.unblock(), as_sequencer(doomed.database):
        assert gaps.look() == 0
        scrubber = Scrubber(doomed.database.dsn("seq"), rate=0)
        assert scrubber.round().divergences == 0
        scrubber.close()
    assert log.findings() == []
    print(f"{size} leaves, {len(kills)} killed: {', '.join(kills)}; 0 lost, 0 doubled, 0 reordered")


def settled(log: Log, doomed, seconds: float = 60.0) -> None:
    """Everything is sealed and signed."""
    deadline = time.monotonic() + seconds
    while True:
        row = log.rows(
            "SELECT (SELECT count(*) FROM audit_pending), t.size - s.size, s.signer FROM audit_tree t, audit_signing s"
        )[0]
        if row == (0, 0, "ok"):
            return
        assert time.monotonic() < deadline, (row, doomed.log("sequencer")[-3000:])
        time.sleep(0.2)


@pytest.mark.timeout(300)
def test_killed_at_random_nothing_is_lost_doubled_or_reordered(doomed, django_db_blocker):
    rounds(doomed, django_db_blocker, min(SECONDS, 30.0), seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_random_for_long(doomed, django_db_blocker):
    rounds(doomed, django_db_blocker, float(os.environ.get("KVC_FAULT_SECONDS", "600")), seed=time.time_ns())
