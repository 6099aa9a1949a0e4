"""Decides which chains of a frame may name a key twice: all at once, because one by one is dearer than decoding them.

Called by `jobs`. Every chain that names a key twice is found; a chain that does not may be suspected, and is then
judged exactly by `kvcore`.
"""

from collections.abc import Sequence

import numpy as np

from kvcore.keys import KEY_BYTES

FEW = 8
"""So few chains are not worth an array."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: multiples of it differ in all bytes."""


def suspects(chains: Sequence[bytes]) -> Sequence[int]:
    """Which of these chains of packed keys may name a key twice.

    The first 8 bytes of a key, mixed with the number of its chain, stand for (chain, key): equal pairs are equal there.
    """
    if len(chains) < FEW:
        return range(len(chains))
    heads = np.frombuffer(b"".join(chains), "<u8")[:: KEY_BYTES // 8]
    of = np.arange(len(chains), dtype=np.uint64) * _SPREAD
    mixed = np.sort(heads ^ np.repeat(of, [len(c) // KEY_BYTES for c in chains]))
    return range(len(chains)) if bool((mixed[1:] == mixed[:-1]).any()) else ()
