"""`manage.py fences_replay`: after a restore, every fence that something outside the database knows is raised again."""

import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from catalog.restoring import fences_compare
from kvconsole.infra import arguments

LOOK_SECONDS = 1.0


class Command(BaseCommand):
    """What the web process does by itself, and what only somebody may decide: to go on without a node."""

    help = "Compare fences with the key store and the nodes' journals, and answer requests again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which nodes are not waited for, and how long the others are."""
        parser.add_argument("--without", action="append", default=[], metavar="NODE", help="who will not answer")
        parser.add_argument("--wait", type=arguments.number(0, 86_400), default=30.0, help="seconds (default 30)")

    def handle(self, *args: Any, **options: Any) -> None:
        """One line; an error names the nodes that have to answer yet."""
        deadline = time.monotonic() + options["wait"]
        while not (found := fences_compare(now=datetime.now(UTC), without=options["without"])).whole:
            if time.monotonic() >= deadline:
                raise CommandError(f"nothing is answered yet: {', '.join(found.waiting)} did not say what it knows")
            time.sleep(LOOK_SECONDS)
        self.stdout.write("the fences are whole")
