"""Deletions in a fleet: how soon a fence is seen everywhere, and a tenant of 10^6 blocks on 64 agents that goes.

Real console processes; agents are real too, several in each process (`bench.operations_site`). A fence counts as seen
by an agent when its journal holds it durably, by a router when its lease says so or is over; both are looked at every
10 ms, from before the fence is asked for. The tenant's deletion is R3: the request is the second person's word.
"""

import os
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.operations import figure
from bench.operations_site import Fleet, Journals, fleet
from bench.tenancy_site import Figure, ms
from tests.accept.tenancy import People

SEEN, OUT, ASKED, ROWS, GONE = 1.0, 1.0, 3.0, 0.2, 120.0
LOOK = 0.01
CHECKPOINT = """SELECT extract(epoch FROM min(c.signed_at))::float8 FROM audit_checkpoint c
  JOIN audit_leaf l ON l.event = %s AND l.idx < c.size"""
ROWS_LEFT = """SELECT EXISTS (SELECT FROM catalog_holding h JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
              WHERE h.keyspace = ANY(%(ks)s) AND h.blocks > 0),
  EXISTS (SELECT FROM catalog_placement WHERE keyspace = ANY(%(ks)s))
    OR EXISTS (SELECT FROM catalog_segment WHERE keyspace = ANY(%(ks)s)),
  (SELECT count(*) FROM catalog_step WHERE operation = %(operation)s AND kind = 'purge')"""


def run(quick: bool) -> Iterator[Figure]:
    """Fences seen, a tenant gone, fences seen without Celery and Valkey. `quick`: 16 agents, 10^5 blocks, 15 fences."""
    agents = int(os.environ.get("KVC_BENCH_AGENTS", "16" if quick else "64"))
    blocks = int(os.environ.get("KVC_BENCH_BLOCKS", "100000" if quick else "1000000"))
    with fleet(agents, blocks // agents) as made:
        cost = made.cost(5.0)
        yield seen(made, "fence_seen_p99", 15 if quick else 50, cost)
        yield from tenant(made, blocks // agents)
        for name in ("worker", "beat"):
            made.console.kill(name)
        made.console.broker.stop()
        yield seen(made, "fence_seen_without_celery_p99", 15 if quick else 50, cost)


# --- fences --------------------------------------------------------------------------------


def seen(made: Fleet, name: str, times: int, cost: dict[str, float]) -> Figure:
    """Seconds from before a fence is raised until each agent and each router has it."""
    from kvconsole.infra.access import system, tenant_context
    from tenants.services import namespaces_fence

    namespace, who = made.namespace("bench", "fenced"), system("bench")
    agents, routers, durable = list[float](), list[float](), list[float]()
    journals = Journals(made.homes)
    try:
        with psycopg.connect(made.database.dsn("superuser"), autocommit=True) as c:
            for turn in range(times):
                begin = time.perf_counter()
                with tenant_context(who):
                    (one,) = namespaces_fence(
                        namespaces=[namespace.id], reason="deletion", actor=who, now=datetime.now(UTC)
                    )
                durable.append(time.perf_counter() - begin)
                _wait(made, c, journals, one, begin, agents, routers)
                time.sleep(0.3 + 0.037 * (turn % 17))  # not in step with what looks now and then
    finally:
        journals.close()
    value = max(ms(agents, 0.99), ms(routers, 0.99)) / 1000
    told = {"agents": len(made.homes), "fences": times, "agents_p50_ms": ms(agents, 0.5),
            "agents_p99_ms": ms(agents, 0.99), "agents_max_ms": ms(agents, 1.0), "routers_p50_ms": ms(routers, 0.5),
            "routers_p99_ms": ms(routers, 0.99), "durable_p50_ms": ms(durable, 0.5), "an_agent_idle": cost}  # fmt: skip
    return figure(name, value, "s", f"<= {SEEN:g}", value <= SEEN, told)


def _wait(made: Fleet, c: psycopg.Connection, journals: Journals, one: Any, begin: float, agents: list[float],
          routers: list[float]) -> None:  # fmt: skip
    behind = "SELECT count(*) FROM routing_indexlease WHERE until > now() AND fence_seq < %s"
    among, router = set(made.homes), True
    while among or router:
        spent = time.perf_counter() - begin
        if spent > 30:
            told = {name: {k: made.status(name)[k] for k in ("console", "fences_not_kept")} for name in among}
            raise RuntimeError(f"a fence is not known to {told or 'a router'}")
        left = journals.without(one.digest, one.min_gen, among)
        agents += [time.perf_counter() - begin] * (len(among) - len(left))
        among = left
        if router and c.execute(behind, (one.fence_seq,)).fetchone() == (0,):
            router = False
            routers.append(time.perf_counter() - begin)
        time.sleep(LOOK)


# --- a tenant goes ---------------------------------------------------------------------------


def tenant(made: Fleet, each: int) -> Iterator[Figure]:
    """Everything of a tenant is deleted; another tenant's blocks stay where they are."""
    stays, goes = made.namespace("stays", "all"), made.namespace("goes", "all")
    began = time.monotonic()
    made.fill(goes, each)
    made.fill(stays, 256, first=5 * 10**8)  # what came last is worth most: nothing of it leaves by itself
    kept = {name: made.keys(name, bytes(stays.digest)) for name in made.homes}
    held = made.until(lambda: _held(made, goes), "blocks are in the catalog", 60)
    told = {"agents": len(made.homes), "blocks": held, "fill_s": round(time.monotonic() - began)}
    people = People(made.console)
    operation, asked = _ask(made, people)
    watch = _Watch(made, operation, bytes(goes.digest))
    try:
        done = made.until(lambda: _over(made, operation), "it ends", GONE * 5, 0.25)
    finally:
        watch.close()
    yield from _figures(made, operation, asked, done, watch, told)
    lost = sum(len(keys - made.keys(name, bytes(stays.digest))) for name, keys in kept.items())
    there = sum(map(len, kept.values()))
    yield figure("tenant_others_lost", lost, "blocks of others", "== 0", lost == 0 and there > 0, {"others": there})


def _figures(made: Fleet, operation: str, asked: float, done: dict[str, Any], watch: "_Watch",
             told: dict[str, Any]) -> Iterator[Figure]:  # fmt: skip
    journals = Journals(made.homes)
    taken = journals.first_taken("erase")
    journals.close()
    whole = len(taken) == len(made.homes)
    ((covered,),) = made.rows(CHECKPOINT, done["order_event"])
    out = max(taken.values(), default=0.0)
    told = {**told, "state": done["outcome"], "commands_to": len(taken),
            "fenced_s": round(done["fenced"] - asked, 3), "checkpoint_s": round(covered - asked, 3),
            "first_command_s": round(min(taken.values(), default=0) - asked, 3),
            "steps": done["steps"]}  # fmt: skip
    late = out - covered
    yield figure("tenant_commands_after_checkpoint", late, "s", f"<= {OUT:g}", whole and late <= OUT, told)
    late = out - asked
    yield figure("tenant_commands_after_request", late, "s", f"<= {ASKED:g}", whole and late <= ASKED, told)
    gone = watch.gone - watch.purged if watch.gone else 3600.0
    yield figure("tenant_rows_gone", gone, "s once purged", f"<= {ROWS:g}", gone <= ROWS,
                 {"purge_steps": watch.steps, "purged_s": round(watch.purged - asked, 2)})  # fmt: skip
    spent = done["verified"] - asked
    good = spent <= GONE and done["outcome"] == "completed"
    told |= {"erased_s": round(done["erased"] - asked, 1), "concluded_s": round(done["concluded"] - asked, 1)}
    yield figure("tenant_verified", spent, "s", f"<= {GONE:g}", good, told)


def _held(made: Fleet, namespace: Any) -> int:
    query = """SELECT coalesce(sum(h.blocks), 0)::int
      FROM catalog_keyspace k JOIN catalog_holding h ON h.keyspace = k.id
      JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired WHERE k.digest = %s"""
    return int(made.rows(query, bytes(namespace.digest))[0][0])


def _ask(made: Fleet, people: People) -> tuple[str, float]:
    """The operation, and when it was allowed to begin."""
    destroyer, approver = people.browser("destroyer"), people.browser("approver")
    plan = destroyer.post("/deletion-plans", {"selector": {"tenant": "goes"}})
    body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], "reason": "bench",
            "confirm_phrase": plan["confirm_phrase"]}  # fmt: skip
    asked = time.time()
    found = destroyer.post("/deletions", body, **{"Idempotency-Key": str(uuid.uuid4())})
    if found["state"] == "awaiting_approval":
        asked = time.time()
        approver.post(f"/approvals/{found['approval']}:approve", {"reason": "bench"})
    return str(found["id"]), asked


