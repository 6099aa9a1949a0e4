import random
import tracemalloc

import pytest

from routing.index import DictIndex, Full
from routing.index_jit import PackedIndex
from tests.contracts.index import IndexContract, pack


class TestPacked(IndexContract):
    make = PackedIndex


def test_long_histories_answer_as_the_dict_form_does():
    """Tables that grow, shrink and close up, hundreds of owners, sets that come and go: the dict form is the oracle."""
    rng, packed, plain = random.Random(11), PackedIndex(), DictIndex()
    chains = [[rng.getrandbits(64) for _ in range(rng.randrange(1, 900))] for _ in range(30)]
    for turn in range(1_500):
        chain, owner, space = rng.choice(chains), rng.randrange(200), rng.randrange(3)
        start = rng.randrange(len(chain))
        some = pack(chain[start : start + rng.randrange(1, 300)])
        for index in (packed, plain):
            match turn % 10:
                case 0 | 1:
                    index.remove(space, owner, some)
                case 2:
                    index.move(space, owner, (owner + 7) % 200, some)
                case 3 if turn % 100 == 3:
                    index.hide(owner, turn % 200 == 3)
                case 4 if turn % 250 == 4:
                    index.drop(space)
                case 5 if turn % 50 == 5:
                    index.collect()
                case _:
                    index.add(space, owner, some)
        if turn % 20 == 0:
            for asked in chains:
                for how in ({}, {"window": 9}, {"most": 3}):
                    ours, theirs = (index.lookup(space, pack(asked), **how) for index in (packed, plain))
                    assert [(d, sorted(o)) for d, o in ours] == [(d, sorted(o)) for d, o in theirs]
    packed.collect()
    plain.collect()
    sizes = packed.sizes()
    assert {k: sizes[k] for k in ("keys", "spaces")} == {k: plain.sizes()[k] for k in ("keys", "spaces")}


def test_its_bytes_are_what_it_takes():
    tracemalloc.start()
    try:
        before, index = tracemalloc.get_traced_memory()[0], PackedIndex()
        rng = random.Random(1)
        for owner in range(150):
            for _ in range(10):
                index.add(owner % 4, owner, pack([rng.getrandbits(64) for _ in range(200)]))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert index.size <= taken <= index.size * 1.1
    assert index.size / 300_000 <= 40


def test_sets_count_for_the_cap_and_a_collection_makes_room():
    index, rng = PackedIndex(), random.Random(2)
    keys = [rng.getrandbits(64) for _ in range(4_000)]
    for owner in range(64):
        index.add(0, owner, pack(keys[:1]))
    index.bytes_max = index.size + 400_000

    def crowd():
        for key in keys * 30:  # nearly every step leads to a set that is new
            index.add(0, rng.randrange(64), pack([key]))

    with pytest.raises(Full):
        crowd()
    assert index.size <= index.bytes_max
    index.drop(0)
    assert index.collect() > 100
    index.add(1, 5, pack(keys[:300]))
    assert index.lookup(1, pack(keys[:300])) == [(300, [5])]
