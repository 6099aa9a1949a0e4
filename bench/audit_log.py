"""The audit log: what an event costs its transaction, how soon it is sealed and signed, how fast a queue is drained and
the log verified.

A PostgreSQL of the bench's own, set up as in production (fsync on), with sequencer, signer and eight clients as
processes (`bench.audit_clients`). Audited and unaudited transactions run in turn on the same rows, through
`audit.services.record`. All of it shares one machine, so what the sequencer does for an event is in the audited side.
"""

import os
import shutil
import statistics
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.audit_clients import ROWS, Clients
from bench.audit_plant import planted
from bench.store_sides import Cluster
from bench.tenancy_site import Figure, ms
from kvconsole.embedded import Valkey
from tests.running import Console

RATIO, SEALED_SECONDS, SIGNED_SECONDS, DRAIN, SCRUB = 0.70, 1.0, 2.0, 25_000.0, 150_000.0
CLIENTS, RATE = 8, 1000


def run(quick: bool) -> Iterator[Figure]:
    """Figures of the log. `quick`: a fifth of the events, 10 s instead of 60."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            console = Console(base / "site", database=cluster.postgres.env(name), broker=broker)
            bench = _Bench(cluster, name, console)
            try:
                yield from bench.figures(quick)
            finally:
                bench.close()
    finally:
        broker.remove()
        cluster.close()
        shutil.rmtree(base, ignore_errors=True)


class _Bench:
    def __init__(self, cluster: Cluster, name: str, console: Console) -> None:
        self.cluster, self.name, self.console = cluster, name, console
        os.environ.update(console.env, KVC_DB_ROLE="operator")
        import django

        django.setup()
        with psycopg.connect(self.superuser, autocommit=True) as c:
            c.execute("CREATE TABLE bench_row (id int PRIMARY KEY, n bigint NOT NULL)")
            c.execute("INSERT INTO bench_row SELECT i, 0 FROM generate_series(1, %s) i", (ROWS,))
            c.execute("GRANT SELECT, UPDATE ON bench_row TO kv_operator")

    @property
    def superuser(self) -> str:
        return self.cluster.postgres.superuser_dsn(self.name)

    def dsn(self, role: str) -> str:
        return self.cluster.postgres.dsn(role, self.name)

    def close(self) -> None:
        from django.db import connections

        connections.close_all()
        self.console.stop()

    def figures(self, quick: bool) -> Iterator[Figure]:
        self.console.start("signer", "sequencer")
        clients = Clients(CLIENTS)
        try:
            yield self._ratio(clients, 2.0 if quick else 8.0, 3 if quick else 5)
            yield from self._lag(clients, 10.0 if quick else 60.0)
        finally:
            clients.close()
        self.console.kill("sequencer")
        yield self._drain(40_000 if quick else 200_000)
        yield from self._scrub(60_000 if quick else 1_000_000)

    # --- what an event costs ---

    def _ratio(self, clients: Clients, seconds: float, turns: int) -> Figure:
        rates: dict[bool, list[float]] = {True: [], False: []}
        spent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for turn in range(turns * 2):
            audited = (turn + turn // 2) % 2 == 0
            self._sealed()  # what is left to do for the other side is not counted against this one
            client, server = clients.cpu(), self.cluster.cpu()
            done = clients.rate(seconds, audited=audited)
            rates[audited].append(done / seconds)
            spent[audited].append(((clients.cpu() - client) / done * 1e6, (self.cluster.cpu() - server) / done * 1e6))
        ratio = statistics.median(rates[True]) / statistics.median(rates[False])
        peer: dict[str, Any] = {"clients": CLIENTS, "turns": turns}
        for name, side in (("audited", True), ("unaudited", False)):
            peer[f"{name}_per_s"] = round(statistics.median(rates[side]))
            for at, whose in enumerate(("client", "server")):
                peer[f"{name}_{whose}_cpu_us"] = round(statistics.median(one[at] for one in spent[side]))
        return _figure("audited_ratio", ratio, "of unaudited", f">= {RATIO}", ratio >= RATIO, peer)

    def _sealed(self) -> None:
        with psycopg.connect(self.dsn("audit"), autocommit=True) as c:
            while c.execute("SELECT FROM audit_pending LIMIT 1").fetchone():
                time.sleep(0.05)

    # --- how soon it is sealed and signed ---

    def _lag(self, clients: Clients, seconds: float) -> Iterator[Figure]:
        sizes: list[tuple[float, int]] = []
        signed: list[tuple[float, int]] = []
        over = threading.Event()

        def watch() -> None:
            with psycopg.connect(self.dsn("audit"), autocommit=True) as c:
                while not over.wait(0.005):
                    row = c.execute("SELECT t.size, s.size FROM audit_tree t, audit_signing s").fetchone()
                    now = time.perf_counter()
                    for seen, size in ((sizes, row[0]), (signed, row[1])):
                        if not seen or seen[-1][1] != size:
                            seen.append((now, size))

        watcher = threading.Thread(target=watch)
        watcher.start()
        begin = time.perf_counter()
        committed = clients.paced(seconds, RATE)
        spent = time.perf_counter() - begin
        time.sleep(3.0)
        over.set()
        watcher.join()
        with psycopg.connect(self.superuser) as c:
            places = dict(c.execute("SELECT event, idx FROM audit_leaf").fetchall())
        events = [(places[id_], at) for of in committed for id_, at in of]
        for name, seen, most in (("sequenced", sizes, SEALED_SECONDS), ("signed", signed, SIGNED_SECONDS)):
            late = _late(events, seen)
            p99 = ms(late, 0.99) / 1000
            peer = {"p50_ms": ms(late, 0.5), "events": len(late), "per_s": round(len(late) / spent)}
            ok = p99 <= most and len(late) / spent >= RATE * 0.95
            yield _figure(f"{name}_p99", p99, "s after commit", f"<= {most} at {RATE}/s", ok, peer)

    # --- drain and scrub ---

    def _drain(self, count: int) -> Figure:
        from audit.sequencer import Sequencer

        planted(self.superuser, count)
        sequencer = Sequencer(self.dsn("seq"))
        while not sequencer.lead():
            time.sleep(0.1)
        begin, done = time.perf_counter(), 0
        while sealed := sequencer.seal().leaves:
            done += sealed
        rate = done / (time.perf_counter() - begin)
        sequencer.close()
        return _figure("drain", rate, "leaves/s, durable", f">= {DRAIN:.0f}", rate >= DRAIN, {"leaves": done})

    def _scrub(self, count: int) -> Iterator[Figure]:
        from audit.scrubber import Scrubber
        from audit.sequencer import Sequencer
        from tests.audit.loglab import as_sequencer
        from tests.conftest import Database

        planted(self.superuser, count)
        sequencer = Sequencer(self.dsn("seq"), batch=5000)
        while not sequencer.lead():
            time.sleep(0.1)
        while sequencer.seal().leaves:
            pass
        sequencer.close()
        with psycopg.connect(self.superuser, autocommit=True) as c:
            c.execute("VACUUM ANALYZE audit_leaf, audit_event, audit_tile")
        with as_sequencer(Database(self.cluster.postgres, self.name)):
            scrubber, sizes = Scrubber(self.dsn("seq"), rate=0), []
            for _ in range(3):
                verdict = scrubber.round()
                assert verdict is not None
                assert not verdict.divergences
                sizes.append(psutil.Process().memory_info().rss / 2**20)
            scrubber.close()
        rate = verdict.size / verdict.seconds
        more = sizes[-1] - sizes[0]
        peer = {"leaves": verdict.size, "seconds": round(verdict.seconds, 1)}
        yield _figure("scrub", rate, "leaves/s", f">= {SCRUB:.0f}", rate >= SCRUB, peer)
        yield _figure("scrub_memory", more, "MiB more after two more rounds", "<= 16", more <= 16,
                      {"rss_mib": round(sizes[-1])})  # fmt: skip


def _late(events: list[tuple[int, float]], seen: list[tuple[float, int]]) -> list[float]:
    """Seconds from each commit until the size that was seen included its leaf."""
    sizes = [size for _, size in seen]
    late = []
    for index, at in events:
        place = bisect_right(sizes, index)
        late.append(max(0.0, seen[place][0] - at) if place < len(seen) else 3600.0)
    return late


def _figure(name: str, value: float, unit: str, target: str, ok: bool, peer: Any = None) -> Figure:
    found = {"name": f"audit_log.{name}", "value": round(value, 3), "unit": unit, "target": target, "ok": ok}
    return found if peer is None else {**found, "peer": peer}
