"""The frontend app."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """Registers frontend."""

    name = "frontend"
    default_auto_field = "django.db.models.BigAutoField"
