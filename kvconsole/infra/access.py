"""Decides who acts, on which plane of the database, and what each route may be called by.

Without tables: `Principal` is a value, authenticators are named by dotted string in settings. Every request, command,
task and consumer that acts for somebody goes through `tenant_context`, the only door to a tenant's rows.
"""

from contextvars import ContextVar

TENANT_PLANE, FLEET_PLANE = "tenant", "default"
_plane: ContextVar[str] = ContextVar("kvc_plane", default=FLEET_PLANE)
_FLEET_ONLY = frozenset({"sessions", "contenttypes", "auth"})


class PlaneRouter:
    """Sends the ORM to the connection of the current plane; what is no tenant's always goes to the fleet's."""

    def db_for_read(self, model: type, **hints: object) -> str:
        """Alias of the connection that reads `model` now."""
        return FLEET_PLANE if model._meta.app_label in _FLEET_ONLY else _plane.get()  # type: ignore[attr-defined]

    db_for_write = db_for_read

    def allow_relation(self, a: object, b: object, **hints: object) -> bool:
        """Both aliases are one database."""
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
        """Migrations run once, as kv_migrate, on `default`."""
        return db == FLEET_PLANE
