"""The engine-neutral form."""

import msgspec
import pytest

from kvcore.dialects.engine import MEDIA, extra_digest, tier_of, token_bytes
from kvcore.events import Refused


def test_tiers() -> None:
    assert tier_of(None) == "hbm"
    assert {tier_of(m.upper()) for m in MEDIA} == {"hbm", "pinned", "dram", "ssd", "remote"}
    with pytest.raises(Refused, match="unknown-medium"):
        tier_of("abacus")


def test_token_bytes() -> None:
    assert token_bytes(msgspec.Raw(msgspec.msgpack.encode([1, 2**32 - 1]))) == b"\x01\0\0\0\xff\xff\xff\xff"


def test_extra_digest_is_framed() -> None:
    assert extra_digest(["ab", "c"]) != extra_digest(["a", "bc"])
