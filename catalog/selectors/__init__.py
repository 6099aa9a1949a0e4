"""Reads of the catalog for pages, sockets and the REST API; a few queries each, none of them over placements.

Holdings, cursors and owners are exact at every commit, so no reader here needs the barrier.
"""

from catalog.selectors.fleet import WRITER_SECONDS, alerts, fleet_view, node_names, node_view, node_views
from catalog.selectors.heatmap import heat, heat_honesty, heat_live, top_families
from catalog.selectors.history import eviction_history, fill_history, token_history, watermark_history
from catalog.selectors.views import (
    Alert,
    EvictionRow,
    FamilyView,
    FillRow,
    FleetView,
    HeatMatrix,
    HeatRow,
    LadderStep,
    NodeView,
    Numbers,
    RefusalView,
    Sample,
    Sentence,
    SourceView,
    TierView,
    TokenRow,
)

__all__ = [
    "WRITER_SECONDS",
    "Alert",
    "EvictionRow",
    "FamilyView",
    "FillRow",
    "FleetView",
    "HeatMatrix",
    "HeatRow",
    "LadderStep",
    "NodeView",
    "Numbers",
    "RefusalView",
    "Sample",
    "Sentence",
    "SourceView",
    "TierView",
    "TokenRow",
    "alerts",
    "eviction_history",
    "fill_history",
    "fleet_view",
    "heat",
    "heat_honesty",
    "heat_live",
    "node_names",
    "node_view",
    "node_views",
    "token_history",
    "top_families",
    "watermark_history",
]
