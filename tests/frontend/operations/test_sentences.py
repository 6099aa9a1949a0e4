"""Statements about operations: none says more than what was answered and seen, in both languages."""

import pytest
from django.utils.translation import override

from catalog.operation_bodies import STATES, BlockerOut
from frontend.operations import sentences
from frontend.operations.wording import BLOCKED, BLOCKERS, COLLATERAL
from kvcore.erasure_words import too_strong

SHOWN = {"progress": {"percent": 40}}


def test_a_selector_is_said_by_its_fields_and_never_by_keys():
    said = sentences.selected({"tenant": "acme-code", "prefix": ["ab" * 32] * 3, "session": "", "unknown": "x",
                               "and": [{"label": "tools", "and": [{"label": "deeper"}]}]})  # fmt: skip
    assert [value for _, value in said] == ["acme-code", "3 keys", "tools"]
    assert "abab" not in str(said)


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("state", STATES)
def test_no_state_claims_anything_of_bytes(state, language):
    with override(language):
        words = [*sentences.running(state, SHOWN, 1), *sentences.moved(state, SHOWN)]
    assert not [word for word in words if too_strong(word, 0, "zh" if language != "en" else "en")]


def test_what_is_not_so_stands_beside_what_is():
    assert sentences.running("stopped", SHOWN, 0)[1] == "What was fenced stays fenced; there is no certificate."
    assert sentences.moved("stopped", SHOWN)[1] == "What was moved stays where it is now."
    first, second = sentences.running("erasing", SHOWN, 2)
    assert "40 %" in first
    assert second.startswith("2 nodes do not answer. It stays open until they do")
    assert "40 %" in sentences.moved("moving", SHOWN)[0]


@pytest.mark.parametrize("cls", range(6))
def test_a_certificate_is_called_by_its_class_and_says_that_there_are_exceptions(cls):
    for language in ("en", "zh"):
        plain, odd = (sentences.certificate(cls, n, language) for n in (0, 2))
        assert plain != odd
        assert f"E{cls}" in plain
        assert f"E{cls}" in odd
        assert not too_strong(plain, cls, language)


def test_an_exception_is_said_once_with_the_number_of_its_nodes():
    found = [{"code": "NODE_UNREACHABLE", "node": name} for name in ("a", "b", "a")]
    ((code, said, nodes),) = sentences.exceptions(found, "en")
    assert (code, nodes) == ("NODE_UNREACHABLE", 2)
    assert said


def test_lists_say_what_is_open_and_what_is_one_s_own():
    assert sentences.operations({"open": 0, "waiting": 0}, False, False) == "Nothing was asked for yet."
    assert sentences.operations({"open": 0, "waiting": 0}, True, False) == "No operation is open."
    assert sentences.approvals(2, 1, "open", False) == "2 wait for a second person. You asked for 1 of them yourself."
    assert sentences.approvals(25, 0, "open", True) == "25 or more wait for a second person."
    assert sentences.approvals(3, 3, "denied", False) == "Nobody decides what they asked for themselves."


def test_where_there_is_no_place_to_ask_no_part_is_said():
    for state in ("erasing", "verifying"):
        first, _ = sentences.running(state, {"progress": {"percent": None}}, 0)
        assert first == "It is fenced; no place is known that could be asked."


def test_what_stays_and_what_leases_are_is_said_as_it_is():
    """A key goes with all that continues it; a lease of a key is not one of blocks."""
    assert "all that continue them" in str(COLLATERAL["none"])
    assert set(BLOCKERS) == set(BLOCKED) == set(BlockerOut().fields["kind"].choices)
    assert "key" in str(BLOCKED["key_lease"])
    assert "read" not in str(BLOCKERS["key_lease"].word)
    shown = {"namespaces": 1, "blocks": 1_316, "options": {"collateral": "none"}, "selector": {"prefix": ["ab" * 16]}}
    assert "all that continue them" in sentences.plan(shown)[1]
    assert "continue" not in sentences.plan(shown | {"selector": {"older_than": 1.0}})[1]
