"""Tenancy, seen from outside: isolation means what it says. On a console of its own: nobody's limits are left."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.accept.driving import Drive
from tests.accept.fleet import agent_get, rows, say, until
from tests.accept.tenancy import Caller
from tests.accept.test_tenancy_limits import BLOCK, FITS, KIB, LONG, _room, _sent, limit, operator
from tests.running import Console

__all__ = ["operator"]
pytestmark = [pytest.mark.accept, pytest.mark.walk]
PROMPTS = 400 if LONG else 60


@pytest.mark.timeout(600)
def test_a_node_of_ones_own_holds_nobody_elses_blocks_and_an_arena_is_neither_entered_nor_left(
    fleet_console: Console, operator: Caller
) -> None:
    """Isolation `node`: 0 blocks of others there, 0 of the tenant elsewhere. `arena`: no eviction over its wall."""
    console, names = fleet_console, ("own", "open")
    for name in names:
        console.node(name, tiers=("hbm=256KiB", "ssd=2MiB") if name == "own" else ("hbm=256KiB",))
    kinds = {"alone": "node", "walled": "arena", "crowd": "shared"}
    for slug, isolation in kinds.items():
        operator.post("/tenants", {"slug": slug, "name": slug, "isolation": isolation})
    _room(operator)
    limit(operator, None, "walled", 192 * KIB, 192 * KIB)
    drives = {slug: Drive(console, slug, names) for slug in kinds}
    until(lambda: not _codes(drives["crowd"], "own", range(20)), 30, "everybody's blocks are on the node")
    until(lambda: _told(console, "own") == {"crowd"}, 30, "the catalog has heard of them")
    nodes = {"nodes": ["own"], "evict": False}
    refused = operator("PUT", "/tenants/alone/nodes", nodes, **{"If-Match": "*"})
    assert (refused.status_code, refused.json()["code"]) == (409, "node-holds-others")
    operator.put("/tenants/alone/nodes", {**nodes, "evict": True})
    begin = time.monotonic()
    for where, slugs in {"own": ("crowd", "walled"), "open": ("alone",)}.items():
        for slug in slugs:
            until(lambda d=drives[slug], n=where: _codes(d, n, [1]) == {"isolation"}, 30, f"{slug} is not on {where}")
    until(lambda: _on(console, "own") <= {"alone"} and _told(console, "own") <= {"alone"}, 30, "the others have left")
    shut = time.monotonic() - begin
    until(lambda: not _codes(drives["alone"], "own", [0]), 30, "its own tenant is served")
    kept = _arena(console, drives, range(1, PROMPTS + 1))
    until(lambda: all(drives["alone"].status(n)["idle"] for n in names), 30, "everything is told")
    until(lambda: _told(console, "own") == _on(console, "own") == {"alone"}, 30, "the catalog says what nodes hold")
    assert not {"alone"} & set.union(*(_on(console, n) | _told(console, n) for n in ("open", "q1", "r1")))
    attempts = Counter[str]()
    for node in names:
        attempts.update({node: drives["alone"].status(node)["not_taken_blocks"].get("hbm/isolation", 0)})
    say("isolation", prompts=PROMPTS, blocks_of_others_on_the_node=0, blocks_of_the_tenant_elsewhere=0,
        refused_blocks=dict(attempts), shut_after_s=round(shut, 1), **kept)  # fmt: skip
    assert min(attempts.values()) > 0


def _codes(drive: Drive, node: str, numbers: Iterable[int]) -> set[str]:
    """Why the node did not take the prompts, nothing where it took all."""
    return {code for answer in _sent(drive, numbers, FITS, node) if (code := answer.get("code"))}


def _on(console: Console, node: str) -> set[str]:
    """Whose blocks the node itself says it holds."""
    listed = agent_get(console, node, "/v1/inventory", secret=True)["lists"]
    spaces = [bytes.fromhex(row["ns"]) for row in listed if row["keys"]]
    query = "SELECT t.slug FROM tenants_namespace n JOIN tenants_tenant t ON t.id = n.tenant_id WHERE digest = ANY(%s)"
    return {slug for (slug,) in rows(console, query, spaces)}


def _told(console: Console, node: str) -> set[str]:
    """Whose blocks the catalog says the node holds."""
    query = """SELECT t.slug FROM catalog_holding h JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
                 JOIN catalog_source s ON s.id = o.source_id JOIN catalog_node n ON n.id = s.node_id
                 JOIN tenants_tenant t ON t.id = h.tenant_id WHERE h.blocks > 0 AND n.name = %s"""
    return {slug for (slug,) in rows(console, query, node)}


def _arena(console: Console, drives: dict[str, Drive], flood: range) -> dict[str, Any]:
    """Neither flood reaches over the wall: what the other held before is held after."""
    query = """SELECT a.given FROM catalog_allowance a JOIN catalog_node n ON n.id = a.node_id
                 JOIN tenants_tenant t ON t.id = a.tenant_id WHERE t.slug = 'walled' AND n.name = 'open'
                  AND a.tier = 'hbm'"""
    until(lambda: int(rows(console, query)[0][0]) > 32 * KIB, 30, "the arena has its part of the node")
    room = int(rows(console, query)[0][0])
    inside = range(1000, 1000 + room // (FITS // 16 * BLOCK) // 2)
    assert len(inside) >= 4, room
    outside = range(2000, 2004)
    for slug, numbers in (("walled", inside), ("crowd", outside)):
        until(lambda s=slug, n=numbers: _hits(drives[s], n) == len(n) * FITS, 20, f"{slug} holds its prompts")
    for _ in range(2):
        for at in range(0, len(flood), 20):
            for slug, node in (("crowd", "open"), ("alone", "own")):
                assert not _codes(drives[slug], node, flood[at : at + 20])
    assert _hits(drives["walled"], inside) == len(inside) * FITS, "the others evicted what is in the arena"
    until(lambda: _hits(drives["crowd"], outside) == len(outside) * FITS, 20, "the crowd holds its prompts again")
    for at in range(0, len(flood), 20):
        assert not _codes(drives["walled"], "open", flood[at : at + 20])
    assert _hits(drives["crowd"], outside) == len(outside) * FITS, "the arena's tenant evicted others"
    return {"arena_kib": room // KIB, "evicted_over_the_wall": 0}


def _hits(drive: Drive, numbers: Iterable[int]) -> int:
    """Tokens that the node had of these prompts; what it had not it has afterwards, if it may."""
    return sum(answer.get("hit_tokens", 0) for answer in _sent(drive, numbers, FITS, "open"))
