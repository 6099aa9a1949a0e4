"""An order's targets under one root: in parts that prove themselves, in one order, each once."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.proofs import EMPTY_ROOT, Frontier
from kvcore.receipts import EraseTarget
from kvcore.targets import (
    KEY,
    MOST_PART_KEYS,
    Bound,
    attached_of,
    check_attached,
    keys_hash,
    named,
    packed,
    part_root,
    target_hash,
)


def target(number: int, **more: object) -> EraseTarget:
    return EraseTarget(ns=f"{number:064x}", gen_upto="2", **more)  # type: ignore[arg-type]


@given(st.integers(0, 40), st.integers(1, 9))
def test_every_part_makes_the_root_and_together_they_are_all(count: int, most: int) -> None:
    bound = Bound(target(n) for n in [*range(count), *range(count // 2)])
    tree = Frontier()
    for one in sorted(target_hash(target(n)) for n in range(count)):
        tree.append(one)
    assert bound.root == (tree.root() if count else EMPTY_ROOT).hex()
    at = 0
    for part in bound.parts(most):
        mine = bound.targets[part.first : part.first + part.length]
        assert (part.first, part.count) == (at, count)
        assert len(mine) == part.length <= most
        assert part_root(mine, part) == bound.root
        at += part.length
    assert at == count


def test_a_part_of_something_else_makes_another_root_or_none() -> None:
    bound = Bound(target(n) for n in range(20))
    first, second = bound.parts(10)
    assert part_root(bound.targets[10:], second) == bound.root
    assert part_root((*bound.targets[:9], target(99)), first) != bound.root if _sorted(bound, 99) else True
    for wrong in (bound.targets[1:11], bound.targets[:9], bound.targets[9::-1], (bound.targets[0],) * 10):
        try:
            assert part_root(wrong, first) != bound.root
        except ValueError:
            continue


def _sorted(bound: Bound, number: int) -> bool:
    return target_hash(target(number)) > target_hash(bound.targets[8])


def test_whatever_a_target_says_is_in_its_hash() -> None:
    some = [
        target(1), target(2), target(1, group=0), target(1, keys=["ab" * 16]), target(1, keys=["cd" * 16]),
        target(1, keys=[]), target(1, keys=["ab" * 16], below=True), target(1, attached="00" * 32, count=1),
        EraseTarget(ns=f"{1:064x}", gen_upto="3"),
    ]  # fmt: skip
    assert len({target_hash(one) for one in some}) == len(some)


def test_keys_have_one_name_whether_they_are_in_the_command_or_beside_it() -> None:
    keys = [hashlib.sha256(bytes([n])).digest() for n in range(9)]
    found = packed(reversed(keys))
    assert len(found) == 9 * KEY
    inline, beside = target(1, keys=[k.hex() for k in keys]), target(1, attached=keys_hash(found), count=9)
    assert named(inline) == named(beside)
    assert attached_of([inline, beside]) == {keys_hash(found)}
    assert check_attached([beside], {keys_hash(found): found})
    assert not check_attached([beside], {})
    assert not check_attached([beside], {keys_hash(found): found[KEY:]})
    assert not check_attached([target(1, attached=keys_hash(found), count=8)], {keys_hash(found): found})
    assert not check_attached([], {keys_hash(found): found}), "and none that nobody named"
    for wrong in (found[1:], found[KEY : 2 * KEY] + found[:KEY], found[:KEY] * 2):
        with pytest.raises(ValueError, match="sorted"):
            keys_hash(wrong)


def test_keys_that_are_sent_at_once_are_bounded_too() -> None:
    many = Bound(target(n, attached=f"{n:064x}", count=MOST_PART_KEYS // 2) for n in range(5))
    assert [part.length for part in many.parts()] == [2, 2, 1]
    one = Bound([target(1, attached="00" * 32, count=MOST_PART_KEYS + 1)])
    assert [part.length for part in one.parts()] == [1]
