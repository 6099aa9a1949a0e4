"""Tenancy with 10^5 tenants and 10^6 tokens: token checks, row-level security, resolving over HTTP.

Row-level security is measured against the superuser, whom no policy concerns, in pairs in turn on the same rows. Lists
and gets are in `bench.tenancy_reads`.
"""

import contextlib
import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg

from bench.tenancy_site import Figure, Site, a_site, figure, ms, timed
from kvconsole.infra.sql import PLATFORM

TOKEN_MS, RLS_PART, RESOLVES = 0.2, 0.15, 500.0
CONNECTIONS = 8


class Page(NamedTuple):
    """A query whose cost is compared with and without row-level security; parameters: tenants, limit."""

    name: str
    query: str
    tenants: str
    """own, or also the platform, whose rows the tenant may see in part."""


PAGES = (
    Page("page", """
SELECT id, kind, tenant_id, holder, name, roles, scopes, cidr, created_at, expires_at, last_used_at, revoked_at
  FROM tenants_token WHERE tenant_id = ANY(%s) AND id > '' ORDER BY id LIMIT %s""", "own"),
    Page("namespaces", """
SELECT id, tenant_id, digest, label, model_id, model_epoch, generation, min_gen, state, share_group, created_at
  FROM tenants_namespace WHERE tenant_id = ANY(%s) ORDER BY id LIMIT %s""", "own and granted"),
    Page("models", """
SELECT id, tenant_id, name, kv_dtype, block_tokens, tensor_parallel, bytes_per_token, per_group, base, family, layout
  FROM tenants_model WHERE tenant_id = ANY(%s) AND name > '' ORDER BY name, id LIMIT %s""", "own and shared"),
)  # fmt: skip


def run(quick: bool) -> Iterator[Figure]:
    """Figures of tokens, row-level security and resolving. `quick` has a tenth of the rows."""
    with a_site(quick) as site:
        yield from _tokens(site, 500 if quick else 5000)
        yield from _rls(site, 300 if quick else 2000)
        yield from _resolving(site, 3.0 if quick else 10.0)


# --- token checks --------------------------------------------------------------------


def _tokens(site: Site, count: int) -> Iterator[Figure]:
    """Who is behind a token: in PostgreSQL, as two roles; and as the middleware asks, beyond an empty round trip."""
    from kvconsole.infra import sql
    from tenants import tokens
    from tenants.selectors import known_token

    known = [site.token("tenant-member", tenant=site.tenant) for _ in range(50)]
    parsed = [p for t in known if (p := tokens.parse(t))]
    inside = {}
    for role in ("operator", "ingest"):
        with psycopg.connect(sql.dsn(role)) as c:
            times = [_inside(c, parsed, 20) for _ in range(max(10, count // 100))]
            inside[role] = round(statistics.median(times) * 1000, 4)
    most = max(inside.values())
    yield figure("token_check", most, "ms in the server", f"<= {TOKEN_MS}", most <= TOKEN_MS,
                 {**site.told, "ms_by_role": inside})  # fmt: skip
    supply, good, floor = random.Random(3), list[float](), list[float]()
    known_token(known[0])
    empty = _round_trip()
    for _ in range(count):  # in turn: what else the machine does meets both
        good += timed(lambda: known_token(supply.choice(known)), 1)
        floor += timed(empty, 1)
    more = ms([a - b for a, b in zip(good, floor, strict=True)], 0.5)
    peer = {"median_ms": ms(good, 0.5), "p99_ms": ms(good, 0.99), "empty_round_trip_ms": ms(floor, 0.5)}
    yield figure("token_check_whole", more, "ms beyond an empty round trip", f"<= {TOKEN_MS}", more <= TOKEN_MS,
                 {**site.told, **peer})  # fmt: skip


def _inside(c: psycopg.Connection, known: list[Any], times: int) -> float:
    """Seconds of one check, of many in one statement."""
    query = """SELECT count(tenants_lookup('token', k.id, k.proof))
                 FROM unnest(%s::text[], %s::bytea[]) AS k (id, proof)"""
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
    """Pages of 500 and of 50 rows, as the tenant's role and as one that no policy concerns, in turn."""
    from kvconsole.infra import sql

    with contextlib.ExitStack() as stack:
        tenant = stack.enter_context(psycopg.connect(sql.dsn("tenant")))
        free = stack.enter_context(psycopg.connect(site.superuser))
        sql.enter(tenant, site.tenant)
        entering = statistics.median(timed(lambda: sql.enter(tenant, site.tenant), 50))
        for page in PAGES:
            whose = [site.tenant] if page.tenants == "own" else [site.tenant, PLATFORM]
            for size in (500, 50):
                told = _pairs(site, tenant, free, page.query, (whose, size), count)
                more = told["more_percent"]
                yield figure(f"rls_{page.name}_{size}", more, "% more", f"<= {RLS_PART * 100:.0f}",
                             more <= RLS_PART * 100,
                             {**told, "rows": page.tenants, "set_tenant_ms": round(entering * 1000, 3)})  # fmt: skip


def _pairs(
    site: Site, tenant: psycopg.Connection, free: psycopg.Connection, query: str, values: tuple[Any, ...], count: int
) -> dict[str, float]:
    """The same query as both, so many times in turn; both find the same rows.

    It is asked as the console asks for a tenant (`statements.fetch`): not prepared, as sessions of tenants are cleaned.
    """
    from kvconsole.infra import sql

    sides: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(count):
        if turn % 100 == 0:
            tenant.rollback()
            sql.enter(tenant, site.tenant)
        order, rows = [("with", tenant), ("without", free)], []
        for side, c in order if turn % 2 else order[::-1]:
            begin = time.perf_counter()
            found = c.execute(query, values, prepare=False).fetchall()
            sides[side].append(time.perf_counter() - begin)
            rows.append(found)
        assert rows[0] == rows[1]
        assert len(rows[0]) == values[1]
    ratio = statistics.median(a / b for a, b in zip(sides["with"], sides["without"], strict=True))
    return {"more_percent": round((ratio - 1) * 100, 1), **{f"{side}_ms": ms(t, 0.5) for side, t in sides.items()}}


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
    peer = {"connections": CONNECTIONS, "tenants": len(tokens), "namespaces": len(tokens) * 5, "p50_ms": ms(late, 0.5),
            "p99_ms": ms(late, 0.99), "with_subject_per_s": round(len(each) / asked)}  # fmt: skip
    yield figure("resolve", rate, "1/s over HTTP", f">= {RESOLVES:.0f}", rate >= RESOLVES, peer)


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
