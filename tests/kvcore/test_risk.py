"""The table of risks and what each earns."""

import pytest
from msgspec.structs import asdict, replace

from kvcore.risk import GIB, WIDTHS, Friction, Risk, Stakes, friction, risk

SMALL = Stakes(
    width="session", own=True, bytes=GIB - 1, part=0.0, tenants=1, shared=False, restricted=False, crypto_erase=False,
    pins_overridden=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "R0"),
        ({"width": "prefix"}, "R0"),
        ({"own": False}, "R1"),
        ({"bytes": GIB}, "R1"),
        ({"width": "subject"}, "R1"),
        ({"width": "label"}, "R1"),
        ({"width": "namespace"}, "R1"),
        ({"width": "older_than"}, "R1"),
        ({"width": "class"}, "R2"),
        ({"width": "tenant"}, "R2"),
        ({"width": "epoch"}, "R2"),
        ({"part": 0.0099}, "R0"),
        ({"part": 0.01}, "R2"),
        ({"part": 0.2}, "R2"),
        ({"part": 0.2001}, "R3"),
        ({"pins_overridden": True}, "R2"),
        ({"tenants": 2}, "R3"),
        ({"shared": True}, "R3"),
        ({"restricted": True}, "R3"),
        ({"crypto_erase": True}, "R3"),
        ({"width": ""}, "R3"),
    ],
)
def test_the_table(changes: dict[str, object], level: str) -> None:
    found, reasons = risk(replace(SMALL, **changes))
    assert found == level
    assert bool(reasons) == (level != "R0")


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"part": 0.9}, "R2"),
        ({"restricted": True}, "R2"),
        ({"tenants": 2}, "R3"),
        ({"shared": True}, "R3"),
        ({"crypto_erase": True}, "R3"),
        ({"width": ""}, "R3"),
        ({}, "R0"),
    ],
)
def test_what_a_rule_asks_for_was_decided_when_it_was_set_but_not_for_others(
    changes: dict[str, object], level: str
) -> None:
    assert risk(replace(SMALL, rule=True, **changes))[0] == level


def test_a_rule_that_only_takes_blocks_away_needs_nobody_for_a_share_group_and_a_person_still_does() -> None:
    reaching = replace(SMALL, tenants=2, shared=True, lives_on=True)
    assert risk(replace(reaching, rule=True)) == ("R2", ("several-tenants", "shared"))
    assert risk(reaching)[0] == "R3"


def test_every_reason_is_told_the_gravest_first() -> None:
    _, reasons = risk(replace(SMALL, width="tenant", tenants=2, part=0.5, own=False))
    assert reasons == ("several-tenants", "tier-part-20", "whole-tenant")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_that_is_added_makes_it_less(width: str) -> None:
    before, _ = risk(replace(SMALL, width=width))
    for name in ("shared", "restricted", "crypto_erase", "pins_overridden"):
        assert risk(replace(SMALL, width=width, **{name: True}))[0] >= before


def test_friction_grows_with_the_risk() -> None:
    assert friction("R0") == Friction()
    assert friction("R1") == Friction(modal=True, deny_window=True)
    assert friction("R2") == Friction(modal=True, phrase=True, reason=True, mfa=True, deny_window=True)
    assert friction("R3") == Friction(
        modal=True, phrase=True, reason=True, mfa=True, second_person=True, deny_window=True
    )  # fmt: skip
    for less, more in zip(Risk, list(Risk)[1:], strict=False):
        assert all(asdict(friction(more))[name] for name, holds in asdict(friction(less)).items() if holds)
