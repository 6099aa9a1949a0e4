"""The fleet and its nodes as they are now."""

from datetime import datetime

from catalog.selectors.views import FleetView, NodeView


def node_names() -> list[str]:
    """Names of all nodes, sorted."""
    raise NotImplementedError


def fleet_view(*, now: datetime) -> FleetView:
    """The whole fleet, nodes sorted by name."""
    raise NotImplementedError


def node_view(*, name: str, now: datetime) -> NodeView | None:
    """One node; None if there is none of that name."""
    raise NotImplementedError
