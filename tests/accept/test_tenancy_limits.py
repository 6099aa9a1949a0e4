"""Tenancy, seen from outside: quotas that hold over several nodes, and data that stays where it may be."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import psycopg
import pytest

from tests.accept.driving import Drive
from tests.accept.fleet import rows, say, until
from tests.accept.tenancy import Caller, People
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
KIB = 1024
BLOCK = 1024
SMALL = 32 * KIB
"""Room of the second node: a whole prompt of 512 tokens with its headers is larger."""
FITS = 64
"""Tokens of a prompt that fits there, and into the part of a small limit that is dealt to the node."""
REFUSED = 0x02F1


class Watch:
    """Looks all the time whether the sum of what a tenant's nodes may hold is above what it may hold."""

    def __init__(self, console: Console, tenant: str, tier: str = "hbm") -> None:
        self.console, self.tenant, self.tier = console, tenant, tier
        self.most, self.looks, self.over = 0, 0, list[tuple[int, int]]()
        self.highest = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, most: int) -> None:
        """From now on the sum must not be above `most` bytes."""
        self.most = most
        self._thread.start()

    def end(self) -> None:
        """Nobody looks any more."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        query = """SELECT sum(coalesce(ceiling, 2^60::bigint))::bigint FROM catalog_allowance a
                     JOIN tenants_tenant t ON t.id = a.tenant_id WHERE t.slug = %s AND a.tier = %s"""
        with psycopg.connect(self.console.database.dsn("superuser"), autocommit=True) as cx:
            while not self._stop.is_set():
                most = self.most
                found = int(cx.execute(query, (self.tenant, self.tier)).fetchone()[0] or 0)
                self.looks, self.highest = self.looks + 1, max(self.highest, found)
                if found > max(most, self.most):
                    self.over.append((found, most))
                time.sleep(0.01)


def limit(operator: Caller, watch: Watch | None, tenant: str, size: int | None, guaranteed: int = 0) -> float:
    """Seconds until a limit of hbm is in force on all nodes."""
    if watch is not None and size is not None:
        watch.most = max(watch.most, size)
    body = {"tiers": {"hbm": {"limit_bytes": size, "guaranteed_bytes": guaranteed}}, "evict": True}
    operator.put(f"/tenants/{tenant}/quotas", body)
    path = f"/tenants/{tenant}/quotas"
    took = until(lambda: operator.get(path)["tiers"]["hbm"]["in_force"], 40, f"{size} in force")
    if watch is not None and size is not None:
        watch.most = size
    return round(took, 2)


@pytest.fixture(scope="module")
def operator(fleet_console: Console) -> Caller:
    """The operator, before three nodes that have 350 KiB of hbm together."""
    console = fleet_console
    for name, tiers in {
        "q1": ("hbm=254KiB", "dram=4MiB"),
        "q2": (f"hbm={SMALL}",),
        "r1": ("hbm=64KiB", "ssd=4MiB"),
    }.items():
        console.node(name, tiers=tiers)
    until(lambda: [r[0] for r in rows(console, "SELECT state FROM catalog_node")] == ["ready"] * 3, 40, "nodes ready")
    scopes = ("*:read", "*:write", "tenants:destroy")
    return People(console).token("operator", "operator", "viewer", scopes=scopes)


@pytest.mark.timeout(600)
def test_350_under_200_and_500_is_100_and_250_aborted_puts_cost_nothing_and_no_sum_is_above_its_limit(
    fleet_console: Console, operator: Caller
) -> None:
    """Guarantees are scaled to the capacity; 100 aborted puts are charged 0; allowances never exceed the limit."""
    console = fleet_console
    one, two = "one", "two"
    for slug in (one, two):
        operator.post("/tenants", {"slug": slug, "name": slug})
    _room(operator)
    for slug, guaranteed in ((one, 200), (two, 500)):
        limit(operator, None, slug, None, guaranteed * KIB)
    effective = {s: _effective(operator, s) for s in (one, two)}
    figures: dict[str, Any] = {"capacity": 350, "guarantees": [200, 500], "effective": effective}
    drive = Drive(console, one, ("q1", "q2"))
    figures |= _aborted(console, operator, drive, one)
    figures |= _moved(console, operator, drive, one)
    say("quotas", **figures)
    assert effective == {one: 100, two: 250}


def _room(operator: Caller) -> None:
    """The demonstration's own guarantees and arena take no part of the tiers."""
    for slug in ("acme-code", "borealis-bank"):
        operator.put(f"/tenants/{slug}/quotas", {"evict": True})
    operator("PATCH", "/tenants/borealis-bank", {"isolation": "shared"}, **{"If-Match": "*"})


