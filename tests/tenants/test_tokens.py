"""The shape of tokens."""

import re

import pytest

from tenants import tokens


def test_a_token_is_found_by_scanners_and_parsed_again():
    plaintext, parsed = tokens.generate("node")
    assert re.fullmatch(r"kvc_node_[0-9A-Za-z]{16}_[0-9A-Za-z]{49}", plaintext)
    assert tokens.parse(plaintext) == parsed
    assert (parsed.kind, len(parsed.secret_hash)) == ("node", 32)
    assert tokens.generate("node")[0] != plaintext


def test_any_changed_character_is_noticed_or_is_another_token():
    plaintext, parsed = tokens.generate("user")
    for i in range(len(plaintext)):
        changed = plaintext[:i] + ("a" if plaintext[i] != "a" else "b") + plaintext[i + 1 :]
        assert tokens.parse(changed) is None, i
    assert tokens.parse(plaintext.replace("kvc_user_", "kvc_node_")) is None
    assert parsed.secret_hash.hex() not in plaintext


@pytest.mark.parametrize(
    "text", ["", "kvc_", "Bearer x", "kvc_node__", "kvc_node_" + "a" * 66, "ä" * 80, "kvc_node_x\n"]
)
def test_anything_else_is_no_token(text):
    assert tokens.parse(text) is None


def test_kinds_are_lower_case_words():
    with pytest.raises(ValueError, match="kind"):
        tokens.generate("No")
