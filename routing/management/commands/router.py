"""`manage.py router`: decides where requests go. Several can run side by side; each has an index and a lease."""

import asyncio
import gc
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand

from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads
from routing.deciding import Router
from routing.hint_watch import Watcher
from routing.hot import Hot
from routing.recorder import Recorder
from routing.replica import Replica
from routing.standing import Standing

YOUNG = 50_000
"""Objects that come before the collector looks through the young ones: decisions make few cycles."""
TURN_SECONDS = 0.0005
"""How long a thread that reads or packs may keep a decision waiting."""


class Command(BaseCommand):
    """Answers `/route`; a second process beside it does the same with an index of its own."""

    help = "Decide where requests go. Several can run side by side."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=arguments.port, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Serves until SIGTERM or SIGINT; what is decided is written first."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        sys.setswitchinterval(TURN_SECONDS)
        config = uvicorn.Config(
            application(),
            host=options["host"],
            port=options["port"],
            loop="uvloop",
            http=Heads,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # KVC_TRUSTED_PROXIES says who is believed (`infra.addresses`)
            backlog=1024,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run()


def application(role: str = "router") -> Hot:
    """The router of this process; its threads begin with the server."""
    loop: list[asyncio.AbstractEventLoop] = []

    def hand_over(act: Callable[[], None]) -> None:
        if loop and not loop[0].is_closed():
            loop[0].call_soon_threadsafe(act)

    standing, replica = Standing(hand_over), Replica(role=role)
    recorder, watcher = Recorder(replica.name, role=role), Watcher(replica.name, role=role)
    router = Router(standing, replica, recorder, watcher)

    def begin() -> None:
        loop.append(asyncio.get_running_loop())
        replica.start()
        standing.start()
        recorder.start()
        watcher.start()
        router.tick(loop[0])
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, 20, 50)

    def end() -> None:
        standing.close()
        replica.close()
        recorder.close()
        watcher.close()

    return Hot(router, begin=begin, end=end)