def _effective(operator: Caller, slug: str) -> int:
    hbm = operator.get(f"/tenants/{slug}/quotas")["tiers"]["hbm"]
    return int(hbm["effective_guaranteed_bytes"]) // KIB


def _aborted(console: Console, operator: Caller, drive: Drive, slug: str) -> dict[str, Any]:
    """100 prompts that cannot be stored; then a limit that what they would have been charged would use up 50 times."""
    for start in range(0, 100, 10):
        answers = drive.send("q2", range(start, start + 10))
        assert not [a for a in answers if a.get("code")], answers
    assert drive.status("q2")["tiers"]["hbm"]["blocks"] == 0
    assert "hbm/quota" not in drive.status("q2")["not_taken_blocks"]
    limit(operator, None, slug, 64 * KIB)
    charged = until(lambda: _used(operator, slug) == 0, 15, "nothing is held")
    drive.send("q2", [1000], tokens=FITS)
    held = drive.status("q2")["tiers"]["hbm"]["blocks"]
    assert held == FITS // 16, (held, drive.status("q2")["not_taken_blocks"])
    until(lambda: _used(operator, slug) == held * BLOCK, 15, "what fits is held and counted")
    return {"aborted_puts": 100, "charged_for_them": 0, "told_after_s": round(charged, 1), "then_held_blocks": held}


def _used(operator: Caller, slug: str) -> int | None:
    used: int | None = operator.get(f"/tenants/{slug}/quotas")["tiers"]["hbm"]["used_bytes"]
    return used


