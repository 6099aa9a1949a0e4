"""The tables of the catalog, in three rooms: who there is, what is where, and what the pictures are drawn from."""

from catalog.models.fleet import NODE_ROLES, NODE_STATES, Node, NodeCommand, NodeTier

__all__ = ["NODE_ROLES", "NODE_STATES", "Node", "NodeCommand", "NodeTier"]
