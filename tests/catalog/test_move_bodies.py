"""Forms of moves and pins: what is no tier, key or field is refused by name."""

import pytest

from catalog.move_bodies import DrainIn, MigrationIn, PinIn, PrefetchIn
from kvcore.blocks import TIERS

MOVE = {"selector": {"tenant": "acme"}, "from_tier": "hbm", "to_tier": "ssd"}
FETCH = {"namespace": "n", "prefix": ["ab" * 32], "to_node": "a", "to_tier": "hbm", "need_at": "2030-01-01T00:00:00Z"}
PIN = {"namespace": "n", "until": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize(("form", "body"), [(MigrationIn, MOVE), (PrefetchIn, FETCH), (PinIn, PIN), (DrainIn, {})])
def test_what_is_asked_for_is_read_with_its_defaults(form, body):
    found = form(data=body)
    assert found.is_valid(), found.errors
    assert found.validated_data.get("throttle") is None
    assert found.validated_data.get("prefix") in (None, ["ab" * 32])


@pytest.mark.parametrize(
    ("form", "body", "field"),
    [
        (MigrationIn, {**MOVE, "to_tier": "tape"}, "to_tier"),
        (MigrationIn, {**MOVE, "throttle": 0}, "throttle"),
        (PrefetchIn, {**FETCH, "prefix": ["ab"]}, "prefix"),
        (PrefetchIn, {**FETCH, "prefix": []}, "prefix"),
        (PinIn, {**PIN, "until": "soon"}, "until"),
        (DrainIn, {"nodes": 3}, "nodes"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(form, body, field):
    found = form(data=body)
    assert not found.is_valid()
    assert field in found.errors


def test_every_tier_can_be_named():
    assert all(MigrationIn(data={**MOVE, "from_tier": tier}).is_valid() for tier in TIERS)
