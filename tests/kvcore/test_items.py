"""What good types are not enough for: bounds, names, and keys named twice."""

import msgspec
import pytest

from kvcore import items
from kvcore.items import Add, Adds, Clear, Drop, Gap, Load, Mark, Move, Refused, State, Use, check, check_values

NS = bytes([7]) * 32
BLOCKS = {"ns": NS, "gen": 1, "keys": b"\1" * 32 + b"\2" * 32}
ADD = Add(**BLOCKS, tier="hbm", tokens=16, bytes=1024)
ADDS = Adds(**BLOCKS, parents=bytes(64), tier="hbm", tokens=16, bytes=1024)
USE = Use(ns=NS, gen=1, head=None, hit_tokens=1, tiers={"hbm": 1}, prompt_tokens=2, saved_ms=1.0, measured=True,
          request="r")  # fmt: skip
LOAD = Load(queue_ms=1.0, running=1, prefill_curve=(0.1, 0.2), measured=True)
GOOD = [ADD, ADDS, Move(**BLOCKS, from_="hbm", to="dram"), Drop(**BLOCKS, tier="hbm", reason="ttl"), Clear(), USE, LOAD,
        State(**BLOCKS, tier="hbm", state="referenced"), Gap(since=1.0, reason="ring"),
        Mark(tier="hbm", used=1, capacity=2, high=0.9, low=0.8)]  # fmt: skip


def code(item, judge=check) -> str:
    with pytest.raises(Refused) as e:
        judge(item)
    return e.value.code


@pytest.mark.parametrize("item", GOOD, ids=lambda i: type(i).__name__)
def test_good_items_pass(item):
    check(item)
    check_values(item)


@pytest.mark.parametrize(
    ("item", "field", "most"),
    [
        (ADD, "tokens", items.BLOCK_TOKENS_MAX),
        (ADDS, "bytes", items.BLOCK_BYTES_MAX),
        (USE, "hit_tokens", items.REQUEST_TOKENS_MAX),
        (USE, "prompt_tokens", items.REQUEST_TOKENS_MAX),
        (LOAD, "running", items.RUNNING_MAX),
    ],
)
def test_what_no_column_could_hold_is_refused(item, field, most):
    check(msgspec.structs.replace(item, **{field: most}))
    assert code(msgspec.structs.replace(item, **{field: most + 1})) == "negative-size"
    assert code(msgspec.structs.replace(item, **{field: -1})) == "negative-size"


@pytest.mark.parametrize("name", ["", "a\0b", "\x1b[31m", "a\nb", "\u202e", "\ue000", "x" * 201])
def test_names_that_cannot_be_stored_or_shown(name):
    assert not items.named(name)
    assert code(msgspec.structs.replace(USE, request=name)) == "wrong-type"
    assert code(msgspec.structs.replace(ADD, step=name)) == "wrong-type"


def test_keys_named_twice_are_left_to_whoever_said_so():
    twice = msgspec.structs.replace(ADD, keys=b"\1" * 64)
    assert code(twice) == "duplicate-key"
    check_values(twice)
    assert code(msgspec.structs.replace(ADDS, keys=b"\1" * 64), check_values) == "duplicate-key"


def test_a_parent_is_found_among_the_keys_only_as_a_whole_key():
    keys = bytes(range(64))
    check(msgspec.structs.replace(ADD, keys=keys, parent=keys[16:48]))
    assert code(msgspec.structs.replace(ADD, keys=keys, parent=keys[32:])) == "parent-cycle"
