"""Hot beginnings are found, their share is right, and memory is bounded."""

import random

import pytest

from kvcore.heat import Heat, heads


def chain(name: int, blocks: int, shared: bytes = b"") -> bytes:
    r = random.Random(name)
    return (shared + r.randbytes(8 * blocks))[: 8 * blocks]


def test_heads() -> None:
    keys = chain(1, 100)
    assert [d for d, _ in heads(keys, 8)] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert heads(keys, 8)[2] == (4, keys[24:32])
    assert heads(b"", 8) == []
    assert [d for d, _ in heads(keys[:8], 8)] == [1]


def test_the_longest_hot_beginning() -> None:
    heat, system, repo = Heat(), chain(1, 64), chain(2, 256, chain(1, 64))
    for i in range(400):
        share, blocks = heat.note(heads(chain(i + 10, 512, repo if i % 2 else system), 8), 0.4)
    assert blocks == 256
    assert share == pytest.approx(0.5, abs=0.01)
    share, blocks = heat.note(heads(chain(9_999, 512, system), 8), 0.6)
    assert blocks == 64
    assert share == 1.0
    assert heat.note(heads(chain(5, 64), 8), 0.4) == (0.0, 0)


def test_what_was_hot_cools() -> None:
    heat, system = Heat(window=100), chain(1, 8)
    for i in range(100):
        heat.note(heads(chain(i, 8, system), 8), 0.5)
    for i in range(150):
        heat.note(heads(chain(1_000 + i, 8), 8), 0.5)
    share, _ = heat.note(heads(chain(7, 8, system), 8), 0.0)
    assert share < 0.02


def test_memory_is_bounded_and_hot_ones_stay() -> None:
    heat, system = Heat(window=10_000, limit=500), chain(1, 64)
    for i in range(3_000):
        heat.note(heads(chain(i, 128), 8), 0.5)
        share, blocks = heat.note(heads(chain(100_000 + i, 64, system), 8), 0.4)
        assert len(heat.now) <= 500
    assert blocks == 64
    assert share == pytest.approx(0.5, abs=0.02)
