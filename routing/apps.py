"""The routing app."""

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    """Registers routing."""

    name = "routing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """The live topic can be subscribed to."""
        import routing.live  # noqa: F401  (registers it; its tables are known only now)
