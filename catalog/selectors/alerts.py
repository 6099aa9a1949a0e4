"""What an operator should look at now."""

from datetime import datetime

from catalog.selectors.views import Alert


def alerts(*, now: datetime) -> list[Alert]:
    """What is wrong at `now`, worst first."""
    raise NotImplementedError
