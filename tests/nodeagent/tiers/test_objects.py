import os
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.tiers.base import BlockRefused
from nodeagent.tiers.objects import KeyFile, object_open, object_parse, object_seal
from tests.nodeagent.tiers.conftest import run

ENC, VALUE, NAME = secrets.token_bytes(32), secrets.token_bytes(32), secrets.token_bytes(16)
META, RAW = run(2)
BLOB = object_seal(META, RAW, enc=ENC, value=VALUE, name=NAME)


def test_an_object_shows_what_it_is_and_not_what_is_in_it():
    parsed = object_parse(BLOB[:600])
    assert (parsed.meta.keys, parsed.size) == (META.keys, len(BLOB))
    assert RAW[-64:] not in BLOB
    assert VALUE not in BLOB
    assert object_open(META, BLOB, enc=ENC, value=VALUE, name=NAME) == RAW


@given(st.integers(0, len(BLOB) * 8 - 1))
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_is_found(bit):
    spoiled = bytearray(BLOB)
    spoiled[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BlockRefused):
        object_open(META, bytes(spoiled), enc=ENC, value=VALUE, name=NAME)


@given(st.integers(0, len(BLOB) - 1))
@settings(max_examples=100, deadline=None)
def test_a_truncated_object_is_refused(size):
    with pytest.raises(BlockRefused):
        object_open(META, BLOB[:size], enc=ENC, value=VALUE, name=NAME)


@pytest.mark.parametrize("wrong", ["enc", "value", "name"])
def test_each_part_of_the_key_is_needed(wrong):
    parts = {"enc": ENC, "value": VALUE, "name": NAME}
    with pytest.raises(BlockRefused):
        object_open(META, BLOB, **parts | {wrong: bytes(len(parts[wrong]))})


def test_an_object_is_at_most_160_blocks():
    with pytest.raises(ValueError, match="160"):
        object_seal(*run(161), enc=ENC, value=VALUE, name=NAME)


def test_a_header_of_nonsense_is_refused():
    import hashlib
    import struct

    header = b"\x93nonsense"
    front = struct.pack("<4sI16s", b"KVO1", len(header), hashlib.sha256(header).digest()[:16])
    with pytest.raises(BlockRefused):
        object_parse(front + header)


def test_values_are_durable_and_destroyed_for_good(tmp_path):
    path = tmp_path / "objects.keys"
    keys = KeyFile(path)
    made = keys.create(3)
    assert path.stat().st_mode & 0o777 == 0o600
    again = KeyFile(path)
    assert [again.value(n) for n, _ in made] == [v for _, v in made]
    again.destroy([made[1][0], secrets.token_bytes(16)])
    assert made[1][1] not in path.read_bytes()
    third = KeyFile(path)
    assert third.names() == {made[0][0], made[2][0]}
    with pytest.raises(BlockRefused):
        third.value(made[1][0])
    ((name, value),) = third.create(1)  # the freed record is used again
    assert os.path.getsize(path) == 3 * 48
    assert third.value(name) == value
    for file in (keys, again, third):
        file.close()
