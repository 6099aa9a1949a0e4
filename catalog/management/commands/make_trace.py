"""`manage.py make_trace FILE`: write a deterministic agent-style trace."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.trace import MOST, TraceShape, trace_make, trace_write
from kvconsole.infra import arguments


class Command(BaseCommand):
    """Writes a trace of agent sessions; the same arguments give the same bytes on every machine."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The shape of the trace."""
        default = TraceShape()
        parser.add_argument("file", type=arguments.new_file)
        parser.add_argument("--seed", type=int, default=default.seed)
        parser.add_argument("--seconds", type=arguments.whole(1, MOST["seconds"]), default=default.seconds)
        rate = arguments.number(0, MOST["requests_per_second"], above=True)
        parser.add_argument("--rate", type=rate, default=default.requests_per_second, help="requests per second")
        parser.add_argument(
            "--tenants", type=arguments.names, default=default.tenants, help="slugs, comma-separated; each once"
        )
        many = arguments.whole(1, MOST["repositories"])
        parser.add_argument("--repositories", type=many, default=default.repositories, help="per tenant")
        ids = arguments.whole(1, MOST["repository_ids"])
        parser.add_argument("--repository-ids", type=ids, default=default.repository_ids, help="512-token ids in each")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the file and say how many requests it has.

        Raises:
            CommandError: it cannot be written; what was there is as it was.
        """
        shape = TraceShape(
            seed=options["seed"],
            seconds=options["seconds"],
            requests_per_second=options["rate"],
            tenants=options["tenants"],
            repositories=options["repositories"],
            repository_ids=options["repository_ids"],
        )
        try:
            count = trace_write(trace_make(shape), options["file"])
        except OSError as e:
            raise CommandError(f"cannot write {options['file']}: {e.strerror}; nothing was written") from None
        self.stdout.write(f"{count} requests over {shape.seconds} s written to {options['file']}")
