"""Makes the console's Celery app the one that every Django process sends with."""

from django.apps import AppConfig


class KvconsoleConfig(AppConfig):
    """Composition; has no tables."""

    name = "kvconsole"

    def ready(self) -> None:
        """A task sent from here goes to our broker, not to Celery's default."""
        from kvconsole import celery  # noqa: F401
