"""`manage.py replay FILE`: drive the fleet with a request trace."""

import asyncio
import math
import sys
from pathlib import Path
from typing import Any

import httpx
from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from catalog.fleet import nodes_named
from catalog.reference_fleet import ReferenceFleet
from catalog.replay import Totals, replay
from catalog.trace import TraceError, TraceRequest, trace_read
from kvconsole.infra import arguments
from kvconsole.infra.rest import Problem
from tenants.services import namespace_resolve


class Command(BaseCommand):
    """Replays a trace (JSON lines: timestamp in ms, input_length, output_length, hash_ids of 512 tokens)."""

    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        """File, pace and whose requests they are."""
        parser.add_argument("file", type=Path)
        parser.add_argument("--limit", type=arguments.whole(1, 10**9), help="only the first N requests")
        parser.add_argument("--speed", type=_speed, default=1.0, help="trace seconds per second, or max")
        parser.add_argument("--concurrency", type=arguments.whole(1, 1024), default=32, help="requests at once")
        parser.add_argument("--tenant", default="acme-code", help="for requests that name none")
        parser.add_argument("--model", default="ref-1k")
        parser.add_argument("--nodes", type=arguments.names, default=(), help="only these, comma-separated")
        parser.add_argument("--loop", action="store_true", help="start again at the end, until stopped")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay, show progress, and say what was found."""
        try:
            requests = trace_read(options["file"], limit=options["limit"])
        except TraceError as e:
            raise CommandError(str(e)) from None
        except OSError as e:
            raise CommandError(f"cannot read {options['file']}: {e.strerror}; nothing was replayed") from None
        if not requests:
            raise CommandError(f"{options['file']} holds no requests; nothing was replayed")
        for tenant in sorted({r.tenant or options["tenant"] for r in requests}):
            try:
                namespace_resolve(tenant=tenant, model=options["model"])
            except Problem as e:
                raise CommandError(f"tenant {tenant}, model {options['model']}: {e}; nothing was replayed") from None
        if unknown := sorted(set(options["nodes"]) - {node.name for node in nodes_named(options["nodes"])}):
            raise CommandError(f"not a node: {', '.join(unknown)}; nothing was replayed")
        while True:
            totals = asyncio.run(self._once(requests, options))
            self.stdout.write(_sentence(totals))
            for why, count in sorted(totals.refusals.items(), key=lambda x: -x[1])[:5]:
                self.stderr.write(f"{count} times not taken by {why}")
            if not options["loop"]:
                break
        if totals.failed:
            raise CommandError(f"{totals.failed} of {len(requests)} requests found no node that could take them")

    async def _once(self, requests: list[TraceRequest], options: dict[str, Any]) -> Totals:
        limits = httpx.Limits(max_connections=options["concurrency"] + 4)
        async with httpx.AsyncClient(timeout=60, limits=limits, follow_redirects=False, trust_env=False) as client:
            fleet = ReferenceFleet(
                tenant=options["tenant"], model=options["model"], only=options["nodes"], client=client
            )
            with tqdm(total=len(requests), unit="req", disable=not sys.stderr.isatty()) as bar:

                def show(totals: Totals) -> None:
                    bar.update(totals.done + totals.failed - bar.n)

                return await replay(
                    requests,
                    fleet,
                    speed=None if math.isinf(options["speed"]) else options["speed"],
                    concurrency=options["concurrency"],
                    progress=show,
                )


def _speed(text: str) -> float:
    """Trace seconds per second; as fast as may be is infinite."""
    return math.inf if text == "max" else arguments.number(0, 1e6, above=True)(text)


def _sentence(t: Totals) -> str:
    ratio = f"{t.hit_tokens / t.prompt_tokens:.1%}" if t.prompt_tokens else "none"
    return (
        f"{t.done} requests replayed, {t.failed} failed, {t.moved} on another node than preferred; "
        f"{t.hit_tokens} of {t.prompt_tokens} prompt tokens found ({ratio}), "
        f"{t.saved_ms / 1000:.1f} s of prefill saved (emulated)"
    )
