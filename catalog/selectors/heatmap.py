"""The heat map's rows and figures."""

from datetime import datetime

from catalog.selectors.views import FamilyView, HeatMatrix, Params


def heat(*, metric: str, since: datetime, until: datetime, rows: int, now: datetime) -> HeatMatrix:
    """The map of one metric over a time; at most `rows` rows besides the merged ones."""
    raise NotImplementedError


def heat_live(*, metric: str, now: datetime) -> Params:
    """Axis and newest columns as the topic `map:<metric>` has them."""
    raise NotImplementedError


def top_families(*, now: datetime, limit: int) -> list[FamilyView]:
    """The families with the most hits in the last hour."""
    raise NotImplementedError
