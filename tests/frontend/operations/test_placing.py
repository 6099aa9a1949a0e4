"""What is typed for pins and migrations, before a service is asked."""

from datetime import UTC, datetime

import pytest
from django.http import QueryDict

from frontend.operations import placing
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def form(make, **given):
    data = QueryDict(mutable=True)
    data.update(given)
    return make(data)


@pytest.mark.parametrize(("given", "wrong"), [
    ({"days": ""}, {"days"}), ({"days": "91"}, {"days"}), ({"days": "1", "prefix": "xyz"}, {"prefix"}),
])  # fmt: skip
def test_a_pin_without_an_end_or_with_words_for_keys_is_no_pin(given, wrong):
    asked = form(placing.pin_form, namespace="0190aaaa-0000-7000-8000-000000000001", **given)
    assert placing.pin_make(asked, principal(None, "operator"), NOW) is None
    assert asked.errors.keys() >= wrong


def test_a_migration_keeps_what_was_typed_and_says_which_field_is_wrong():
    asked = form(placing.move_form, tenant="acme-code", from_tier="tape", to_tier="dram", throttle="fast")
    assert placing.move_ask(asked, principal(None, "operator"), NOW) is None
    assert "throttle" in asked.errors
    assert (asked.given["tenant"], asked.given["from_tier"]) == ("acme-code", "tape")


def test_tiers_and_nodes_are_chosen_and_no_node_is_a_choice_too():
    found = placing.move_context()
    assert [tier for tier, _, _ in found["tiers"]] == ["hbm", "pinned", "dram", "ssd", "remote"]
    assert found["to_nodes"][0][0] == ""
