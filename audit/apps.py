"""The audit app."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers audit."""

    name = "audit"
    default_auto_field = "django.db.models.BigAutoField"
