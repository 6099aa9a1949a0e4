"""`manage.py ingest`: the writer of one shard, with the HTTP server in front of it."""

import gc
import logging
from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand

from catalog.ingest.hot import Hot
from catalog.ingest.pipeline import Pipeline
from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads
from kvconsole.infra.sql import dsn


class Command(BaseCommand):
    """Takes events from agents and writes them into the catalog; a second process waits and takes over."""

    help = "Take events from agents and write them into the catalog. A second process of the shard waits for the first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen, and how long rows may lag behind the ledger."""
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=arguments.port, required=True)
        defer = arguments.number(0, 60)
        parser.add_argument("--defer", type=defer, default=2.0, help="seconds that rows are written behind (default 2)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Serves until SIGTERM or SIGINT; what is being committed is finished."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        gc.disable()  # folding makes many small objects and no cycles; `pipeline` collects when nothing waits
        pipeline = Pipeline(
            dsn("ingest"), settings.SHARD, defer=options["defer"], url="http://{host}:{port}".format(**options)
        )
        config = uvicorn.Config(
            Hot(pipeline),
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
