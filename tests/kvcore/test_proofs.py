"""The tree: vectors, every proof of small trees against a naive tree, forged proofs refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import proofs
from kvcore.proofs import EMPTY_ROOT, Frontier, leaf_hash, node_hash

INPUTS = [bytes.fromhex(h) for h in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                     "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
ROOTS = ["6e340b9c", "fac54203", "aeb6bcfe", "d37ee418", "4e3bbb1f", "76e67dad", "ddb89be4", "5dc9da79"]
GOLDEN = [bytes.fromhex(h) for h in (
    "40f5ae4817fe7d9d8ecfde2880d5e66285ad5dabe2057207d58da9e2c878e395",
    "69184fa35b97dafd25517879b63de4d345bc18f2cc2918ee8544caae3d7160d3",
    "fae9aa8a4a941ab48e6bd35e6dd4bf106ec04c39f5abbef406aad550dfb6f7ab")]  # fmt: skip
GOLDEN_ROOT = bytes.fromhex("e35f6758fa381bd324ae92e2be5942aabb798f18933c56f5a4f3ceada11a066d")
HASHES = [leaf_hash(n.to_bytes(2, "big")) for n in range(300)]


def naive(hashes: list[bytes]) -> bytes:
    """The RFC's definition, word for word."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    k = 1
    while k * 2 < len(hashes):
        k *= 2
    return hashlib.sha256(b"\x01" + naive(hashes[:k]) + naive(hashes[k:])).digest()


def node(level: int, index: int) -> bytes:
    return naive(HASHES[index << level : (index + 1) << level])


def test_the_vectors_of_the_rfc() -> None:
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT
    for data, root in zip(INPUTS, ROOTS, strict=True):
        frontier.append(leaf_hash(data))
        assert frontier.root().hex().startswith(root)


def test_the_golden_tree() -> None:
    def golden(level: int, index: int) -> bytes:
        return naive(GOLDEN[index << level : (index + 1) << level])

    assert proofs.root_at(3, golden) == GOLDEN_ROOT
    assert proofs.inclusion(1, 3, golden) == [GOLDEN[0], GOLDEN[2]]
    assert proofs.consistency(2, 3, golden) == [GOLDEN[2]]
    assert proofs.verify_inclusion(GOLDEN[1], 1, 3, [GOLDEN[0], GOLDEN[2]], GOLDEN_ROOT)
    assert proofs.verify_consistency(2, 3, [GOLDEN[2]], node_hash(*GOLDEN[:2]), GOLDEN_ROOT)


@given(st.integers(0, 300))
def test_a_frontier_is_the_tree(size: int) -> None:
    frontier = Frontier()
    for one in HASHES[:size]:
        frontier.append(one)
    again = Frontier.unpack(frontier.pack(), size)
    assert again.root() == frontier.root() == naive(HASHES[:size]) == proofs.root_at(size, node)
    assert (again.size, again.hashes) == (frontier.size, frontier.hashes)


@given(st.data())
def test_every_leaf_is_proven_and_no_other(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 300))
    index = data.draw(st.integers(0, size - 1))
    root, path = naive(HASHES[:size]), proofs.inclusion(index, size, node)
    assert proofs.verify_inclusion(HASHES[index], index, size, path, root)
    for forged in _forged(path):
        assert not proofs.verify_inclusion(HASHES[index], index, size, forged, root)
    other = data.draw(st.integers(0, 299))
    assert proofs.verify_inclusion(HASHES[other], index, size, path, root) == (other == index)
    assert proofs.verify_inclusion(HASHES[index], other, size, path, root) == (other == index)
    assert not proofs.verify_inclusion(HASHES[index], index, size, path, leaf_hash(b"another root"))


@given(st.data())
def test_every_beginning_is_proven_and_no_other(data: st.DataObject) -> None:
    new = data.draw(st.integers(1, 300))
    old = data.draw(st.integers(1, new))
    path = proofs.consistency(old, new, node)
    before, after = naive(HASHES[:old]), naive(HASHES[:new])
    assert proofs.verify_consistency(old, new, path, before, after)
    for forged in _forged(path):
        assert not proofs.verify_consistency(old, new, forged, before, after)
    fork = naive([leaf_hash(b"rewritten"), *HASHES[1:old]])
    assert not proofs.verify_consistency(old, new, path, fork, after)
    assert not proofs.verify_consistency(old, new, path, before, leaf_hash(b"another root"))


@given(st.data())
def test_every_run_is_proven_and_no_other(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 300))
    first = data.draw(st.integers(0, size))
    end = data.draw(st.integers(first, size))
    root, hashes = naive(HASHES[:size]), HASHES[first:end]
    left, right = proofs.range_edges(first, end - 1, size, node)
    assert proofs.root_of_range(first, hashes, size, left, right) == root
    for at, run in enumerate((left, hashes, right)):
        for changed in _forged(run):
            parts = [left, hashes, right]
            parts[at] = changed
            assert _root_or_none(first, parts[1], size, parts[0], parts[2]) != root


def test_an_empty_tree_is_consistent_with_every_tree() -> None:
    assert proofs.consistency(0, 7, node) == []
    assert proofs.verify_consistency(0, 7, [], EMPTY_ROOT, naive(HASHES[:7]))
    assert not proofs.verify_consistency(0, 7, [], HASHES[0], naive(HASHES[:7]))
    assert not proofs.verify_consistency(0, 7, [HASHES[0]], EMPTY_ROOT, naive(HASHES[:7]))
    assert not proofs.verify_consistency(7, 0, [], naive(HASHES[:7]), EMPTY_ROOT)


def test_what_is_not_in_the_tree_is_refused() -> None:
    for call in (
        lambda: proofs.inclusion(3, 3, node),
        lambda: proofs.inclusion(-1, 3, node),
        lambda: proofs.consistency(4, 3, node),
        lambda: proofs.range_edges(2, 3, 3, node),
        lambda: proofs.root_of_range(2, HASHES[:2], 3, [HASHES[0]], []),
        lambda: proofs.root_of_range(0, HASHES[:2], 3, [], []),
        lambda: proofs.root_of_range(0, HASHES[:2], 3, [], [b"short"]),
        lambda: Frontier(3, [HASHES[0]]),
        lambda: Frontier.unpack(b"short", 1),
        lambda: Frontier(-1),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
    assert not proofs.verify_inclusion(HASHES[0], 3, 3, [], HASHES[0])
    assert not proofs.verify_inclusion(HASHES[0], -1, 3, [], HASHES[0])


def _forged(path: list[bytes]) -> list[list[bytes]]:
    """A proof with one thing wrong, in each way."""
    found = [[*path, leaf_hash(b"more")]]
    for at in range(len(path)):
        found.append([*path[:at], *path[at + 1 :]])
        found.append([*path[:at], leaf_hash(path[at]), *path[at + 1 :]])
    if len(path) > 1 and path[0] != path[1]:
        found.append([path[1], path[0], *path[2:]])
    return found[:12]


def _root_or_none(first: int, hashes: list[bytes], size: int, left: list[bytes], right: list[bytes]) -> bytes | None:
    try:
        return proofs.root_of_range(first, hashes, size, left, right)
    except ValueError:
        return None
