"""The catalog app."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Registers catalog."""

    name = "catalog"
    default_auto_field = "django.db.models.BigAutoField"
