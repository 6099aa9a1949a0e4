"""Tiles: the same tree as the one over single leaves, at every size and from every batch."""

import hashlib

import pytest

from audit import tiles
from kvcore import proofs

LEAVES = [hashlib.sha256(b"%d" % i).digest() for i in range(70_000)]


def plain(level: int, index: int) -> bytes:
    return tiles.over(LEAVES[index << level : (index + 1) << level])


class Kept:
    """Tiles as the database has them."""

    def __init__(self, *batches: int) -> None:
        self.size = 0
        self.tiles: dict[tuple[int, int], tiles.Tile] = {}
        for batch in batches:
            new = LEAVES[self.size : self.size + batch]
            for tile in tiles.completed(self.size, new, lambda a, b: LEAVES[a:b], self.roots):
                assert (tile.level, tile.tile) not in self.tiles
                self.tiles[tile.level, tile.tile] = tile
            self.size += batch

    def roots(self, level: int):
        return lambda a, b: [self.tiles[level - 8, n].root for n in range(a, b)]

    def node(self) -> proofs.Node:
        def tile(level: int, number: int) -> bytes | None:
            found = self.tiles.get((level, number))
            return found.hashes if found else None

        def edge(level: int, a: int, b: int) -> list[bytes]:
            return LEAVES[a:b] if level == 0 else self.roots(level)(a, b)

        return tiles.node_of(tile, edge)


@pytest.mark.parametrize(
    "batches", [(1,), (255,), (256,), (257,), (1000, 1000, 1000), (3, 253, 1, 255, 600), (70_000,)]
)
def test_proofs_from_tiles_are_those_of_the_leaves(batches):
    kept = Kept(*batches)
    node, size = kept.node(), kept.size
    tree = proofs.Frontier()
    for one in LEAVES[:size]:
        tree.append(one)
    root = tree.root()
    assert proofs.root_at(size, node) == root
    for index in {0, size // 3, size // 2, size - 1}:
        path = proofs.inclusion(index, size, node)
        assert proofs.verify_inclusion(LEAVES[index], index, size, path, root)
    for old in {1, size // 2 or 1, size}:
        path = proofs.consistency(old, size, node)
        assert proofs.verify_consistency(old, size, path, proofs.root_at(old, plain), root)


def test_a_tile_of_the_next_level_comes_with_its_last_one_below():
    kept = Kept(65_535)
    assert (8, 0) not in kept.tiles
    assert len(kept.tiles) == 255
    (*_, last), below = tiles.completed(65_535, LEAVES[65_535:65_536], lambda a, b: LEAVES[a:b], kept.roots), kept.tiles
    assert (last.level, last.tile) == (8, 0)
    assert tiles.split(last.hashes)[:255] == [below[0, n].root for n in range(255)]
    assert last.root == plain(16, 0)


def test_a_frontier_grows_by_whole_subtrees():
    one, other = proofs.Frontier(), proofs.Frontier()
    for at in range(0, 5 * 256, 256):
        for leaf in LEAVES[at : at + 256]:
            one.append(leaf)
        tiles.push(other, 8, plain(8, at // 256))
        assert (one.size, one.pack(), one.root()) == (other.size, other.pack(), other.root())


def test_hashes_of_leaves_side_by_side():
    leaves = [hashlib.sha512(b"%d" % i).digest() + bytes(84) for i in range(5)]
    assert tiles.leaf_hashes(b"".join(leaves)) == [proofs.leaf_hash(one) for one in leaves]
    assert tiles.leaf_hashes(b"".join(leaves)[:-1]) == [proofs.leaf_hash(one) for one in leaves[:-1]]
    assert tiles.leaf_hashes(b"") == []
