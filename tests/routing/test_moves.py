"""A reader sees a block that moves at the old place or at the new one: never at none, never at both."""

import pytest

from tests.routing.moving import Mover
from tests.routing.test_replica import hand

__all__ = ["hand"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_no_reader_sees_both_or_neither(planted, rig, hand):
    looks = Mover(planted, rig).run(200, hand)
    assert min(looks) > 50
