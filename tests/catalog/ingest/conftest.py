"""Fixtures of the event road: a database whose rows everybody sees, and a writer on it."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.catalog.ingest.rig import Rig, Sim, plant_namespace, plant_node, superuser


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


@pytest.fixture
def ns(planted: psycopg.Connection) -> bytes:
    """A registered namespace."""
    return plant_namespace(planted, "a")


@pytest.fixture
def node(planted: psycopg.Connection) -> uuid.UUID:
    """An enrolled node."""
    return plant_node(planted, "n1")


@pytest.fixture
def sim(ns: bytes, node: uuid.UUID, rig: Rig) -> Sim:
    """A source of that node that has said nothing yet."""
    return Sim(node)
