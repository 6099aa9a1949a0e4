"""The tables of the catalog, in three rooms: who there is, what is where, and what the pictures are drawn from."""

from catalog.models.fleet import NODE_ROLES, NODE_STATES, Node, NodeCommand, NodeTier
from catalog.models.pictures import (
    Eviction,
    HeatAxis,
    HeatColumn,
    HeatRow,
    MarkSample,
    Pulse,
    Refusal,
    SourcePulse,
    TierMark,
    Usage,
)

__all__ = [
    "NODE_ROLES",
    "NODE_STATES",
    "Eviction",
    "HeatAxis",
    "HeatColumn",
    "HeatRow",
    "MarkSample",
    "Node",
    "NodeCommand",
    "NodeTier",
    "Pulse",
    "Refusal",
    "SourcePulse",
    "TierMark",
    "Usage",
]
