"""kill -9 of ingest, PostgreSQL and Valkey under load: nothing acknowledged is lost, the catalog equals the sources,
and no source with an open gap is called exact meanwhile."""

import contextlib
import time

import httpx
import psycopg
import pytest

from tests.catalog.ingest.rig import Sim, plant_namespace, plant_node, superuser
from tests.catalog.ingest.test_hot import plant_token
from tests.faults.senders import Sender, Watch

pytestmark = pytest.mark.walk


class Load:
    """Senders against a console, and what the tables say meanwhile."""

    def __init__(self, console, senders: int = 4) -> None:
        self.console, self.dsn = console, console.database.dsn("superuser")
        with superuser(console.database.postgres, console.database.name) as cx:
            ns = plant_namespace(cx, "a")
            self.senders = []
            for i in range(senders):
                node = plant_node(cx, f"n{i}")
                self.senders.append(Sender(Sim(node), plant_token(cx, node), [console.ingest_url], ns, seed=i))
        self.watch = Watch(self.senders, self._states)

    def _states(self) -> list[tuple]:
        try:
            with psycopg.connect(self.dsn, autocommit=True) as cx:
                return cx.execute("SELECT node_id, state, boot, stream, seq FROM catalog_source").fetchall()
        except psycopg.Error:
            return []

    def __enter__(self) -> "Load":
        for thread in (*self.senders, self.watch):
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for sender in self.senders:
            sender.calm()
        self.watch.over.set()
        self.watch.join(10)

    def until(self, frames: int, seconds: float = 30.0) -> None:
        """Every sender has so many more frames acknowledged."""
        before = [self._count(s) for s in self.senders]
        deadline = time.monotonic() + seconds
        while any(self._count(s) - b < frames for s, b in zip(self.senders, before, strict=True)):
            for sender in self.senders:
                if sender.error is not None:
                    raise sender.error
            assert time.monotonic() < deadline, "the senders get nothing acknowledged"
            time.sleep(0.05)

    @staticmethod
    def _count(sender: Sender) -> int:
        return sum(seq + 1 for seq in dict(sender.committed).values())

    def check_acknowledged(self) -> None:
        """What was acknowledged before now is in the tables now."""
        said = {s.sim.node: (s.life, dict(s.committed)) for s in self.senders}
        rows = {node: (boot, stream, seq) for node, _, boot, stream, seq in self._states()}
        for node, (life, committed) in said.items():
            boot, stream, seq = rows[node]
            if (boot, stream) == life:
                assert seq >= committed.get(life, -1), (node, seq, committed)

    def finish(self, seconds: float = 90.0) -> None:
        """Everything is told; then the catalog is equal to the sources, exact, and never claimed too much."""
        for sender in self.senders:
            sender.calm()
        deadline = time.monotonic() + seconds
        for sender in self.senders:
            sender.join(max(0.1, deadline - time.monotonic()))
            assert not sender.is_alive(), ("it did not come to an end", sender.sim.seq, sender.acked, sender.owes)
            assert sender.error is None
        self.watch.over.set()
        with psycopg.connect(self.dsn, autocommit=True) as cx:
            for sender in self.senders:
                rows = cx.execute(
                    "SELECT k.digest, k.generation, k.cache_group, o.tier, h.blocks, h.lo, h.hi FROM catalog_holding h"
                    " JOIN catalog_owner o ON o.id = h.owner JOIN catalog_keyspace k ON k.id = h.keyspace"
                    " JOIN catalog_source s ON s.id = o.source_id"
                    " WHERE NOT o.retired AND h.blocks > 0 AND s.node_id = %s",
                    (sender.sim.node,),
                ).fetchall()
                held = {(bytes(d), g, c, t): (b, lo % 2**64, hi % 2**64) for d, g, c, t, b, lo, hi in rows}
                assert held == sender.sim.sums()
            states = cx.execute("SELECT DISTINCT state FROM catalog_source").fetchall()
        assert states == [("exact",)]
        assert not self.watch.bad
        assert self.watch.looks > 10


def start_ingest(console) -> None:
    """Unlike `console.start` it does not wait: `ready` does, and longer, since the senders keep the machine busy."""
    console._spawn("ingest", console.site.command("ingest"), console.site.env("ingest"))


def ready(console, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(console.ingest_url + "/readyz", timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"ingest does not write:\n{console.log('ingest')[-3000:]}")


def kill_ingest(console) -> None:
    console.kill("ingest")
    start_ingest(console)


def kill_postgres(console) -> None:
    console.database.postgres.kill()
    time.sleep(0.3)
    console.database.postgres.start()


def kill_valkey(console) -> None:
    console.broker.kill()
    time.sleep(0.3)
    console.broker.start()


def rounds(doomed, kills, *, frames: int) -> None:
    start_ingest(doomed)
    ready(doomed)
    with Load(doomed) as load:
        load.until(frames, 60.0)
        for kill in kills:
            kill(doomed)
            ready(doomed)
            load.check_acknowledged()
            load.until(frames, 60.0)
        load.finish()


@pytest.mark.timeout(300)
def test_killed_once_each(doomed):
    rounds(doomed, (kill_ingest, kill_postgres, kill_valkey), frames=15)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_again_and_again(doomed):
    rounds(doomed, (kill_postgres, kill_ingest, kill_valkey) * 4, frames=60)
