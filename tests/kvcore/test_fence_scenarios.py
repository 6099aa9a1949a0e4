"""What each family of histories is there for: the rule without which it finds a violation."""

from collections.abc import Iterator

import pytest

from kvcore.fence import Collapsed, Heard, Listed, Rules
from kvcore.fence_check import Report, walk
from kvcore.fence_scenarios import Scenario, scenarios

SHORT = list(scenarios(2))


def of(family: str) -> list[Scenario]:
    return [scenario for scenario in SHORT if scenario.family == family]


def without(family: str, rule: str) -> Iterator[Report]:
    """Reports of the family's scenarios, each cut off after some violations."""
    return (walk(scenario, Rules(**{rule: False}), until=20) for scenario in of(family))


@pytest.mark.parametrize(
    ("family", "rule", "field"),
    [
        ("two nodes", "receipts_are_of_one_store", "pending_shown"),
        ("persistent", "persistent_survives", "wrong_gone"),
        ("fence", "generations_fence", "fenced_shown"),
        ("fence", "fences_only_grow", "fenced_shown"),
        ("two generations", "fences_only_grow", "fenced_shown"),
        ("two generations", "zombies_are_told", "missed_redeletes"),
        ("transfer", "generations_fence", "fenced_shown"),
        ("transfer", "zombies_are_told", "missed_redeletes"),
        ("inventory", "receipts_reach_back", "resurrections"),
        ("lost", "gaps_are_uncertain", "wrong_gone"),
        ("collapse", "collapse_fences", "fenced_shown"),
        ("return", "collapse_fences", "fenced_shown"),
        ("return", "zombies_are_told", "missed_redeletes"),
        ("volatile", "clears_reach_back", "resurrections"),
    ],
)
def test_a_family_needs_its_rule(family: str, rule: str, field: str) -> None:
    assert any(getattr(report, field) for report in without(family, rule))


def test_the_new_generation_of_a_reopened_namespace_is_seen_again() -> None:
    finals = [scenario.truth[1][max(scenario.truth[1])] for scenario in of("two generations")]
    assert True in finals
    assert {copy.gen for scenario in of("two generations") for copy in scenario.copies} == {1, 2}


def test_what_is_lost_never_comes_and_an_inventory_ends_every_such_history() -> None:
    for scenario in of("lost"):
        heard = [one for one in scenario.sent if isinstance(one.message, Heard)]
        assert len(heard) < len(scenario.truth[0]) - 1
        assert scenario.final[0] is not None


def test_a_node_that_was_away_lists_its_full_disk_after_the_collapse() -> None:
    for scenario in of("return"):
        kinds = [type(one.message) for one in scenario.sent]
        assert Collapsed in kinds
        assert Listed((1, 0), True) in [one.message for one in scenario.sent if one.store == 1]
