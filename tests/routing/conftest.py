"""The writer of the catalog's tests, for the replica that follows it."""

from tests.catalog.ingest.conftest import planted, rig

__all__ = ["planted", "rig"]
