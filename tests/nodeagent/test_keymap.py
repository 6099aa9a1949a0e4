"""Copies per (group, hash, tier), keys that outlive their blocks, and the quarantine's bounds."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvcore.blocks import Tier
from kvcore.dialects.engine import Stored
from nodeagent.keymap import KeyMap, Run, Space

S = Space(b"n" * 32, 1, 0, 16)
G1 = Space(b"n" * 32, 1, 1, 16)
HBM, DRAM = Tier.HBM, Tier.DRAM


def stored(*hashes: bytes, parent: bytes | None = None, tier: Tier = HBM, **more: Any) -> Stored:
    return Stored(hashes=list(hashes), parent=parent, tokens=msgspec.Raw(b"\x90"), block_tokens=16, tier=tier, **more)


def hold(m: KeyMap, h: bytes, key: bytes, tier: Tier = HBM, space: Space = S) -> bool:
    runs, room = m.hold(space, [h], [key], None, tier)
    assert room
    return bool(runs)


def test_runs_are_what_is_new_on_the_tier() -> None:
    m = KeyMap()
    assert m.hold(S, [b"a", b"b", b"c"], [b"A", b"B", b"C"], b"P", HBM) == ([Run(S, b"P", [b"A", b"B", b"C"])], True)
    m.release(0, b"b", HBM)
    assert m.hold(S, [b"a", b"b", b"c", b"d"], [b"A", b"B", b"C", b"D"], b"P", HBM)[0] == [
        Run(S, b"A", [b"B"]),
        Run(S, b"C", [b"D"]),
    ]
    assert len(m) == 4
    assert {k.key for k in m.blocks()} == {b"A", b"B", b"C", b"D"}


def test_a_removed_copy_is_one_of_several() -> None:
    m = KeyMap()
    assert hold(m, b"h", b"K")
    assert not hold(m, b"h", b"K")
    assert hold(m, b"h", b"K", DRAM)
    assert m.release(0, b"h", HBM)[1] is False
    known, last = m.release(0, b"h", HBM)
    assert (known.key if known else None, last) == (b"K", True)
    assert m.release(0, b"h", HBM) == (None, False)
    assert m.release(0, b"h", DRAM)[1] is True
    assert m.release(0, b"x", DRAM) == (None, False)
    assert len(m) == 0
    ghost = m.find(0, b"h")
    assert ghost is not None
    assert ghost.key == b"K"


def test_a_key_is_told_once_whichever_hashes_have_it() -> None:
    m = KeyMap()
    assert hold(m, b"h", b"K")
    assert not hold(m, b"i", b"K")
    assert not hold(m, b"j", b"K")
    assert [[k.key for k in held] for _, _, held in m.places()] == [[b"K"]]
    assert m.release(0, b"h", HBM)[1] is False
    assert not hold(m, b"h", b"K")
    assert [m.release(0, h, HBM)[1] for h in (b"i", b"h", b"j")] == [False, False, True]
    assert list(m.places()) == []
    hold(m, b"h", b"K")
    hold(m, b"i", b"K")
    m.clear()
    assert list(m.places()) == []
    assert hold(m, b"i", b"K")
    assert m.release(0, b"i", HBM)[1] is True


def test_presence_instead_of_copies() -> None:
    m = KeyMap()
    for _ in range(3):
        m.hold(S, [b"h"], [b"K"], None, HBM, presence=True)
    assert m.release(0, b"h", HBM)[1] is True


def test_groups_are_apart_but_a_parent_is_found_across() -> None:
    m = KeyMap()
    hold(m, b"h", b"K")
    assert m.release(1, b"h", HBM) == (None, False)
    assert m.find(1, b"h") is not None
    hold(m, b"h", b"L", space=G1)
    found = m.find(1, b"h")
    assert found is not None
    assert found.key == b"L"


def test_a_held_hash_keeps_its_first_key() -> None:
    m = KeyMap()
    hold(m, b"h", b"K")
    runs, _ = m.hold(S, [b"h", b"i"], [b"X", b"Y"], None, DRAM)
    assert runs == [Run(S, None, [b"K"]), Run(S, b"X", [b"Y"])]
    known, _ = m.release(0, b"h", HBM)
    assert known is not None
    assert known.key == b"K"


def test_the_map_is_bounded() -> None:
    m = KeyMap(blocks_max=2, ghosts_max=1)
    runs, room = m.hold(S, [b"a", b"b", b"c"], [b"A", b"B", b"C"], None, HBM)
    assert (runs, room) == ([Run(S, None, [b"A", b"B"])], False)
    m.release(0, b"a", HBM)
    m.release(0, b"b", HBM)
    assert m.find(0, b"a") is None
    assert m.find(0, b"b") is not None


def test_clear_and_reset() -> None:
    m = KeyMap()
    hold(m, b"a", b"A")
    hold(m, b"a", b"A", DRAM)
    hold(m, b"b", b"B")
    m.wait(stored(b"q"), "x", 10)
    m.wait(stored(b"r", tier=DRAM), "x", 10)
    m.clear((HBM,))
    assert (len(m), m.waiting) == (1, 1)
    m.reset()
    assert (len(m), m.waiting, m.waiting_bytes, m.find(0, b"a")) == (0, 0, 0, None)


def test_quarantine() -> None:
    m = KeyMap(waiting_max=2, waiting_bytes_max=100)
    assert m.wait(stored(b"a", b"b"), "p", 10) == 0
    assert m.wait(stored(b"c"), "q", 10) == 0
    assert m.causes() == ["p", "q"]
    assert m.waits(0, b"b")
    assert m.gone(0, b"b", HBM)
    assert not m.gone(0, b"b", HBM)
    assert not m.gone(0, b"b", DRAM)
    assert not m.gone(0, b"z", HBM)
    assert m.wait(stored(b"d"), "q", 10) == 1  # the oldest goes
    assert not m.waits(0, b"b")
    taken = m.take("q")
    assert [w.event.hashes for w in taken] == [[b"c"], [b"d"]]
    assert (m.waiting, m.waiting_bytes, m.take("q")) == (0, 0, [])
    assert m.wait(stored(b"e"), "q", 101) == 1
    m.wait(stored(b"f"), "q", 1)
    m.wait(stored(b"f"), "q", 1)
    assert [m.gone(0, b"f", HBM) for _ in range(3)] == [True, True, False]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from([HBM, DRAM])), max_size=60))
def test_what_is_told_is_presence(steps: list[tuple[bool, int, Tier]]) -> None:
    """Runs and last removals, folded as a set, are the blocks with at least one copy."""
    m, copies, told = KeyMap(), {}, set()
    for add, n, tier in steps:
        h, key = bytes([n]), bytes([n]) * 32
        if add:
            copies[n, tier] = copies.get((n, tier), 0) + 1
            for run in m.hold(S, [h], [key], None, tier)[0]:
                told |= {(k[0], tier) for k in run.keys}
        else:
            copies[n, tier] = max(0, copies.get((n, tier), 0) - 1)
            known, last = m.release(0, h, tier)
            if known and last:
                told.discard((known.key[0], tier))
    assert told == {place for place, count in copies.items() if count}
