"""A PostgreSQL of these tests' own, because they kill it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvconsole import reaper
from kvconsole.embedded import Postgres, Valkey
from tests.conftest import CLONE, Database
from tests.running import Console


@pytest.fixture(scope="package")
def doomed_postgres(service_base: Path) -> Iterator[Postgres]:
    """PostgreSQL with a migrated template; durable, unlike the one of other tests."""
    server = Postgres(service_base / "doomed", test=False)
    reaper.shared().remove(server.home)
    server.start()
    server.create_database("template")
    env = os.environ | server.env("template") | {"KVC_ENV": "test", "KVC_DB_ROLE": "migrate"}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, check=True, cwd=CLONE, env=env)
    yield server
    server.remove()


@pytest.fixture
def doomed(doomed_postgres: Postgres, service_base: Path) -> Iterator[Console]:
    """A console whose every part may be killed."""
    name = "doomed"
    doomed_postgres.create_database(name, "template")
    base = Path(tempfile.mkdtemp(prefix="doomed-", dir=service_base))
    broker = Valkey(base / "valkey", persist=False, test=True)
    reaper.shared().remove(broker.home)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        stack.callback(doomed_postgres.drop_database, name)
        stack.callback(broker.remove)
        broker.start()
        running = Console(base / "site", database=Database(doomed_postgres, name), broker=broker)
        stack.callback(running.stop)
        yield running
