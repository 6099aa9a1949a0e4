"""The store against its oracle."""

import pytest

from tests.catalog import oracle

MODES = ("plain", "writer", "kill")


@pytest.mark.parametrize("seed", range(3))
def test_histories(postgres, fresh_database, seed):
    print(seed, oracle.run(postgres, fresh_database.dsn("ingest"), seed, 40, MODES[seed % 3]))
