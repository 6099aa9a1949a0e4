"""Tenancy with 10^5 tenants and 10^6 tokens: lists and gets over HTTP, token checks, row-level security, resolving.

The rows are planted by the superuser, then vacuumed and analysed. The web process is one, as in production; HTTP goes
over connections that stay open. Row-level security is measured against the superuser, whom no policy concerns, in
pairs in turn on the same rows.
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.http_client import Connection
from bench.store_sides import Cluster
from kvconsole.embedded import Valkey
from tests.running import Console

Figure = dict[str, Any]
LIST_MS, TOKEN_MS, RLS_PART, RESOLVES = 25.0, 0.2, 0.15, 500.0
CONNECTIONS = 8
TENANT = "bench-77"
PLANT = """
SET session_replication_role = replica;
INSERT INTO tenants_tenant (id, slug, lookalike, name, residency, isolation, classes, erasure_scope, retention, state,
                            created_at)
SELECT gen_random_uuid(), 'bench-' || i, 'bench-' || i, 'Bench ' || i, '', 'shared', '{internal}', 'label', '{}',
       'active', now()
  FROM generate_series(1, %(tenants)s) i;
INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr, created_at, expires_at)
SELECT substr(md5(t.id::text || n::text), 1, 16), 'service', t.id, '', 'token ' || n,
       sha256(t.id::text::bytea || n::text::bytea), '{tenant-member}', '{}', '', now(), now() + interval '90 days'
  FROM tenants_tenant t, generate_series(1, %(each)s) n
 WHERE t.slug LIKE 'bench-%%';
INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr, created_at, expires_at)
SELECT substr(md5(n::text), 1, 16), 'service', t.id, '', 'more ' || n, sha256(n::text::bytea), '{tenant-member}', '{}',
       '', now(), now() + interval '90 days'
  FROM tenants_tenant t, generate_series(1, 1000) n
 WHERE t.slug = %(slug)s;
INSERT INTO tenants_user (id, username, lookalike, kind, email, tenant_id, roles, language, theme, is_active, password,
                          password_initial, created_at)
SELECT gen_random_uuid(), t.slug || '/person-' || n, t.slug || '/person-' || n, 'person', '', t.id, '{tenant-member}',
       '', 'system', true, '!', false, now()
  FROM tenants_tenant t, generate_series(1, 200) n
 WHERE t.slug = %(slug)s;
"""
PAGE = """
SELECT id, kind, tenant_id, holder, name, roles, scopes, cidr, created_at, expires_at, last_used_at, revoked_at
  FROM tenants_token WHERE tenant_id = %s AND id > %s ORDER BY id LIMIT %s"""


def run(quick: bool) -> Iterator[Figure]:
    """All figures of tenancy. `quick` has a tenth of the rows."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            site = Site(cluster, name, broker, base / "site")
            try:
                begin = time.perf_counter()
                site.plant(10_000 if quick else 100_000)
                told = {"tenants": site.count, "tokens": site.count * 10 + 1000,
                        "planted_s": round(time.perf_counter() - begin)}  # fmt: skip
                yield from _tokens(site, 500 if quick else 5000, told)
                yield from _rls(site, 300 if quick else 2000)
                yield from _reads(site, 200 if quick else 1500, told)
                yield from _resolving(site, 3.0 if quick else 10.0)
            finally:
                site.close()
    finally:
        broker.remove()
        cluster.close()
        shutil.rmtree(base, ignore_errors=True)


class Site:
    """A database full of tenants, one web process, and tokens whose plaintexts are known."""

    def __init__(self, cluster: Cluster, name: str, broker: Valkey, state: Path) -> None:
        self.cluster, self.name, self.count = cluster, name, 0
        self.console = Console(state, database=cluster.postgres.env(name), broker=broker)
        self._django()
        self.console.manage("seed_demo")

    def _django(self) -> None:
        os.environ.update(self.console.env, KVC_DB_ROLE="operator")
        import django

        django.setup()

    def plant(self, tenants: int) -> None:
        """So many tenants with ten tokens each; one has a thousand more."""
        self.count = tenants
        with psycopg.connect(self.superuser, autocommit=True) as c:
            values = {"tenants": tenants, "each": 10, "slug": TENANT}
            psycopg.ClientCursor(c).execute(PLANT, values)
            c.execute("VACUUM ANALYZE tenants_tenant")
            c.execute("VACUUM ANALYZE tenants_token")
            c.execute("VACUUM ANALYZE tenants_user")
            self.tenant = c.execute("SELECT id FROM tenants_tenant WHERE slug = %s", (TENANT,)).fetchone()[0]

    @property
    def superuser(self) -> str:
        """Where the superuser connects."""
        return self.cluster.postgres.superuser_dsn(self.name)

    def token(self, *roles: str, tenant: uuid.UUID | None = None, kind: str = "service") -> str:
        """The plaintext of a new good token that was used a moment ago."""
        from kvconsole.infra.sql import PLATFORM
        from tenants import tokens

        plaintext, parsed = tokens.generate(kind)
        with psycopg.connect(self.superuser, autocommit=True) as c:
            c.execute("SET session_replication_role = replica")
            c.execute(
                "INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr,"
                " created_at, expires_at, last_used_at) VALUES (%s, %s, %s, '', '', %s, %s, '{}', '', now(),"
                " now() + interval '1 day', now())",
                (parsed.id, kind, tenant or PLATFORM, parsed.secret_hash, list(roles)),
            )
        return plaintext

    def connection(self, token: str) -> Connection:
        """An open connection to the web process."""
        if "web" not in self.console.processes:
            self.console.start("web")
        return Connection("127.0.0.1", self.console.site.ports["web"], token)

    def web_cpu(self) -> float:
        """CPU seconds of the web process so far."""
        spent = psutil.Process(self.console.processes["web"].pid).cpu_times()
        return float(spent.user + spent.system)

    def close(self) -> None:
        """Nothing of it runs."""
        from django.db import connections

        connections.close_all()
        self.console.stop()


