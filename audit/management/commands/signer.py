"""Runs the signer: the process that holds the keys of commands, of the log and of exports."""

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.keyfiles import KeyFileRefused
from audit.signer import setup
from audit.signer.app import Signer, Tokens
from audit.signer.setup import Files
from audit.signer.state import StateFile, StateRefused
from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads

NEEDED = ("COMMAND_KEY_FILE", "LOG_KEY_FILE", "EXPORT_KEY_FILE", "SIGNER_STATE")
LEAST_TOKEN = 32


class Command(BaseCommand):
    """Serves on loopback until it is told to end, or sets a log up and ends."""

    help = "Hold the keys of commands, log and exports; sign what the log proves."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("--port", type=arguments.port, default=8002)
        parser.add_argument("--init", action="store_true", help="make keys and state where there are none, and end")
        parser.add_argument(
            "--epoch", type=arguments.whole(1, 10**6), default=1, help="with --init: number of the log's first epoch"
        )
        parser.add_argument("--adopt", metavar="FILE", help="the state is lost: take it from this checkpoint; end")
        parser.add_argument(
            "--new-epoch", metavar="FILE", help="go on under a new key and name, as two people agreed; end"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or SIGINT.

        Raises:
            CommandError: settings, keys or state are not as they must be, or another signer works with them.
        """
        files = _files()
        try:
            held = StateFile(files.state)
            try:
                if not self._set_up(files, held, options):
                    keys, state = setup.load(files, held)
                    _serve(Signer(keys, state, held, _tokens()), options["port"])
            finally:
                held.close()
        except (KeyFileRefused, StateRefused, OSError) as e:
            raise CommandError(str(e)) from e

    def _set_up(self, files: Files, held: StateFile, options: dict[str, Any]) -> bool:
        """Whether that was all that was asked for."""
        if options["adopt"]:
            state = setup.adopt(files, held, Path(options["adopt"]).read_text())
            self.stdout.write(f"{state.origin} stands at {state.head.size}")
            return True
        if options["new_epoch"] is not None:
            order = Path(options["new_epoch"]).read_bytes()
            self.stdout.write(setup.new_epoch(files, held, order, now=time.time()).record)
            return True
        if options["init"] or os.environ.get("KVC_ENV", "dev") != "prod":
            domain = urlsplit(settings.CONSOLE_URL).hostname or "console"
            setup.begin(files, held, origin=setup.origin_of(domain, settings.LOG_REGION, options["epoch"]))
        if options["init"]:
            keys, state = setup.load(files, held)
            public = Signer(keys, state, held, Tokens("", "")).public_keys()
            self.stdout.write("\n".join(f"{name} {value}" for name, value in public.items()))
        return bool(options["init"])


def _files() -> Files:
    missing = [name for name in NEEDED if not getattr(settings, name)]
    if missing:
        raise CommandError(f"not set: {', '.join(f'KVC_{name}' for name in missing)}")
    return Files(*(Path(getattr(settings, name)) for name in NEEDED))


def _tokens() -> Tokens:
    tokens = Tokens(settings.SIGNER_TOKEN, settings.SIGNER_LOG_TOKEN)
    for name, token in (("KVC_SIGNER_TOKEN", tokens.console), ("KVC_SIGNER_LOG_TOKEN", tokens.log)):
        if len(token) < LEAST_TOKEN:
            raise CommandError(f"{name} must have at least {LEAST_TOKEN} characters")
    if tokens.console == tokens.log:
        raise CommandError("KVC_SIGNER_TOKEN and KVC_SIGNER_LOG_TOKEN must differ: nobody has both")
    return tokens


def _serve(app: Signer, port: int) -> None:
    uvicorn.run(
        app, host="127.0.0.1", port=port, http=Heads, log_level="warning", access_log=False, lifespan="off"
    )  # fmt: skip
