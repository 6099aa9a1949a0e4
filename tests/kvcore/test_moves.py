"""What is left of a manifest is said in stretches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.moves import places_in, stretches


@given(st.sets(st.integers(0, 60)))
def test_stretches_say_which_places(numbers):
    found = stretches(numbers)
    assert places_in(found, 61) == numbers
    assert len(found) <= len(numbers)
    assert places_in(["0-999999999999"], 3) == {0, 1, 2}
    for text in ("", "x-2", "3"):
        with pytest.raises(ValueError, match="invalid literal"):
            places_in([text], 9)