def _moved(console: Console, operator: Caller, drive: Drive, slug: str) -> dict[str, Any]:
    """Limits go up and down under load on two nodes, one of which dies; so does the writer."""
    watch, forced = Watch(console, slug), list[float]()
    watch.begin(64 * KIB)
    try:
        for turn, size in enumerate((128, 48, 200, 24, 96) if LONG else (128, 24)):
            for at in range(0, 20, 5):
                drive.send("q1", range(turn * 20 + at, turn * 20 + at + 5))
                drive.send("q2", [turn * 20 + at], tokens=FITS)
            forced.append(limit(operator, watch, slug, size * KIB))
            until(lambda s=size: _held(drive) <= s, 15, f"at most {size} KiB held on both nodes")
        console.kill("q2")
        drive.send("q1", range(500, 510))
        console.kill("ingest")
        console.start("ingest")
        watch.most = max(watch.most, 160 * KIB)
        operator.put(f"/tenants/{slug}/quotas", {"tiers": {"hbm": {"limit_bytes": 160 * KIB}}, "evict": True})
        end = time.monotonic() + (25 if LONG else 5)
        while time.monotonic() < end:
            drive.send("q1", range(600, 605))
            time.sleep(0.5)
        assert drive.status("q1")["tiers"]["hbm"]["blocks"] <= 160
    finally:
        watch.end()
    assert watch.looks > 50
    assert not watch.over, watch.over[:5]
    return {"looks_at_the_sum": watch.looks, "sums_above_the_limit": len(watch.over),
            "highest_sum_kib": watch.highest // KIB, "in_force_after_s": forced}  # fmt: skip


def _held(drive: Drive) -> int:
    return sum(drive.status(n)["tiers"]["hbm"]["blocks"] for n in ("q1", "q2")) * BLOCK // KIB


# --- data class and residency ---------------------------------------------------------

ATTEMPTS = 10_000 if LONG else 640


@pytest.mark.timeout(600)
def test_restricted_data_is_never_on_ssd_nor_outside_its_region_and_every_attempt_is_in_the_trail(
    fleet_console: Console, operator: Caller
) -> None:
    """0 of 10,000 blocks where they may not be; all 10,000 attempts in audit events, repeated ones by count."""
    console = fleet_console
    fields = {"classes": ["restricted"], "erasure_scope": "class"}
    operator.post("/tenants", {"slug": "here", "name": "Here", **fields})
    operator.post("/tenants", {"slug": "away", "name": "Away", "residency": "eu-fra", **fields})
    here, away = (Drive(console, slug, ("r1",), "restricted") for slug in ("here", "away"))
    until(lambda: _sent(away, [0], 16)[0].get("code") == "residency", 30, "the node knows what may not be there")
    told = lambda: Counter(here.status("r1")["not_taken_blocks"])  # noqa: E731
    number, begin = 0, time.monotonic()
    while told()["ssd/data-class"] < ATTEMPTS // 2:
        here.send("r1", [n for n in range(number, number + 8) for _ in range(2)])
        number += 8
        assert time.monotonic() - begin < 300, told()
    while (left := ATTEMPTS - sum(told().values())) > 0:
        whole, rest = divmod(left, 32)
        if whole:
            away.send("r1", range(min(whole, 64)))
        elif rest:
            away.send("r1", [1], tokens=rest * 16)
    attempts = told()
    assert attempts.keys() == {"ssd/data-class", "hbm/residency"}
    assert sum(attempts.values()) >= ATTEMPTS
    _accounted(console, here, attempts, number)


def _sent(drive: Drive, numbers: Iterable[int], tokens: int, node: str = "r1") -> list[Any]:
    """What the node answers; a node that has no keys of the namespace yet says so."""
    try:
        return drive.send(node, numbers, tokens)
    except AssertionError as e:
        return [{"code": str(e)}]


def _accounted(console: Console, drive: Drive, attempts: Counter[str], prompts: int) -> None:
    """Nothing is where it may not be, by the node's word and the catalog's; each attempt is counted and told."""
    until(lambda: drive.status("r1")["idle"], 30, "everything is told")
    wanted = sum(attempts.values())
    mine = "tenant_id IN (SELECT id FROM tenants_tenant WHERE slug IN ('here', 'away'))"
    counted = f"SELECT coalesce(sum(count), 0)::int, coalesce(sum(told), 0)::int FROM catalog_attempt WHERE {mine}"
    until(lambda: rows(console, counted)[0][0] == wanted, 30, f"all {wanted} attempts counted")
    started = until(lambda: rows(console, counted)[0][1] > 0, 30, "the first is told")
    if LONG:
        started = until(lambda: rows(console, counted)[0][1] == wanted, 90, "all are told")
    events = rows(
        console,
        f"SELECT convert_from(body, 'UTF8')::json->'data' FROM audit_event WHERE event_type = {REFUSED} AND {mine}",
    )
    sums = Counter[str]()
    for (data,) in events:
        sums[f"{data['tier']}/{data['reason']}"] += data["count"]
    found = rows(console, "SELECT count(*) FROM catalog_holding h JOIN catalog_owner o ON o.id = h.owner"
                 " JOIN tenants_tenant t ON t.id = h.tenant_id WHERE h.blocks > 0"
                 " AND (t.slug = 'away' OR t.slug = 'here' AND o.tier = 'ssd')")[0][0]  # fmt: skip
    violated = rows(console, f"SELECT count(*) FROM catalog_attempt WHERE kind = 'found' AND {mine}")[0][0]
    say("placement", attempts=dict(attempts), prompts=prompts, on_ssd=drive.status("r1")["tiers"]["ssd"]["blocks"],
        in_the_catalog=found, counted=wanted, told_by_events=dict(sums), events=len(events),
        told_after_s=round(started, 1))  # fmt: skip
    assert drive.status("r1")["tiers"]["ssd"]["blocks"] == 0
    assert found == violated == 0
    assert sum(sums.values()) == rows(console, counted)[0][1]
    if LONG:
        assert dict(sums) == dict(attempts)


# --- isolation ------------------------------------------------------------------------
