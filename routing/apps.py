"""The routing app."""

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    """Registers routing."""

    name = "routing"
    default_auto_field = "django.db.models.BigAutoField"
