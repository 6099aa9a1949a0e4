"""Within a source a move is one item; what is pinned or does not fit stays."""

import hashlib
import os
from collections import Counter

import pytest

from kvcore.events import Drop, Move
from nodeagent.budget import Pin
from tests.nodeagent.moving import D, H, S, filled, network, offer, pair
from tests.nodeagent.ordering import everything
from tests.nodeagent.test_pool import check

__all__ = ["network", "pair"]


@pytest.mark.parametrize("to", [D, S], ids=str)
def test_within_a_source_a_move_is_one_item(pair, to):
    a, b = pair
    key = filled(a, b)
    a.told["reference"].clear()
    before = a.all(H) | a.all(D)
    done, _ = a.obey("move", H, everything(key), to_tier=to.value)
    assert done.outcome == "done", done
    assert a.all(H) == set()
    assert a.all(H) | a.all(D) | a.all(S) == before
    assert done.detail["blocks"] == sum(len(i.keys) // 32 for i in a.items(Move) + a.items(Drop))
    check(a)


def test_pinned_blocks_are_neither_moved_nor_offered(pair):
    a, b = pair
    key = filled(a, b)
    kept = next(r for r in a.pool.runs.values() if D in r.copies)
    policy = a.pool.budget.policies[key.ns]._replace(pins=(Pin(a.now + 60, frozenset([kept.keys[:32]])),))
    a.relief.learn({key.ns: policy})
    done, step = offer(a, D, b, D, everything(key))
    assert done.detail["pinned"] == kept.blocks
    assert kept.meta.version not in a.desk.offers.open[step].held
    done, _ = a.obey("move", D, everything(key), to_tier="ssd")
    assert done.detail["pinned"] == kept.blocks
    assert D in kept.copies
    a.relief.expire(a.now + 61)
    a.desk.upkeep(a.now + 601)
    done, _ = a.obey("move", D, everything(key), to_tier="ssd")
    assert (done.outcome, D in kept.copies) == ("done", False)


def test_a_move_to_files_costs_one_fsync_a_run_and_two_a_slice_and_checks_each_block_once(pair, monkeypatch):
    a, b = pair
    key = filled(a, b)
    there = [r for r in a.pool.runs.values() if D in r.copies]
    blocks, seen, paid = sum(r.blocks for r in there), Counter(), Counter()
    fsync, sha256 = os.fsync, hashlib.sha256
    monkeypatch.setattr(os, "fsync", lambda fd: (paid.update(fsyncs=1), fsync(fd)))
    monkeypatch.setattr(hashlib, "sha256", lambda *data: (seen.update(digests=1), sha256(*data))[1])
    done, _ = a.obey("move", D, everything(key), to_tier="ssd")
    assert (done.outcome, done.detail["blocks"]) == ("done", blocks)
    assert len(there) > 8
    assert paid["fsyncs"] == len(there) + 2  # all in one slice
    assert seen["digests"] == blocks + len(there)  # of each block once, and of each object's head


def test_a_move_between_arenas_checks_each_block_once_and_asks_no_medium(pair, monkeypatch):
    a, b = pair
    key = filled(a, b)
    blocks, seen, sha256 = sum(r.blocks for r in a.pool.runs.values() if H in r.copies), Counter(), hashlib.sha256
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("a fsync for memory"))
    monkeypatch.setattr(hashlib, "sha256", lambda *data: (seen.update(digests=1), sha256(*data))[1])
    done, _ = a.obey("move", H, everything(key), to_tier="dram")
    assert (done.outcome, done.detail["blocks"], seen["digests"]) == ("done", blocks, blocks)
