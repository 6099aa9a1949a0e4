"""How fills, evictions and tokens went over time."""

from datetime import datetime

from catalog.selectors.views import EvictionRow, Sample, TokenRow


def watermark_history(*, node: str, tier: str, since: datetime, until: datetime, now: datetime) -> list[Sample]:
    """Fill of one tier of one node, in the finest layer that still holds `since`; gaps are samples of None."""
    raise NotImplementedError


def eviction_history(*, node: str | None, since: datetime, until: datetime, now: datetime) -> list[EvictionRow]:
    """Evictions of one node, or of all (None), by reason."""
    raise NotImplementedError


def token_history(*, node: str | None, since: datetime, until: datetime, now: datetime) -> list[TokenRow]:
    """Prompt tokens by where they came from, of one node or all."""
    raise NotImplementedError
