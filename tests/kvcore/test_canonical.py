"""RFC 8785: whichever way the bytes are made, they are the library's."""

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kvcore.canonical import SAFE_INTEGER, canonical

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(1 - SAFE_INTEGER, SAFE_INTEGER - 1) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_the_bytes_are_those_of_the_library(value):
    assert canonical(value) == rfc8785.dumps(value)


def test_every_character_that_a_text_can_have():
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10100), 0x10FFFF)))
    for value in (text, {text[:0x80]: text}, [text, {"a": {"b": [text]}}]):
        assert canonical(value) == rfc8785.dumps(value)


def test_names_are_in_the_order_of_utf_16():
    names = ["", "1", "10", "B", "b", "é", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical({name: 1 for name in reversed(names)}))) == names


@pytest.mark.parametrize("value", [
    SAFE_INTEGER, -SAFE_INTEGER, [{"a": 2**60}], "\ud800", {"a": "\udfff"}, {1: 2}, {1, 2}, float("nan"), b"x",
])  # fmt: skip
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical(value)
