"""What the pipeline speaks of with the writer's memory; the memory itself is `catalog.index`, below the store."""

from catalog.index.memory import Memory
from catalog.index.steps import Keyspace, Owner, SourceRow, Touched, Work, replacement

__all__ = ["Keyspace", "Memory", "Owner", "SourceRow", "Touched", "Work", "replacement"]
