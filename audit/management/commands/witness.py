"""Runs a witness: a second party, on a machine of its own, that cosigns what a log says of itself."""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.keyfiles import KeyFileRefused, key_file
from audit.witness.app import Witness
from audit.witness.rules import logs_of
from audit.witness.store import Store
from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads
from kvcore.notes import NoteError

NEEDED = ("WITNESS_NAME", "WITNESS_KEY_FILE", "WITNESS_STATE")


class Command(BaseCommand):
    """Serves until it is told to end; a proxy with TLS stands in front of it."""

    help = "Cosign checkpoints of known logs that only grow (C2SP tlog-witness)."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=arguments.port, default=8003)
        parser.add_argument("--init", action="store_true", help="make the key if there is none, say its vkey, and end")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or SIGINT.

        Raises:
            CommandError: settings, key or file are not as they must be.
        """
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
        missing = [f"KVC_{name}" for name in NEEDED if not getattr(settings, name)]
        if missing:
            raise CommandError(f"not set: {', '.join(missing)}")
        make = options["init"] or os.environ.get("KVC_ENV", "dev") != "prod"
        try:
            key = key_file(Path(settings.WITNESS_KEY_FILE), make=make)
            store = Store(Path(settings.WITNESS_STATE))
            logs = logs_of(settings.WITNESS_LOGS)
        except (KeyFileRefused, sqlite3.Error, NoteError, OSError) as e:
            raise CommandError(str(e)) from e
        app = Witness(name=settings.WITNESS_NAME, key=key, store=store, logs=logs)
        try:
            if options["init"]:
                self.stdout.write(app.vkey.text)
            elif not logs:
                raise CommandError("KVC_WITNESS_LOGS names no log")
            else:
                uvicorn.run(
                    app, host=options["host"], port=options["port"], http=Heads, log_level="warning",
                    access_log=False, lifespan="off",
                )  # fmt: skip
        finally:
            store.close()
