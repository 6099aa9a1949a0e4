"""Decides when a placement was born: when its first block was committed there, or where it was moved or copied from.

A birth is kept here until the placement's row is written, and in the row from then on. Blocks that move to another tier
or node, or are copied to another tier of theirs, grow no younger, so that retention and `older_than` find them: the row
that they come from is written or removed no sooner than theirs, and hands over what it says. Used by the store and its
loading.
"""

from collections.abc import Iterable

At = tuple[int, int]
"""(owner, segment) of a placement."""
NEVER = 0.0
"""Birth of a placement that is already in the table: it stays."""


class Births:
    """Births of placements whose rows lag behind."""

    def __init__(self) -> None:
        self._fresh: dict[At, float] = {}
        self._before: dict[At, set[int]] = {}
        """Placement → owners whose rows of the segment say how old some of its blocks are."""

    def begin(self, at: At, now: float) -> None:
        """The placement holds its first block."""
        self._fresh[at] = now

    def inherit(self, at: At, before: int) -> set[int]:
        """Blocks came to the placement out of that owner's of the same segment.

        Returns:
            Owners whose rows must not be written before this one's.
        """
        was = (before, at[1])
        rows = {*self._before.get(was, ())} - {at[0]}
        if was not in self._fresh:
            rows.add(before)
        elif at in self._fresh:
            self._fresh[at] = min(self._fresh[at], self._fresh[was])
        if rows:
            self._before.setdefault(at, set()).update(rows)
        return rows

    def take(self, at: At) -> tuple[float, set[int]]:
        """Its birth (`NEVER`: as its row says) and the owners whose rows may say an earlier one; forgotten here."""
        return self._fresh.pop(at, NEVER), self._before.pop(at, set())

    def forget(self, places: Iterable[At]) -> None:
        """They are gone with everything."""
        for at in places:
            self.take(at)
