import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.keys import digest_add, unpack
from nodeagent.tiers.base import BlockRefused, sums, verify_run
from tests.nodeagent.tiers.conftest import run

META, RAW = run(3)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=20))
def test_sums_are_the_digest_of_the_keys(keys):
    total = (0, 0, 0)
    for key in keys:
        total = digest_add(total, key)
    assert (len(keys), *sums(b"".join(keys))) == total


@given(st.integers(0, len(RAW) * 8 - 1))
@settings(max_examples=300, deadline=None)
def test_any_flipped_bit_of_a_block_is_found(bit):
    """Three bytes of padding behind the done bit carry nothing and are not checked."""
    spoiled = bytearray(RAW)
    spoiled[bit // 8] ^= 1 << bit % 8
    if 5 <= bit // 8 % (len(RAW) // 3) < 8:
        assert verify_run(META, bytes(spoiled))
        return
    with pytest.raises(BlockRefused):
        verify_run(META, bytes(spoiled))


def test_a_run_knows_its_size():
    assert (META.blocks, META.size_bytes) == (3, len(RAW))
    assert unpack(META.keys)[2] == META.keys[64:]
    assert verify_run(META, RAW) is RAW
    with pytest.raises(BlockRefused):
        verify_run(META, RAW + secrets.token_bytes(1))
