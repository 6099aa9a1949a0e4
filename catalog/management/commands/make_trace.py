"""`manage.py make_trace FILE`: write a deterministic agent-style trace."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.trace import TraceShape, trace_make, trace_write


class Command(BaseCommand):
    """Writes a trace of agent sessions; the same arguments give the same bytes on every machine."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The shape of the trace."""
        default = TraceShape()
        parser.add_argument("file", type=Path)
        parser.add_argument("--seed", type=int, default=default.seed)
        parser.add_argument("--seconds", type=int, default=default.seconds)
        parser.add_argument("--rate", type=float, default=default.requests_per_second, help="requests per second")
        parser.add_argument("--tenants", default=",".join(default.tenants), help="slugs, comma-separated")
        parser.add_argument("--repositories", type=int, default=default.repositories, help="per tenant")
        parser.add_argument("--repository-ids", type=int, default=default.repository_ids, help="512-token ids in each")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the file and say how many requests it has."""
        shape = TraceShape(
            seed=options["seed"],
            seconds=options["seconds"],
            requests_per_second=options["rate"],
            tenants=tuple(options["tenants"].split(",")),
            repositories=options["repositories"],
            repository_ids=options["repository_ids"],
        )
        count = trace_write(trace_make(shape), options["file"])
        self.stdout.write(f"{count} requests over {shape.seconds} s written to {options['file']}")
