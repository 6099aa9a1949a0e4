"""`manage.py scrubber`: the log is hashed again, round after round, at low priority."""

import logging
import os
import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from audit.scrubber import NICE, Scrubber
from kvconsole.infra import arguments
from kvconsole.infra.sql import dsn


class Command(BaseCommand):
    """Verifies the stored log; a second process waits for the first."""

    help = "Hash the stored log again and compare it with what was sealed. Findings are rows and events."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Once or for ever, and how fast."""
        parser.add_argument("--once", action="store_true", help="to the end of the round, and its verdict")
        parser.add_argument(
            "--rate", type=arguments.number(0, 1e9), help="leaves per second at most; 0: as fast as may be"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Works until SIGTERM or SIGINT and keeps its place; with --once until the end of the round."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        if hasattr(os, "nice"):
            os.nice(NICE)
        scrubber = Scrubber(dsn("seq"), rate=0 if options["once"] and options["rate"] is None else options["rate"])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: scrubber.stopping.set())
        if not options["once"]:
            scrubber.run()
            return
        verdict = scrubber.round()
        scrubber.close()
        if verdict is None:
            raise SystemExit(3)
        where = "as sealed" if not verdict.divergences else f"diverges first at index {verdict.first_divergent}"
        self.stdout.write(f"{verdict.size} leaves in {verdict.seconds:.1f} s: {where}")
        if verdict.divergences:
            raise SystemExit(1)
