"""Decides where the bars of a decision's waterfall lie: seven terms as expected, as measured, and without any cache.

Each bar begins where the one before it ended, so the last ends at the time to first token. The table beside the chart
is made of the same rows. A term that nobody measured has no bar: it is unknown, not 0. Called by `decision`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from frontend.routing.wording import TERMS
from kvcore.cards import Card


class Row(NamedTuple):
    """One term: milliseconds, and where each bar begins; None = not known."""

    term: str
    expected: float
    expected_at: float
    measured: float | None
    measured_at: float | None
    ghost: float | None
    ghost_at: float | None


def rows(card: Card, measured: Mapping[str, float] | None, ghost: Card | None) -> list[Row]:
    """The terms in the order in which they happen."""
    out: list[Row] = []
    at = told_at = ghost_at = 0.0
    known = True
    for term in TERMS:
        expected = float(getattr(card.terms, term))
        told = (measured or {}).get(term)
        known = known and told is not None
        shadow = float(getattr(ghost.terms, term)) if ghost else None
        out.append(Row(term, expected, at, told, told_at if told is not None and known else None,
                       shadow, ghost_at if ghost else None))  # fmt: skip
        at += expected
        told_at += told or 0.0
        ghost_at += shadow or 0.0
    return out


def sums(card: Card, measured_ms: float | None, ghost: Card | None) -> tuple[float, float | None, float | None]:
    """Time to first token as expected, as measured, and without cache."""
    return card.total_ms, measured_ms, ghost.total_ms if ghost else None


def series(of: list[Row], words: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the browser draws: names in the page's language, `[begin, length]` of each bar or null."""

    def bar(length: float | None, at: float | None) -> list[float] | None:
        return None if length is None or at is None else [round(at, 3), round(length, 3)]

    return [
        {
            "term": str(words[row.term]),
            "expected": bar(row.expected, row.expected_at),
            "measured": bar(row.measured, row.measured_at),
            "ghost": bar(row.ghost, row.ghost_at),
        }
        for row in of
    ]
