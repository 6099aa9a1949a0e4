from routing.index import DictIndex, _bits
from tests.contracts.index import IndexContract, pack


class TestDict(IndexContract):
    make = DictIndex


def test_bits_are_the_slots_of_a_mask():
    assert list(_bits(0b1010010)) == [1, 4, 6]
    assert list(_bits(1 << 200)) == [200]


def test_equal_runs_share_one_set():
    index = DictIndex()
    for owner in range(8):
        index.add(0, owner, pack(list(range(1000))))
    index.collect()
    assert index.sizes()["sets"] == 1
    assert index.lookup(0, pack(list(range(1000)))) == [(1000, list(range(8)))]


def test_numbers_rest_for_one_collection():
    index = DictIndex()
    index.add(0, 1, pack([1]))
    index.add(0, 2, pack([1]))  # {1} is unused now
    space = index.spaces[0]
    index.collect()
    assert space.free == []
    index.collect()
    assert space.free
