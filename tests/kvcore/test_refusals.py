"""Codes of refusals."""

import re

from kvcore.events import Refused as SameRefused
from kvcore.refusals import REFUSALS, Refused


def test_codes_are_names_of_pages() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in REFUSALS)
    assert all(REFUSALS.values())


def test_a_refusal_says_its_code() -> None:
    assert str(Refused("bad-keys")) == "bad-keys"
    assert str(Refused("bad-keys", "31 bytes")) == "bad-keys: 31 bytes"
    assert SameRefused is Refused
