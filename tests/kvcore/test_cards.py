"""What is recorded of a decision reads back as itself; terms add up; a curve costs what it says."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack, structs

from kvcore.cards import REASONS, Ask, Candidate, Curve, Held, Learned, Terms, TierLoad
from tests.kvcore.workers import CURVE, asking, worker

costs = st.floats(0, 1e6)


@settings(deadline=None)
@given(st.builds(Terms, costs, costs, costs, costs, costs, costs, costs))
def test_the_total_is_the_sum_of_seven(terms: Terms) -> None:
    assert len(structs.astuple(terms)) == 7
    assert terms.total_ms == sum(structs.astuple(terms))
    assert msgpack.decode(msgpack.encode(terms), type=Terms).total_ms == terms.total_ms


@settings(deadline=None)
@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(0, 200_000))
def test_a_suffix_costs_what_lies_between(a: int, b: int, c: int) -> None:
    low, mid, high = sorted((a, b, c))
    whole = CURVE.suffix_ms(low, mid) + CURVE.suffix_ms(mid, high)
    assert abs(whole - CURVE.suffix_ms(low, high)) < 1e-6
    assert CURVE.suffix_ms(high, low) == 0 or high == low


def test_the_base_is_paid_once_and_only_where_something_is_computed() -> None:
    curve = Curve(0.01, 0.0, 5.0)
    assert curve.suffix_ms(0, 100) == 6.0
    assert curve.suffix_ms(50, 100) == 5.5
    assert curve.suffix_ms(100, 100) == 0.0


def test_values_read_back() -> None:
    values = [worker("a", tiers=(TierLoad("ssd", 1.0, 2.0),)), asking(100, session_node="a"), Held(3, ((5, "hbm"),)),
              Learned({"a": (1.0,) * 10}, 4)]  # fmt: skip
    for value in values:
        assert msgpack.decode(msgpack.encode(value), type=type(value)) == value


def test_nothing_that_identifies_a_prompt_has_a_place() -> None:
    for kind in (Ask, Candidate, Held):
        for field in kind.__struct_fields__:
            assert not {"key", "keys", "token", "ids", "salt", "prompt"} & set(field.split("_")) or field in (
                "prompt_tokens",
            ), field
    assert REASONS[:3] == ("rights", "residency", "class")
