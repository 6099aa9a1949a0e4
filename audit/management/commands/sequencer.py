"""`manage.py sequencer`: events become leaves, and the log is signed and watched."""

import logging
import signal
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from audit import gaps
from audit.checkpoints import Signer
from audit.scrubber import Scrubber
from audit.sequencer import Loop, Sequencer
from kvconsole.infra import arguments
from kvconsole.infra.sql import dsn

_log = logging.getLogger("kvc.sequencer")


class Command(BaseCommand):
    """Seals events; a second process waits and takes over."""

    help = "Seal audit events into the log, have it signed, and look for gaps. A second process waits for the first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whether the scrubber runs here too."""
        parser.add_argument("--no-scrub", action="store_true", help="the scrubber has a process of its own")
        parser.add_argument(
            "--gaps-every", type=arguments.number(0.1, 86_400), default=gaps.EVERY_SECONDS, help="seconds (default 60)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Works until SIGTERM or SIGINT; a batch at hand is finished."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        sequencer = Sequencer(dsn("seq"))
        signer = Signer(lambda: sequencer.leads, sequencer.rebuild.set)
        loop = Loop(sequencer, told=lambda size: signer.grown.set())
        scrubber = Scrubber(dsn("seq"))
        works: list[Callable[[], None]] = [signer.run, lambda: watch(loop, options["gaps_every"])]
        if not options["no_scrub"]:
            works.append(scrubber.run)

        def stop(*_: Any) -> None:
            for one in (signer.stopping, scrubber.stopping, loop.stopping):
                one.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        threads = [threading.Thread(target=kept, args=(work, loop.stopping), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        loop.run()
        for thread in threads:
            thread.join(3)


def kept(work: Callable[[], None], stopping: threading.Event) -> None:
    """The work goes on until told to stop: an error that nobody expected is logged, and it starts again."""
    while not stopping.is_set():
        try:
            work()
        except Exception:
            _log.exception("%s failed; it starts again", work)
            connection.close()
            stopping.wait(5.0)


def watch(loop: Loop, seconds: float) -> None:
    """The gap finder looks so often, in the process that leads."""
    due = time.monotonic()
    while not loop.stopping.wait(0.2):
        if time.monotonic() < due or not loop.sequencer.leads:
            continue
        due = time.monotonic() + seconds
        try:
            if new := gaps.look():
                _log.error("%d gaps in the log were found", new)
        except Exception as e:
            _log.warning("the gap finder did not finish: %s", e, exc_info=e)
            connection.close()
    connection.close()
