"""Decisions of every kind over a planted fleet."""

from typing import Any

import pytest

from tests.conftest import TEST_DATABASE
from tests.frontend import plant_routing


@pytest.fixture(scope="module")
def made(planted: Any, postgres: Any) -> plant_routing.Planted:
    """Ids of one of each."""
    return plant_routing.decisions(postgres.superuser_dsn(TEST_DATABASE))


@pytest.fixture(scope="module")
def loads(planted: Any, postgres: Any) -> None:
    """What the workers of the planted fleet measured."""
    plant_routing.loads(postgres.superuser_dsn(TEST_DATABASE))
