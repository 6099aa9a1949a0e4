"""A loaded store is the store that was lost, wherever its rows stood."""

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.store import Store
from tests.catalog.stored import Rig, chain, module_database_, store_database_

__all__ = ["module_database_", "store_database_"]


@pytest.fixture
def rig(store_database: Any) -> Iterator[Rig]:
    rig = Rig(store_database.dsn("ingest"), defer=1e9)
    yield rig
    rig.store.close()


def same(rig: Rig) -> Store:
    """A second store, whose memory is that of the first."""
    other, a = Store(rig.dsn, defer=1e9, grace=0), rig.store.memory
    b = other.memory
    for name in ("place", "states", "holding", "resident", "owner_of", "unused", "orphans", "next_seg", "next_owner",
                 "next_source", "next_keyspace", "sources", "keyspaces"):  # fmt: skip
        assert getattr(a, name) == getattr(b, name), name
    n = a.next_seg
    for name in ("seg_n", "seg_ks", "seg_up", "seg_up_off", "seg_fam"):
        living = a.seg_n[:n] > 0
        assert (getattr(a, name)[:n][living] == getattr(b, name)[:n][living]).all(), name
    assert a.refs[:n] == b.refs[:n]
    rig.store.close()
    return other


def test_from_the_ledger_alone_from_rows_alone_and_from_both(rig: Rig) -> None:
    keys, branch = chain(500), chain(30, 1)
    rig.do(rig.step("add", keys), rig.step("add", branch, parent=keys[99]), flush=False)
    rig.do(rig.step("state", keys[:7], state="evicting"), rig.step("drop", keys[5:300:2], reason="ttl"), flush=False)
    rig.do(rig.step("add", chain(9, 2)[3:], parent=chain(9, 2)[2]), flush=False)
    rig.store = same(rig)
    assert rig.store.redo == 2
    rig.do(rig.step("add", chain(9, 3)))
    rig.store = same(rig)
    rig.do(rig.step("drop", keys[:100], reason="ttl"), rig.step("add", chain(9, 2)[:3]), flush=False)
    rig.store = same(rig)


def test_retired_owners_are_still_drained_after_a_restart(rig: Rig) -> None:
    rig.do(rig.step("add", chain(30)), rig.step("add", chain(30, 1), tier="ssd"))
    rig.do(rig.step("reset"), flush=False)
    rig.store.close()
    rig.store = Store(rig.dsn, defer=1e9, grace=0)
    assert rig.store.memory.refs[:2] == [1, 1]
    rig.sweep()
    assert rig.store.memory.refs[:2] == [0, 1]
    assert rig.rows("SELECT owner FROM catalog_placement") == [(2,)]
    assert rig.rows("SELECT id FROM catalog_owner") == [(2,)]


def test_an_emptied_row_of_a_swept_segment_is_deleted_after_a_restart(rig: Rig) -> None:
    rig.do(rig.step("add", chain(30)), rig.step("add", chain(3, 9), keyspace=rig.ks))
    rig.do(rig.step("drop", chain(30), reason="ttl"), flush=False)
    rig.store.idle(rig.now)
    assert rig.rows("SELECT count(*) FROM catalog_placement") == [(2,)]
    rig.store = same(rig)
    rig.do(rig.step("add", chain(3, 9)))
    assert rig.rows("SELECT count(*) FROM catalog_placement") == [(1,)]


def test_a_child_of_a_swept_parent_waits_for_it(rig: Rig) -> None:
    keys = chain(250)
    rig.do(rig.step("add", keys))
    rig.do(rig.step("drop", keys[:240], reason="ttl"))
    rig.store.idle(rig.now)
    assert rig.store.memory.orphans == {1}
    rig.store = same(rig)
    rig.do(rig.step("add", keys[:240]))
    assert rig.rows("SELECT up, up_off FROM catalog_segment WHERE id = 1") == [(2, 239)]
    rig.store = same(rig)
