"""A console in this process with a real log and signer, and nodes that erase."""

import pytest

from tests.audit.conftest import sealed as sealed
from tests.catalog.operations.world import a_world


@pytest.fixture
def world(transactional_db, postgres, sealed):
    with a_world(postgres, sealed) as made:
        yield made
