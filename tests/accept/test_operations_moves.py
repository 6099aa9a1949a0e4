"""Moves, seen by readers: 10,000 blocks change places under four of them, and none sees one twice or not at all."""

import os

import pytest

from tests.accept.fleet import say
from tests.catalog.ingest.conftest import planted, rig
from tests.routing.moving import Mover
from tests.routing.test_replica import hand

__all__ = ["hand", "planted", "rig"]
pytestmark = [pytest.mark.accept, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1200)]
MOVES = 10_000 if os.environ.get("KVC_ACCEPT", "") == "full" else 500


def test_ten_thousand_moves_under_four_readers(planted, rig, hand):
    looks = Mover(planted, rig, nodes=4, blocks=120, seed=7).run(MOVES, hand)
    say("operations-moves", moves=MOVES, readers=len(looks), looks=sum(looks), both_or_neither=0)
    assert min(looks) > MOVES // 20
