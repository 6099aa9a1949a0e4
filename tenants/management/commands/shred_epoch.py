"""Ends the shred epoch of the key store now: what was destroyed until now can be read in no copy any more."""

from datetime import UTC, datetime

from django.core.management.base import BaseCommand, CommandError

from kvconsole.infra.keystore import KeyStoreUnavailable
from kvconsole.infra.rest import Problem
from tenants.services import shred_epoch_turn


class Command(BaseCommand):
    """Run as who may use the key store: web's or worker's account and environment."""

    help = (
        "Ends the shred epoch of the key store now. Backups of the key store that were made before are worth nothing."
    )

    def handle(self, *args: object, **options: object) -> None:
        """Says how many secrets went over to the next epoch."""
        try:
            count = shred_epoch_turn(now=datetime.now(UTC), early=True)
        except (KeyStoreUnavailable, Problem) as e:
            raise CommandError(str(e)) from e
        if count is None:
            raise CommandError("There are no shred epochs: KVC_SHRED_DIR is not set.")
        self.stdout.write(f"{count} secrets went over. Make a new backup of the key store; older ones cannot be read.")
