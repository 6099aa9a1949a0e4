"""Fixtures of the P/D road."""

from collections.abc import Iterator

import pytest

from tests.nodeagent.serving.fleet import Fleet


@pytest.fixture
def fleet(tmp_path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.end()