def _figure(name: str, value: float, unit: str, target: str, ok: bool, peer: Any = None) -> Figure:
    figure = {"name": f"tenancy.{name}", "value": round(value, 3), "unit": unit, "target": target, "ok": ok}
    return figure if peer is None else {**figure, "peer": peer}


def _ms(times: list[float], part: float) -> float:
    return round(sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1000, 3)


def _timed(act: Callable[[], object], count: int) -> list[float]:
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return found


# --- token checks --------------------------------------------------------------------


def _tokens(site: Site, count: int, told: dict[str, Any]) -> Iterator[Figure]:
    """Who is behind a token: in PostgreSQL, as both planes; and as the middleware asks, with round trip and Python."""
    from kvconsole.infra import sql
    from tenants import tokens
    from tenants.selectors import known_token

    known = [site.token("tenant-member", tenant=site.tenant) for _ in range(50)]
    parsed = [p for t in known if (p := tokens.parse(t))]
    inside = {}
    for role in ("operator", "tenant"):
        with psycopg.connect(sql.dsn(role)) as c:
            times = [_inside(c, parsed, 20) for _ in range(max(10, count // 100))]
            inside[role] = round(statistics.median(times) * 1000, 4)
    supply = random.Random(3)
    good = _timed(lambda: known_token(supply.choice(known)), count)
    floor = _timed(_round_trip(), count)
    whole, empty = (round(statistics.median(times) * 1000, 3) for times in (good, floor))
    peer = {**told, "ms_by_role": inside, "whole_call_median_ms": whole, "whole_call_p99_ms": _ms(good, 0.99),
            "empty_round_trip_ms": empty}  # fmt: skip
    most = max(inside.values())
    yield _figure("token_check", most, "ms in the server", f"<= {TOKEN_MS}", most <= TOKEN_MS, peer)


def _inside(c: psycopg.Connection, known: list[Any], times: int) -> float:
    """Seconds of one check, of many in one statement."""
    query = """SELECT count(l.token_id) FROM unnest(%s::text[], %s::bytea[]) AS k (id, proof),
                      LATERAL tenants_lookup('token', k.id, k.proof) AS l"""
    all_ = known * times
    begin = time.perf_counter()
    row = c.execute(query, ([p.id for p in all_], [p.secret_hash for p in all_])).fetchone()
    spent = time.perf_counter() - begin
    assert row == (len(all_),), row
    return spent / len(all_)


def _round_trip() -> Callable[[], object]:
    """The least that a question to PostgreSQL costs on this machine now."""
    from django.db import connections

    connection = connections["default"].connection
    return lambda: psycopg.Cursor(connection).execute("SELECT 1", prepare=True).fetchone()


# --- row-level security ---------------------------------------------------------------


def _rls(site: Site, count: int) -> Iterator[Figure]:
    """A page of 500 and of 50 tokens of the tenant, as its role and as one that no policy concerns, in turn."""
    from kvconsole.infra import sql

    sizes = {}
    with contextlib.ExitStack() as stack:
        tenant = stack.enter_context(psycopg.connect(sql.dsn("tenant")))
        free = stack.enter_context(psycopg.connect(site.superuser))
        sql.enter(tenant, site.tenant)
        entering = statistics.median(_timed(lambda: sql.enter(tenant, site.tenant), 50))
        for size in (500, 50):
            sides: dict[str, list[float]] = {"with": [], "without": []}
            for turn in range(count):
                if turn % 100 == 0:
                    tenant.rollback()
                    sql.enter(tenant, site.tenant)
                order = [("with", tenant), ("without", free)]
                for side, c in order if turn % 2 else order[::-1]:
                    begin = time.perf_counter()
                    found = c.execute(PAGE, (site.tenant, "", size), prepare=True).fetchall()
                    sides[side].append(time.perf_counter() - begin)
                    assert len(found) == size
            ratio = statistics.median(a / b for a, b in zip(sides["with"], sides["without"], strict=True))
            told = {side: _ms(times, 0.5) for side, times in sides.items()}
            sizes[size] = {"more_percent": round((ratio - 1) * 100, 1), **{f"{k}_ms": v for k, v in told.items()}}
    for size, found in sizes.items():
        more = found["more_percent"]
        peer = {**found, "set_tenant_ms": round(entering * 1000, 3)}
        yield _figure(f"rls_page_{size}", more, "% more", f"<= {RLS_PART * 100:.0f}", more <= RLS_PART * 100, peer)


# --- lists and gets -------------------------------------------------------------------


def _reads(site: Site, count: int, told: dict[str, Any]) -> Iterator[Figure]:
    """p99 of each list and get at one connection, by staff of the fleet and by the tenant itself."""
    own = ("tenant-admin", "tenant-member")
    callers = {
        "fleet": site.connection(site.token("viewer", "operator", "auditor")),
        "tenant": site.connection(site.token(*own, tenant=site.tenant)),
    }
    cursor = callers["fleet"].get("/api/v1/tenants?limit=50")["next"]
    lists = ("/api/v1/tenants?limit=50", f"/api/v1/tenants?limit=50&cursor={cursor}", "/api/v1/models?limit=50",
             f"/api/v1/tenants/{TENANT}/tokens?limit=50", f"/api/v1/people?tenant={TENANT}")  # fmt: skip
    gets = (f"/api/v1/tenants/{TENANT}", f"/api/v1/tenants/{TENANT}/quotas", "/api/v1/models/ref-64")
    for kind, paths in (("list", lists), ("get", gets)):
        worst, details = 0.0, {}
        for who, connection in callers.items():
            for path in paths:
                if who == "tenant" and "cursor=" in path:
                    continue
                connection.again()
                for _ in range(20):
                    connection.get(path)
                before, each = site.web_cpu(), count // len(paths)
                times = _timed(lambda c=connection, p=path: c.get(p), each)
                cpu = round((site.web_cpu() - before) / each * 1000, 1)
                worst = max(worst, _ms(times, 0.99))
                details[f"{who} {path.replace('/api/v1', '')[:40]}"] = [_ms(times, 0.5), _ms(times, 0.99), cpu]
        yield _figure(f"{kind}_p99", worst, "ms", f"<= {LIST_MS:.0f}, 1 connection", worst <= LIST_MS,
                      {**told, "median_p99_webcpu_ms": details})  # fmt: skip


# --- resolving ------------------------------------------------------------------------


def _resolving(site: Site, seconds: float) -> Iterator[Figure]:
    """Requests of four tenants' gateways over eight connections, each of its own session, twenty namespaces."""
    with psycopg.connect(site.superuser) as c:
        query = "SELECT slug, id FROM tenants_tenant WHERE slug IN ('bench-1', 'bench-2', 'bench-3', 'bench-4')"
        slugs = dict(c.execute(query).fetchall())
    tokens = {slug: site.token("gateway", tenant=id_, kind="gateway") for slug, id_ in slugs.items()}
    done, late = _storm(site, tokens, seconds, subject=False)
    asked, each = _storm(site, tokens, seconds / 2, subject=True)
    rate = len(late) / done
    peer = {"connections": CONNECTIONS, "tenants": len(tokens), "namespaces": len(tokens) * 5, "p50_ms": _ms(late, 0.5),
            "p99_ms": _ms(late, 0.99), "with_subject_per_s": round(len(each) / asked)}  # fmt: skip
    yield _figure("resolve", rate, "1/s over HTTP", f">= {RESOLVES:.0f}", rate >= RESOLVES, peer)


def _storm(site: Site, tokens: dict[str, str], seconds: float, *, subject: bool) -> tuple[float, list[float]]:
    """(seconds, the time of each answer)."""
    late: list[list[float]] = [[] for _ in range(CONNECTIONS)]
    gate = threading.Barrier(CONNECTIONS + 1)

    def one(number: int) -> None:
        slug = sorted(tokens)[number % len(tokens)]
        connection, rng = site.connection(tokens[slug]), random.Random(number)

        def body() -> bytes:
            fields = {"tenant": slug, "model": "ref-64", "label": f"label-{rng.randrange(5)}",
                      "session": f"{rng.getrandbits(64):x}"}  # fmt: skip
            return json.dumps(fields | ({"subject": "somebody"} if subject else {})).encode()

        for _ in range(30):
            connection.post("/api/v1/namespaces:resolve", body())
        gate.wait()
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            connection.post("/api/v1/namespaces:resolve", body())
            late[number].append(time.perf_counter() - begin)

    site.connection(next(iter(tokens.values()))).close()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, [t for times in late for t in times]
