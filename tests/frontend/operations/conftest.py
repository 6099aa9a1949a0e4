"""Operations of every state over a planted fleet."""

from typing import Any
from uuid import UUID

import pytest

from tests.conftest import TEST_DATABASE
from tests.frontend import plant_operations


@pytest.fixture(scope="module")
def made(planted: Any, postgres: Any) -> dict[str, UUID]:
    """Ids of one of each."""
    return plant_operations.operations(postgres.superuser_dsn(TEST_DATABASE))
