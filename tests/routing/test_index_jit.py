from routing.index_jit import PackedIndex
from tests.contracts.index import IndexContract


class TestPacked(IndexContract):
    make = PackedIndex
