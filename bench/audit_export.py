"""The audit log as it is read: how long an export of a million events takes, and a page among ten million.

A PostgreSQL of the bench's own, set up as in production. Events of the export go through the sequencer and are signed
by a real signer; those of the pages are only rows with leaves, as no proof is asked for there. Exports are made twice
from the same checkpoint and must be the same bytes.
"""

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.audit_plant import AT_ONCE, BODY, COLUMNS, HASH, bare, in_parts, planted
from bench.store_sides import Cluster
from bench.tenancy_site import Figure

EXPORT_SECONDS, PAGE_MS, FLAT_MIB = 120.0, 150.0, 200.0
ROUNDS = 12
_ROWS = f"""
INSERT INTO audit_event ({COLUMNS})
SELECT i, gen_random_uuid(), (ARRAY[288, 289, 752, 528, 1041, 1793])[1 + i %% 6], t,
       ('00000000-0000-7000-8000-' || lpad(to_hex(1 + i %% 50), 12, '0'))::uuid,
       substr(sha256(int4send(i %% 50)), 1, 16), substr(sha256(int4send(i %% 2000)), 1, 16),
       CASE WHEN i %% 97 = 0 THEN 3 ELSE 1 END, 0, i %% 64, i / 64, b,
       {HASH}, decode(repeat('00', 32), 'hex'),
       (ARRAY['token', 'namespace', 'route'])[1 + i %% 3], (i %% 100000)::text, 'r-' || i
  FROM (SELECT i, {BODY} b, %s + i * %s::bigint AS t FROM generate_series(%s::int, %s) i) x"""
_LEAVES = """
INSERT INTO audit_leaf
SELECT i - 1, i, %s + i * %s::bigint, sha256(int4send(i)), substr(decode(repeat(md5(i::text), 10), 'hex'), 1, 148)
  FROM generate_series(%s::int, %s) i"""


