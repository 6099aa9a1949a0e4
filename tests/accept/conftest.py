"""Consoles that several accept tests share, because starting one costs more than most of what is asked of it."""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvconsole import reaper
from kvconsole.embedded import Postgres, Valkey
from tests.accept.tenancy import People
from tests.conftest import Database
from tests.running import Console


@contextlib.contextmanager
def a_console(postgres: Postgres, template: str, service_base: Path) -> Iterator[Console]:
    """As the fixture `console`, for as long as the block lasts."""
    base, name = Path(tempfile.mkdtemp(prefix="console-", dir=service_base)), f"kvc_{uuid.uuid4().hex[:12]}"
    broker = Valkey(base / "valkey", persist=False, test=True)
    reaper.shared().remove(broker.home)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        postgres.create_database(name, template)
        stack.callback(postgres.drop_database, name)
        stack.callback(broker.remove)
        broker.start()
        running = Console(base / "site", database=Database(postgres, name), broker=broker)
        stack.callback(running.stop)
        yield running


@pytest.fixture(scope="package")
def people(postgres: Postgres, template: str, service_base: Path) -> Iterator[People]:
    """The demonstration's people before a console without nodes. Tests leave each other's things alone."""
    with a_console(postgres, template, service_base) as console:
        console.start("signer", "web")
        yield People(console)


@pytest.fixture(scope="module")
def fleet_console(postgres: Postgres, template: str, service_base: Path) -> Iterator[Console]:
    """Everything but nodes, for the tests of one module."""
    with a_console(postgres, template, service_base) as console:
        console.start("signer", "web", "ingest", "worker", "beat")
        console.seed()
        yield console
