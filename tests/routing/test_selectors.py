from datetime import UTC, datetime, timedelta

import pytest

from routing.models import IndexLease
from routing.selectors import fence_in_force

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.django_db
def test_a_fence_is_in_force_when_each_lease_has_it_or_is_over():
    def lease(name, fence_seq, seconds):
        IndexLease.objects.create(
            name=name, fence_seq=fence_seq, seq=1, mode="live", until=NOW + timedelta(seconds=seconds)
        )

    assert fence_in_force(seq=5, now=NOW)
    lease("a", 5, 3)
    assert fence_in_force(seq=5, now=NOW)
    lease("b", 4, 3)
    assert not fence_in_force(seq=5, now=NOW)
    assert fence_in_force(seq=4, now=NOW)
    assert fence_in_force(seq=5, now=NOW + timedelta(seconds=3))
