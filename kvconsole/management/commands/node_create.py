"""Makes nodes known and prints the tokens with which their agents enrol."""

import json
import os
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.keyfiles import key_file
from catalog.services import node_ensure
from kvconsole.infra.access import system, tenant_context
from kvconsole.infra.rest import Problem

PLACE = ("region", "zone", "rack", "role")


def is_demonstration() -> bool:
    """Whether these are the settings of development or of tests."""
    return os.environ.get("DJANGO_SETTINGS_MODULE", "").rpartition(".")[2] in ("dev", "test")


def ensure_command_key() -> None:
    """Before the signer first runs, a development site has a command key already, so that tokens can name it."""
    if settings.COMMAND_KEY_FILE and is_demonstration():
        key_file(Path(settings.COMMAND_KEY_FILE), make=True)


def next_steps(name: str, agent_url: str) -> str:
    """What to run on the node, in order. The token is not in it: it has no place in a process list."""
    url = urlsplit(agent_url)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    place = ""
    if host and is_loopback(host):
        place = f" --listen {url.netloc if url.port else f'{host}:{port}'}"
    elif host:
        place = f" --listen 0.0.0.0:{port} --agent-url {agent_url} --tls-cert CERTIFICATE --tls-key KEY"
    console = settings.CONSOLE_URL.rstrip("/")
    return "\n".join(
        (
            f"{name}: run these two on the node. The first one reads the token above from standard input; it is good",
            "once, for 15 minutes. docs/nodes.md has the rest.",
            f"  python -m nodeagent join --console {console} --dir agent-{name} --name {name}{place} --token -",
            f"  python -m nodeagent run --dir agent-{name}",
        )
    )


def is_loopback(host: str) -> bool:
    """Whether this is a name of the node's own loopback."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Command(BaseCommand):
    """`node_create NAME[=URL][,region=…,zone=…,rack=…,role=…] …`."""

    help = "Make nodes known; prints each one's enrolment token, good once within 15 minutes."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("nodes", nargs="+", metavar="NAME[=URL][,key=value]")
        parser.add_argument("--agent-url", default="", help="where the agent listens (one node only)")
        for name in PLACE:
            parser.add_argument(f"--{name}", default={"region": "local", "role": "mixed"}.get(name, ""))
        parser.add_argument("--again", action="store_true", help="nodes that have joined, or were retired, enrol anew")
        parser.add_argument("--json", action="store_true", help='print {name: {"id", "enrolment_token"}}')

    def handle(self, *args: Any, **options: Any) -> None:
        """Creates the nodes; one that is known but never enrolled gets a new token.

        Raises:
            CommandError: a node cannot be made; none was.
        """
        if options["agent_url"] and len(options["nodes"]) > 1:
            raise CommandError("--agent-url is of one node; give several as NAME=URL; none was made")
        ensure_command_key()
        actor = system("node_create")
        try:
            with tenant_context(actor):
                nodes = [self._one(spec, options) for spec in options["nodes"]]
        except Problem as problem:
            raise CommandError(f"{problem.code}: {problem.text} {problem.errors or ''}") from problem
        if options["json"]:
            made = {node.name: {"id": str(node.id), "enrolment_token": token} for node, token in nodes}
            self.stdout.write(json.dumps(made))
            return
        self.stdout.write("\n".join(token for _, token in nodes))
        for node, _ in nodes:  # apart from the tokens, so that these can go straight into a file
            self.stderr.write(next_steps(node.name, node.agent_url), str)

    def _one(self, spec: str, options: dict[str, Any]) -> tuple[Any, str]:
        head, *pairs = spec.split(",")
        name, _, url = head.partition("=")
        place = {key: options[key] for key in PLACE} | dict(pair.partition("=")[::2] for pair in pairs)
        if unknown := set(place) - set(PLACE):
            raise CommandError(f"{name}: not a part of a node's place: {', '.join(sorted(unknown))}")
        address, actor, again = url or options["agent_url"], system("node_create"), options["again"]
        return node_ensure(name=name, agent_url=address, again=again, actor=actor, now=datetime.now(UTC), **place)
