"""Pages of routing over a fleet of nobody: each says what it waits for, none is a blank or a zero that is not known."""

import pytest

from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db


def test_no_decision_yet_says_where_they_come_from(person):
    said = text(person("viewer").get("/routing"))
    assert "No decision in the last hour." in said
    assert "A gateway asks the router before it sends a request to an engine" in said


def test_nothing_hot_and_nothing_to_compare_say_so(person):
    who = person("viewer")
    assert "Nothing was hit in the last hour" in text(who.get("/prefixes"))
    said = text(who.get("/routing/compare"))
    assert "There is nothing to compare yet." in said
    said = text(who.get("/topology"))
    assert "No edge was measured yet" in said
    assert "What a loss would take is unknown" in said


def test_regret_that_nobody_measured_is_unknown(person):
    answer = person("viewer").get("/routing")
    assert answer.context["mix"].regret_p50_ms is None
    assert answer.content.decode().count('class="unk"') >= 4


@pytest.mark.parametrize("path", ["/routing", "/prefixes"])
def test_every_part_that_is_refreshed_is_there(person, path):
    import re

    text_of = person("viewer").get(path).content.decode()
    (parts,) = re.findall(r'hx-select-oob="([^"]+)"', text_of)
    assert [part for part in parts.split(",") if f'id="{part[1:]}"' not in text_of] == []
