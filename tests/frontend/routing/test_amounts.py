"""Amounts with units: what is read, what is refused, and whose value stands in a field."""

import pytest

from frontend.routing import amounts
from frontend.routing.amounts import Known, Quantity
from frontend.tenancy.forms import Form

SIZE = Quantity("size", "bytes", "", "1 GB", 1, 1e15)
SHARE = Quantity("part", "share", "%", "50", 0, 100)
WHOLE = Quantity("n", "whole", "", "3", 1, 10)


def read(one, text):
    form = Form(given={one.name: text})
    return amounts.value(form, one), list(form.errors)


@pytest.mark.parametrize(("text", "wanted"), [
    ("25 GB", 25e9), ("20 GiB", 20 * 2**30), ("163840", 163840), ("160 kib", 163840), ("1.5TB", 1.5e12),
    ("1,024 B", 1024),
])  # fmt: skip
def test_bytes_have_units_of_both_kinds(text, wanted):
    assert read(SIZE, text) == (wanted, [])


@pytest.mark.parametrize("text", ["", "GB", "20 parsecs", "1e9 GB", "-1 GB", "0 B", "2 PB", "9" * 50, "NaN", "١٢"])
def test_what_is_no_size_is_refused_and_never_guessed(text):
    assert read(SIZE, text) == (None, ["size"])


def test_percent_is_a_fraction_and_whole_is_whole():
    assert read(SHARE, "94.2") == (pytest.approx(0.942), [])
    assert read(SHARE, "100.1")[1] == ["part"]
    assert read(WHOLE, "7") == (7.0, [])
    assert read(WHOLE, "7.5")[1] == ["n"]
    assert read(WHOLE, "inf")[1] == ["n"]


def test_what_was_typed_wins_over_what_is_known_and_that_over_the_example():
    known = {"n": Known("5", "measured", "n1")}
    for data, wanted in (({}, "5"), ({"n": "8"}, "8"), ({"n": ""}, "")):
        form = Form()
        amounts.read(form, data, [WHOLE], known)
        assert form.given == {"n": wanted}
    form = Form()
    amounts.read(form, {}, [SHARE], known)
    assert form.given == {"part": "50"}


@pytest.mark.parametrize(("number", "text"), [(20.0, "20"), (0.2, "0.2"), (9.34232e-3, "0.00934232"), (1e16, "1e+16")])
def test_numbers_are_written_as_one_types_them(number, text):
    assert amounts.written(number) == text
