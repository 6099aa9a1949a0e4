"""Makes nodes known and prints the tokens with which their agents enrol."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.services import node_ensure
from kvconsole.infra.access import system, tenant_context
from kvconsole.infra.rest import Problem
from kvconsole.management.commands.commander import command_key

PLACE = ("region", "zone", "rack", "role")


def is_demonstration() -> bool:
    """Whether these are the settings of development or of tests."""
    return os.environ.get("DJANGO_SETTINGS_MODULE", "").rpartition(".")[2] in ("dev", "test")


def ensure_command_key() -> None:
    """Before the commander first runs, a development site has a command key already, so that tokens can name it."""
    if settings.COMMAND_KEY_FILE and is_demonstration():
        command_key(Path(settings.COMMAND_KEY_FILE), make=True)


class Command(BaseCommand):
    """`node_create NAME[=URL][,region=…,zone=…,rack=…,role=…] …`."""

    help = "Make nodes known; prints each one's enrolment token, good once within 15 minutes."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("nodes", nargs="+", metavar="NAME[=URL][,key=value]")
        parser.add_argument("--agent-url", default="", help="where the agent listens (one node only)")
        for name in PLACE:
            parser.add_argument(f"--{name}", default={"region": "local", "role": "mixed"}.get(name, ""))
        parser.add_argument("--json", action="store_true", help='print {name: {"id", "enrolment_token"}}')

    def handle(self, *args: Any, **options: Any) -> None:
        """Creates the nodes; one that is known but never enrolled gets a new token.

        Raises:
            CommandError: a node cannot be made; none was.
        """
        ensure_command_key()
        actor = system("node_create")
        try:
            with tenant_context(actor):
                made = dict(self._one(spec, options) for spec in options["nodes"])
        except Problem as problem:
            raise CommandError(f"{problem.code}: {problem.text} {problem.errors or ''}") from problem
        if options["json"]:
            self.stdout.write(json.dumps(made))
        else:
            self.stdout.write("\n".join(one["enrolment_token"] for one in made.values()))

    def _one(self, spec: str, options: dict[str, Any]) -> tuple[str, dict[str, str]]:
        head, *pairs = spec.split(",")
        name, _, url = head.partition("=")
        place = {key: options[key] for key in PLACE} | dict(pair.partition("=")[::2] for pair in pairs)
        if unknown := set(place) - set(PLACE):
            raise CommandError(f"{name}: not a part of a node's place: {', '.join(sorted(unknown))}")
        address, actor = url or options["agent_url"], system("node_create")
        node, token = node_ensure(name=name, agent_url=address, actor=actor, now=datetime.now(UTC), **place)
        return name, {"id": str(node.id), "enrolment_token": token}
