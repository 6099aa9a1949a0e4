"""What looks alike is the same, what does not is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.lookalikes import normal, scripts, skeleton


@pytest.mark.parametrize(
    ("one", "two"),
    [("alice", "ALICE"), ("alice", "аlice"), ("paypal", "paypa1"), ("ｂｏｂ", "bob"), ("rnodern", "modern"),
     ("vvill", "will"), ("a-b", "a_b"), ("x.y", "x-y"), ("josé", "jose"), ("b0b", "bob"), ("Ίon", "ion")],
)  # fmt: skip
def test_pairs_that_people_take_for_each_other(one, two):
    assert skeleton(one) == skeleton(two)


@pytest.mark.parametrize(
    ("one", "two"), [("alice", "bob"), ("clara", "dara"), ("anna", "ama"), ("李雷", "李磊"), ("a", "ab")]
)
def test_names_that_are_different(one, two):
    assert skeleton(one) != skeleton(two)


def test_scripts():
    assert scripts("аlice") == {"CYRILLIC", "LATIN"}
    assert scripts("李さん") == {"CJK"}
    assert scripts("a-1.b") == {"LATIN"}
    assert scripts("123") == frozenset()


@given(st.text(max_size=20))
def test_case_and_width_never_matter(text):
    assert skeleton(normal(text)) == skeleton(text)
    assert skeleton(text.casefold()) == skeleton(text)
