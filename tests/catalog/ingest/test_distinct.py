"""No chain that names a key twice escapes, whatever else is in the frame."""

import random

import msgspec
import pytest

from catalog.ingest.distinct import FEW, suspects
from kvcore.events import Add, Refused, decode_items


def chains(rng: random.Random, count: int) -> list[bytes]:
    return [b"".join(rng.randbytes(32) for _ in range(rng.randint(1, 40))) for _ in range(count)]


def test_good_chains_are_not_suspected():
    rng = random.Random(1)
    many = chains(rng, 200)
    assert list(suspects(many)) == []
    assert list(suspects([many[0]] * 50)) == []  # the same chain again, in another tier, is no chain with twins
    assert list(suspects([])) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_that_names_a_key_twice_is_found(seed):
    rng = random.Random(seed)
    many = chains(rng, rng.randint(1, 40))
    at = rng.randrange(len(many))
    many[at] += many[at][:32]
    assert at in suspects(many)
    raws = [
        msgspec.Raw(msgspec.msgpack.encode(Add(ns=bytes(32), gen=1, keys=c, tier="hbm", tokens=16, bytes=64)))
        for c in many
    ]
    judged = decode_items(raws, twice=suspects)
    assert [i.code if isinstance(i, Refused) else "" for i in judged] == [
        "duplicate-key" if n == at else "" for n in range(len(many))
    ]


def test_keys_that_begin_alike_are_only_suspected():
    alike = [bytes(31) + b"\1" + bytes(31) + b"\2"] * FEW
    assert list(suspects(alike)) == list(range(FEW))
