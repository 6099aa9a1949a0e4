"""`manage.py replay FILE`: drive the fleet with a request trace."""

import asyncio
import contextlib
import math
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from tqdm import tqdm

from catalog.fleet import nodes_named
from catalog.reference_fleet import ReferenceFleet
from catalog.replay import Totals, replay
from catalog.routed_fleet import RoutedFleet
from catalog.trace import TraceError, TraceRequest, trace_read
from kvconsole.infra import arguments
from kvconsole.infra.access import system
from kvconsole.infra.rest import Problem
from tenants.services import namespace_resolve, token_issue, tokens_retire

TOKEN_LIFE = timedelta(days=2)


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
        parser.add_argument("--router", default=settings.ROUTER_URL, help="who decides where each request goes")
        parser.add_argument("--no-router", action="store_true", help="rendezvous hashing decides, nothing is recorded")
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
        self._token = _Token()
        try:
            self._repeat(requests, options)
        finally:
            self._token.end()

    def _repeat(self, requests: list[TraceRequest], options: dict[str, Any]) -> None:
        while True:
            totals = asyncio.run(self._once(requests, options))
            self.stdout.write(_sentence(totals))
            for why, count in sorted(totals.refusals.items(), key=lambda x: -x[1])[:5]:
                self.stderr.write(f"{count} times not taken by {why}")
            if not options["loop"]:
                break
        if totals.failed:
            raise CommandError(f"{totals.failed} of {len(requests)} requests found no node that could take them")

    def _fleet(self, options: dict[str, Any], client: httpx.AsyncClient) -> ReferenceFleet:
        what: dict[str, Any] = {k: options[k] for k in ("tenant", "model")} | {
            "only": options["nodes"], "client": client
        }  # fmt: skip
        if options["no_router"]:
            return ReferenceFleet(**what)
        self._token.good()
        return RoutedFleet(**what, router=options["router"], token=lambda: self._token.text)

    async def _once(self, requests: list[TraceRequest], options: dict[str, Any]) -> Totals:
        limits = httpx.Limits(max_connections=options["concurrency"] + 4)
        async with httpx.AsyncClient(timeout=60, limits=limits, follow_redirects=False, trust_env=False) as client:
            fleet = await sync_to_async(self._fleet)(options, client)
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


class _Token:
    """The token of this replay as a gateway; it ends with the replay."""

    def __init__(self) -> None:
        self.text, self._until, self._holder = "", datetime.min.replace(tzinfo=UTC), f"replay-{uuid.uuid4()}"

    def good(self) -> None:
        """It is good for some hours more."""
        now = datetime.now(UTC)
        if self._until - now < TOKEN_LIFE / 2:
            self._until = now + TOKEN_LIFE
            _, self.text = token_issue(
                "gateway", holder=self._holder, name="replay", roles=["gateway"], expires_at=self._until,
                actor=system("replay"), now=now,
            )  # fmt: skip

    def end(self) -> None:
        """It is of no use any more."""
        if self.text:
            with contextlib.suppress(DatabaseError):  # it ends by itself
                tokens_retire(
                    holder=self._holder, kinds=("gateway",), reason="replay-ended", actor=system("replay"),
                    now=datetime.now(UTC),
                )  # fmt: skip


def _speed(text: str) -> float:
    """Trace seconds per second; as fast as may be is infinite."""
    return math.inf if text == "max" else arguments.number(0, 1e6, above=True)(text)


def _sentence(t: Totals) -> str:
    lost = ", ".join(f"{n} {cause}" for cause, n in sorted(t.short.items(), key=lambda x: -x[1]))
    ratio = f"{t.hit_tokens / t.prompt_tokens:.1%}" if t.prompt_tokens else "none"
    return (
        f"{t.done} requests replayed, {t.failed} failed, {t.moved} on another node than preferred; "
        f"{t.hit_tokens} of {t.prompt_tokens} prompt tokens found ({ratio}), "
        f"{t.saved_ms / 1000:.1f} s of prefill saved (emulated)" + (f"; planned and not found: {lost}" if lost else "")
    )
