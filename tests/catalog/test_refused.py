"""Nothing due, nothing told; what is due is in `ingest.test_attempts`."""

import pytest

from catalog.refused import attempts_tell
from tests.catalog.test_rates import NOW


@pytest.mark.django_db
def test_without_attempts_there_are_no_events():
    assert attempts_tell(now=NOW) == 0
