"""Every schedule: no resurrection; and every rule is needed."""

import pytest

from kvcore.fence import Rules
from kvcore.fence_check import check, walk
from kvcore.fence_scenarios import scenarios

FAMILIES = {
    "two nodes", "persistent", "fence", "collapse", "two generations", "transfer", "inventory", "lost", "return",
    "volatile",
}  # fmt: skip


def test_short_form_finds_nothing() -> None:
    report = check(2)
    assert report.schedules >= 20_000
    assert report.violations == 0


def test_short_form_walks_through_every_family() -> None:
    """Each with more than one order of delivery; what a family alone can show is in `test_fence_scenarios`."""
    walked: dict[str, int] = {}
    for scenario in scenarios(2):
        walked[scenario.family] = walked.get(scenario.family, 0) + walk(scenario).schedules
    assert set(walked) == FAMILIES
    assert min(walked.values()) > 20


@pytest.mark.slow
def test_full_form_finds_nothing_in_half_a_million_schedules() -> None:
    report = check(3)
    assert report.schedules >= 700_000
    assert (report.resurrections, report.violations) == (0, 0)


@pytest.mark.parametrize("rule", Rules.__struct_fields__)
def test_each_rule_that_is_taken_away_is_caught(rule: str) -> None:
    assert check(2, Rules(**{rule: False}), until=1).violations >= 1


@pytest.mark.parametrize("rule", ["clears_reach_back", "receipts_reach_back"])
def test_what_is_caught_there_is_a_resurrection(rule: str) -> None:
    assert check(2, Rules(**{rule: False})).resurrections > 0
