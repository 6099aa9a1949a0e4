"""What is moved or copied is as old as it was: whatever of it was written when, and after a crash too."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.index.steps import Touched
from catalog.store import Store
from tests.catalog.stored import NODE, Rig, chain, module_database_, store_database_

__all__ = ["module_database_", "store_database_"]
AGE = 1000.0


@pytest.fixture
def rig(store_database: Any) -> Iterator[Rig]:
    """A store that writes rows when they are told to be written."""
    rig = Rig(store_database.dsn("ingest"), defer=1e9)
    yield rig
    rig.store.close()


def born(rig: Rig) -> dict[tuple[int, str], float]:
    """(source, tier) → birth of its only placement, when all rows are written."""
    rig.store.commit(Touched(), now=rig.now, flush=True)
    rows = rig.rows(
        "SELECT o.source_id, o.tier, extract(epoch FROM p.born)::float8 FROM catalog_placement p"
        " JOIN catalog_owner o ON o.id = p.owner"
    )
    assert len({row[:2] for row in rows}) == len(rows)
    return {row[:2]: row[2] for row in rows}


def crash(rig: Rig) -> None:
    """The writer is gone, and another one loads what it left."""
    rig.store.close()
    rig.store = Store(rig.dsn, defer=1e9, grace=0)


@pytest.mark.parametrize(("written", "between", "dies"), list(itertools.product([False, True], repeat=3)))
def test_down_two_tiers_it_is_as_old_as_at_first(rig: Rig, written: bool, between: bool, dies: bool) -> None:
    keys, start = chain(10), rig.now
    rig.do(rig.step("add", keys), flush=written)
    rig.now += AGE
    rig.do(rig.step("move", keys, to="dram"), flush=between)
    rig.now += AGE
    if dies:
        crash(rig)
    rig.do(rig.step("move", keys, tier="dram", to="ssd"), flush=False)
    if dies:
        crash(rig)
    assert born(rig) == {(rig.source, "ssd"): start}


def test_what_joins_younger_blocks_makes_them_as_old(rig: Rig) -> None:
    """A placement is selected as a whole, and no block of it may lie too long."""
    keys, start = chain(10), rig.now
    rig.do(rig.step("add", keys[:5]))
    rig.do(rig.step("move", keys[:5], to="ssd"))
    rig.now += AGE
    rig.do(rig.step("add", keys))
    rig.now += AGE
    rig.do(rig.step("move", keys[5:], to="ssd"), flush=False)
    assert born(rig) == {(rig.source, "hbm"): start, (rig.source, "ssd"): start}


def test_a_copy_on_another_tier_outlives_its_original_and_is_as_old(rig: Rig) -> None:
    keys, start = chain(10), rig.now
    rig.do(rig.step("add", keys, tier="dram"))
    rig.now += AGE
    rig.do(rig.step("add", keys), flush=False)
    rig.do(rig.step("drop", keys, tier="dram", reason="ttl"), flush=False)
    assert born(rig) == {(rig.source, "hbm"): start}
    rig.do(rig.step("drop", keys, reason="ttl"))
    rig.now += AGE
    rig.do(rig.step("add", keys))
    assert born(rig) == {(rig.source, "hbm"): start + 2 * AGE}  # computed again


@pytest.mark.parametrize("dies", [False, True])
def test_what_another_node_took_is_as_old_as_it_was_there(rig: Rig, dies: bool) -> None:
    keys, start, touched = chain(10), rig.now, Touched()
    there = rig.store.memory.source(NODE, "other", 0, touched, rig.now).id
    rig.store.commit(touched, now=rig.now)
    rig.do(rig.step("add", keys))
    rig.now += AGE
    moved = (rig.step("add", keys, tier="ssd", source=there), rig.step("vacate", keys, taker=(there, "ssd")))
    rig.do(*moved, flush=False)
    if dies:
        crash(rig)
    rig.do(rig.step("drop", keys, reason="delete"), flush=False)
    assert born(rig) == {(there, "ssd"): start}
    rig.do(rig.step("add", keys, tier="hbm", source=there), flush=False)  # computed there, beside what was moved
    rig.now += AGE
    rig.do(rig.step("add", keys), flush=False)  # computed here: another node's copy says nothing of it
    assert born(rig)[rig.source, "hbm"] == rig.now


def test_a_row_that_others_wait_for_is_told_anew(rig: Rig) -> None:
    """The row of the first place is written after the last one's, and a crash between loses neither."""
    keys = chain(10)
    rig.do(rig.step("add", keys))
    for tier, to in (("hbm", "dram"), ("dram", "ssd"), ("ssd", "pinned")):
        rig.now += 1
        rig.do(rig.step("move", keys, tier=tier, to=to), flush=False)
        rig.store.commit(Touched(), now=rig.now)
    first, last = (rig.store.memory.owner_of[rig.source, tier] for tier in ("hbm", "pinned"))
    order = [o for o, _ in rig.store._dirty_place]
    assert order.index(first) > order.index(last) - 2
    crash(rig)
    assert born(rig) == {(rig.source, "pinned"): rig.now - 3}
    assert rig.rows("SELECT count(*) FROM catalog_placement") == [(1,)]
