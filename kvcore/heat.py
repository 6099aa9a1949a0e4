"""Decides which beginnings of prompts are hot: what part of the recent requests starts with the same blocks.

Beginnings are looked at where their length is a power of two, so a prompt adds few entries however long it is, and a
hot beginning is found to half its length at least. Counted over a sliding window of requests, with bounded memory:
when the table is full, what came only once makes room. Nothing here is kept or told: it holds fingerprints in memory.
Called by the router for every ask (`Ask.hot_share`, `Ask.hot_blocks`).
"""

from collections.abc import Sequence

WINDOW = 1_000
"""Requests that count in full; as many before them count less and less."""
LIMIT = 32_768
"""Entries of one window."""
Heads = list[tuple[int, bytes]]


def heads(keys: bytes, width: int) -> Heads:
    """(blocks, fingerprint) of a prompt's beginnings: 1, 2, 4 … blocks, and all of them.

    Args:
        keys: the prompt's block keys, packed.
        width: bytes of one.
    """
    blocks, out, depth = len(keys) // width, Heads(), 1
    while depth < blocks:
        out.append((depth, keys[(depth - 1) * width : depth * width]))
        depth *= 2
    if blocks:
        out.append((blocks, keys[(blocks - 1) * width : blocks * width]))
    return out


class Heat:
    """Counts beginnings. One per model and router; routers see about equal parts of the requests."""

    def __init__(self, window: int = WINDOW, limit: int = LIMIT) -> None:
        self.window, self.limit = window, limit
        self.now: dict[bytes, int] = {}
        self.before: dict[bytes, int] = {}
        self.count, self.count_before = 0, 0

    def note(self, beginnings: Sequence[tuple[int, bytes]], over: float) -> tuple[float, int]:
        """The share and length of the longest beginning whose share is above `over`; (0, 0) where none is.

        The request itself counts first.
        """
        if self.count >= self.window:
            self.before, self.count_before = self.now, self.count
            self.now, self.count = {}, 0
        self.count += 1
        fading = 1 - self.count / self.window
        total = self.count + fading * self.count_before
        hot: tuple[float, int] = (0.0, 0)
        for blocks, key in beginnings:
            seen = self.now.get(key, 0) + 1
            if seen > 1 or len(self.now) < self.limit or self._room():
                self.now[key] = seen
            share = (seen + fading * self.before.get(key, 0)) / total
            if share > over and self.count + self.count_before > 1:
                hot = share, blocks
        return hot

    def _room(self) -> bool:
        kept = {key: seen for key, seen in self.now.items() if seen > 1}
        if len(kept) >= self.limit:
            return False
        self.now = kept
        return True
