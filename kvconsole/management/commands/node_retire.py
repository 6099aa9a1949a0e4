"""Takes nodes out of the fleet: fenced, without tokens, without keys."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.fleet import nodes_named
from catalog.services import node_retire
from kvconsole.infra import arguments
from kvconsole.infra.access import system, tenant_context


class Command(BaseCommand):
    """`node_retire NAME … --reason TEXT`."""

    help = "Retire nodes: nothing of them is routable, their tokens are void, they get no keys. Nothing is erased."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("nodes", nargs="+", metavar="NAME")
        parser.add_argument("--reason", required=True, type=arguments.said, help="for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Retires the nodes, all or none.

        Raises:
            CommandError: one of them is not known; none was retired.
        """
        actor = system("node_retire")
        with tenant_context(actor):
            nodes = nodes_named(options["nodes"])
            if unknown := sorted(set(options["nodes"]) - {node.name for node in nodes}):
                raise CommandError(f"not a node: {', '.join(unknown)}; none was retired")
            for node in nodes:
                node_retire(node=node, reason=options["reason"], actor=actor, now=datetime.now(UTC))
        for node in nodes:
            self.stdout.write(f"{node.name} is retired: fenced, its tokens are void, its keys end within 5 minutes")
