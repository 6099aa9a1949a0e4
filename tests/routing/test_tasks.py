"""Tasks of routing only wake: they read their rows and ignore what is not due."""

import pytest

from routing import tasks
from routing.models import LostHitMark

pytestmark = pytest.mark.django_db(transaction=True)


def test_in_an_empty_console_there_is_nothing_to_do():
    tasks.lost_hits_tally.run()
    tasks.announcements_judge.run()
    assert LostHitMark.objects.count() == 1
