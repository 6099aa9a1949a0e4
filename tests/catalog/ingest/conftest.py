"""Fixtures of the event road: a database whose rows everybody sees, and a writer on it."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.catalog.ingest.rig import Rig, superuser


@pytest.fixture
def planted(transactional_db, postgres) -> Iterator[psycopg.Connection]:
    """A superuser's connection to the test database."""
    with superuser(postgres) as connection:
        yield connection


@pytest.fixture
def rig(planted) -> Iterator[Rig]:
    """A writer on the test database. Plant nodes before it is opened, or let a second pass."""
    rig = Rig()
    yield rig
    rig.close()