def run(quick: bool) -> Iterator[Figure]:
    """Figures of exports and pages. `quick`: 20,000 events to export, pages among 200,000."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    try:
        with cluster.database() as name:
            yield from _Bench(cluster, name, base).export(20_000 if quick else 1_000_000)
        with cluster.database() as name:
            yield from _Bench(cluster, name, base).pages(200_000 if quick else 10_000_000)
    finally:
        cluster.close()
        shutil.rmtree(base, ignore_errors=True)


class _Bench:
    def __init__(self, cluster: Cluster, name: str, base: Path) -> None:
        self.cluster, self.name, self.base = cluster, name, base
        keys = base / "keys"
        keys.mkdir(mode=0o700, exist_ok=True)
        os.environ.update(cluster.postgres.env(name), KVC_ENV="test", KVC_DB_ROLE="operator")
        os.environ["DJANGO_SETTINGS_MODULE"] = "kvconsole.settings.test"
        import django
        from django.conf import settings
        from django.db import connections

        django.setup()
        settings.DB_HOST, settings.DB_PORT, settings.DB_NAME = "127.0.0.1", str(cluster.postgres.port), name
        settings.DB_PASSWORDS.update(cluster.postgres.passwords)
        settings.KEYSTORE_DIR, settings.EXPORT_DIR = str(keys), str(base / "exports")
        settings.TASK_SENDER = "tests.audit.sealed.nobody"
        connections.close_all()
        for alias, role in {"default": "operator", "tenant": "tenant"}.items():
            place = {"HOST": "127.0.0.1", "PORT": str(cluster.postgres.port), "NAME": name, "USER": f"kv_{role}"}
            connections.settings[alias].update(place, PASSWORD=cluster.postgres.passwords[role])
            connections[alias].settings_dict.update(connections.settings[alias])

    def close(self) -> None:
        from django.db import connections

        connections.close_all()

    # --- exports -------------------------------------------------------------------------------

    def export(self, count: int) -> Iterator[Figure]:
        """An export of so many events, in each rendering, and once more."""
        from django.conf import settings

        from tests.audit.sealed import a_signer_at

        (self.base / "signer").mkdir(mode=0o700)
        with a_signer_at(self.base / "signer", settings) as sealed, contextlib.closing(self):
            planted(self.cluster.postgres.superuser_dsn(self.name), count)
            size = sealed()
            digests, took = {}, {}
            for format in ("jsonl", "csv", "ocsf"):
                took[format], digests[format], grown = self._made(format, size)
            again, digest, grown = self._made("ocsf", size)
            rate = {f"{name}_seconds": round(seconds, 2) for name, seconds in took.items()}
            peer = rate | {"events": size, "mib": round(self._bytes / 2**20, 1), "grown_mib": round(grown, 1)}
            worst = max(took.values())
            wanted = EXPORT_SECONDS * max(size / 1_000_000, 0.1)
            yield _figure("audit_export_seconds", worst, "s", f"<= {wanted:g}", worst <= wanted, peer)
            same = digest == digests["ocsf"]
            yield _figure("audit_export_identical", float(same), "", "= 1", same, {"seconds": round(again, 2)})
            yield _figure("audit_export_memory", grown, "MiB", f"<= {FLAT_MIB:g}", grown <= FLAT_MIB, {"events": size})

    def _made(self, format: str, size: int) -> tuple[float, str, float]:
        from audit import jobs, work
        from audit.models import Job
        from kvconsole.infra.access import Principal, tenant_context

        actor = Principal(kind="user", id="b", roles=frozenset({"auditor"}))
        params = {
            "format": format,
            "proofs": True,
            "personal_data": False,
            "filters": {},
            "size": size,
            "previous": None,
        }
        with tenant_context(actor):
            job = jobs.job_request(
                kind="export", params=params, actor=actor, now=datetime.now(UTC), event_type="job.cancelled",
                body={"kind": "export"},
            )  # fmt: skip
        before, begin = psutil.Process().memory_info().rss, time.perf_counter()
        while work.job_run(job.id, holder="bench", now=datetime.now(UTC)) == "more":
            pass
        seconds = time.perf_counter() - begin
        done = Job.objects.get(id=job.id)
        assert done.state == "done", done.problem
        self._bytes = done.result["bytes"]
        jobs.file_of(job.id).unlink()
        return seconds, done.result["sha256"], (psutil.Process().memory_info().rss - before) / 2**20

    # --- pages ---------------------------------------------------------------------------------

    def pages(self, count: int) -> Iterator[Figure]:
        """Pages of 50 by every filter, newest and far back."""
        from audit.selectors import EventFilter, events
        from kvconsole.infra.access import Principal, tenant_context

        step = 45 * 86_400_000_000 // count
        start = int((datetime.now(UTC) - timedelta(days=45)).timestamp() * 1e6)
        self._populate(count, start, step)
        reader = Principal(kind="user", id="b", roles=frozenset({"operator"}))
        late = datetime.now(UTC) - timedelta(days=1)
        tenant = "00000000-0000-7000-8000-000000000009"
        asked = {
            "all": EventFilter(), "actor": EventFilter(actor=_ref(77)), "action": EventFilter(action="token.issued"),
            "noun": EventFilter(action="token"), "kind": EventFilter(object="route"),
            "object": EventFilter(object="token:5001"),
            "tenant": EventFilter(tenant=tenant), "denied": EventFilter(outcome="denied"),
            "request": EventFilter(request_id=f"r-{count // 2}"), "day": EventFilter(since=late),
            "tenant_denied": EventFilter(tenant=tenant, outcome="denied"),
            "actor_action": EventFilter(actor=_ref(78), action="token.issued"),
            "nothing": EventFilter(actor=_ref(77), outcome="unknown"),
        }  # fmt: skip
        times: dict[str, list[float]] = {}
        with contextlib.closing(self):
            for name, one in asked.items():
                cursors = ["", f"{start + step * (count // 2)}.{count // 2}", f"{start + step * 1000}.1000"]
                for turn in range(ROUNDS):
                    begin = time.perf_counter()
                    with tenant_context(reader):
                        events(one, cursors[turn % 3], reader=reader)
                    times.setdefault(name, []).append((time.perf_counter() - begin) * 1000)
        every = sorted(value for of in times.values() for value in of)
        p95 = every[int(len(every) * 0.95)]
        peer = {name: round(statistics.median(of), 2) for name, of in times.items()} | {"events": count}
        yield _figure("audit_page_p95", p95, "ms", f"<= {PAGE_MS:g}", p95 <= PAGE_MS, peer)

    def _populate(self, count: int, start: int, step: int) -> None:
        """So many rows; indexes are made afterwards, which takes a fraction of the time."""
        dsn = self.cluster.postgres.superuser_dsn(self.name)
        with bare(dsn, ("audit_event", "audit_leaf")):
            parts = [(start, step, at, min(at + AT_ONCE - 1, count)) for at in range(1, count + 1, AT_ONCE)]
            in_parts(dsn, [[(_ROWS, part), (_LEAVES, part)] for part in parts])
        with psycopg.connect(dsn, autocommit=True) as c:
            c.execute("VACUUM ANALYZE audit_event, audit_leaf")


def _ref(n: int) -> str:
    import hashlib

    return hashlib.sha256(n.to_bytes(4, "big")).hexdigest()[:32]


def _figure(name: str, value: float, unit: str, target: str, ok: bool, peer: dict[str, Any]) -> Figure:
    return {"name": name, "value": round(value, 3), "unit": unit, "target": target, "ok": ok, "peer": peer}