def _over(made: Fleet, operation: str) -> dict[str, Any] | None:
    query = """SELECT outcome, order_event, extract(epoch FROM fenced_at)::float8,
        extract(epoch FROM erased_at)::float8, extract(epoch FROM verified_at)::float8,
        extract(epoch FROM concluded_at)::float8, (SELECT count(*) FROM catalog_step s WHERE s.operation = o.id)
      FROM catalog_operation o WHERE id = %s AND concluded_at IS NOT NULL"""
    rows = made.rows(query, operation)
    names = ("outcome", "order_event", "fenced", "erased", "verified", "concluded", "steps")
    return dict(zip(names, rows[0], strict=True)) if rows else None


class _Watch:
    """When nobody was believed to hold anything any more, and when no row of it was left; looked at every 10 ms."""

    def __init__(self, made: Fleet, operation: str, digest: bytes) -> None:
        self.purged = self.gone = 0.0
        self.steps = 0
        spaces = [row[0] for row in made.rows("SELECT id FROM catalog_keyspace WHERE digest = %s", digest)]
        self._values = {"ks": spaces, "operation": operation}
        self._dsn, self._end = made.database.dsn("superuser"), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as c:
            while not self._end.wait(LOOK):
                row = c.execute(ROWS_LEFT, self._values).fetchone()
                assert row is not None
                held, left, self.steps = row
                self.purged = 0.0 if held else self.purged or time.time()
                self.gone = 0.0 if held or left else self.gone or time.time()

    def close(self) -> None:
        """It looks no more, unless rows are left: then for half a minute."""
        until = time.monotonic() + 30
        while not self.gone and time.monotonic() < until:
            time.sleep(LOOK)
        self._end.set()
        self._thread.join()
