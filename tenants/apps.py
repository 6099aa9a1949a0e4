"""The tenants app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Registers tenants, and with it the checks of routes and of row-level security."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The checks of `kvconsole.infra.access` are known to Django, the authentication to drf-spectacular."""
        from kvconsole.infra import access  # noqa: F401
        from tenants import schema  # noqa: F401
