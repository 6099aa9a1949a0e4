"""Where values begin and end, of any shape and depth."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.wire import Truncated, array_length, elements, end_of

pack = msgspec.msgpack.encode
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary(max_size=300)
    ),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=40,
)


@given(st.lists(values, max_size=30))
def test_elements_are_what_was_put_in(things: list[Any]) -> None:
    body = pack(things)
    assert elements(body) == [pack(x) for x in things]
    assert end_of(body, 0) == len(body)
    assert array_length(body) == len(things)


@given(st.binary(max_size=60))
def test_any_bytes_give_an_end_or_truncated(body: bytes) -> None:
    with contextlib.suppress(Truncated):
        assert 0 < end_of(body, 0) <= len(body)


def test_big_and_odd_values() -> None:
    for value in (
        "x" * 70_000,
        b"x" * 70_000,
        [0] * 70_000,
        {str(i): 0 for i in range(70_000)},
        msgspec.msgpack.Ext(5, b"abc"),
    ):
        assert end_of(pack(value), 0) == len(pack(value))
    assert array_length(pack([0] * 70_000)) == 70_000
    assert array_length(pack([0] * 20)) == 20
    assert array_length(pack({})) is None
    assert array_length(b"") is None
    deep = b"\x91" * 1_000_000 + b"\x00"
    assert end_of(deep, 0) == len(deep)
    for bad in (b"", b"\xc1", b"\xa5ab", b"\xdd\xff\xff\xff\xff"):
        with pytest.raises(Truncated):
            end_of(bad, 0)
