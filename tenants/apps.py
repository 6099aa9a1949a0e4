"""The tenants app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Registers tenants."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
