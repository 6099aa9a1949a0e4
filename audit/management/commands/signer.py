"""Runs the signer: the process that holds the command key."""

import os
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.keyfiles import KeyFileRefused, key_file
from audit.signer.app import Signer
from kvconsole.infra.heads import Heads


class Command(BaseCommand):
    """Serves on loopback until it is told to end."""

    help = "Hold the command key and sign harmless orders to nodes."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("--port", type=int, default=8002)
        parser.add_argument("--init", action="store_true", help="make the key if the file is not there")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or SIGINT.

        Raises:
            CommandError: no key, or no token that callers must know.
        """
        if len(settings.SIGNER_TOKEN) < 32:
            raise CommandError("KVC_SIGNER_TOKEN must have at least 32 characters")
        if not settings.COMMAND_KEY_FILE:
            raise CommandError("KVC_COMMAND_KEY_FILE is not set")
        make = options["init"] or os.environ.get("KVC_ENV", "dev") != "prod"
        try:
            key = key_file(Path(settings.COMMAND_KEY_FILE), make=make)
        except KeyFileRefused as e:
            raise CommandError(str(e)) from e
        app = Signer(key, settings.SIGNER_TOKEN)
        uvicorn.run(
            app, host="127.0.0.1", port=options["port"], http=Heads, log_level="warning", access_log=False,
            lifespan="off",
        )  # fmt: skip
