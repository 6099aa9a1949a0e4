"""How coarse the live entities are, and which topics there are."""

import pytest

from catalog.live import FLEET_ROLES, coarse_age, coarse_lag
from kvconsole.infra.live import resolve


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, None),
        (0, 0),
        (1999, 0),
        (2000, 2000),
        (9_999, 5000),
        (45_000, 30_000),
        (60_000, 60_000),
        (719_000, 660_000),
    ],
)
def test_ages_move_in_steps(ms, shown):
    assert coarse_age(ms) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(None, None), (0, 0), (149, 100), (1_260, 1_500), (9_900, 10_000), (61_499, 61_000)]
)
def test_lags_keep_what_an_eye_can_use(ms, shown):
    assert coarse_lag(ms) == shown


def test_every_topic_is_of_the_fleet():
    for topic in ("tiles", "watermarks", "node:n1", "map:hits"):
        assert resolve(topic)[0].roles == FLEET_ROLES
    assert not FLEET_ROLES & {"tenant-admin", "tenant-member", "gateway", "node"}
