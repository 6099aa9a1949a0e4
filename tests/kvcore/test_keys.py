"""Derivations: golden values, framing, chains, digests."""

import hashlib
import hmac
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import keys
from kvcore.keys import NamespaceSpec, namespace_digest

BLK = bytes(range(32))


def test_a_chain_is_made_block_by_block() -> None:
    tokens = b"".join(n.to_bytes(4, "little") for n in range(1, 33))
    first = hashlib.blake2b(bytes(32) + tokens[:64], key=BLK, digest_size=32).digest()
    second = hashlib.blake2b(first + tokens[64:], key=BLK, digest_size=32).digest()
    assert keys.chain_keys(tokens, block_tokens=16, blk=BLK) == [first, second]
    assert keys.chain_keys(tokens[64:], block_tokens=16, blk=BLK, parent=first) == [second]
    assert keys.chain_keys(tokens[:100], block_tokens=16, blk=BLK) == [first]
    assert keys.block_key(first, tokens[64:], BLK) == second


@given(st.binary(max_size=400), st.integers(1, 20), st.one_of(st.none(), st.binary(min_size=32, max_size=32)))
def test_chains_are_their_blocks(tokens: bytes, block_tokens: int, parent: bytes | None) -> None:
    at, step, slow = parent or keys.ROOT, 4 * block_tokens, []
    for i in range(len(tokens) // step):
        at = keys.block_key(at, tokens[i * step : (i + 1) * step], BLK)
        slow.append(at)
    assert keys.chain_keys(tokens, block_tokens=block_tokens, blk=BLK, parent=parent) == slow


@given(st.binary(max_size=100), st.text(max_size=10), st.binary(min_size=1, max_size=64))
def test_directory_keys_are_hmac(k_dir: bytes, engine: str, engine_hash: bytes) -> None:
    message = keys.framed(engine.encode(), b"sha256", engine_hash)
    expected = hmac.digest(k_dir, message, "sha256")
    assert keys.directory_key(k_dir, engine=engine, algorithm="sha256", engine_hash=engine_hash) == expected


def test_engines_never_share_a_directory_key() -> None:
    a = keys.directory_key(BLK, engine="ab", algorithm="c", engine_hash=b"h")
    assert a != keys.directory_key(BLK, engine="a", algorithm="bc", engine_hash=b"h")


def test_namespace_digest_depends_on_every_field() -> None:
    base = NamespaceSpec(model="m", weights_epoch=1)
    seen = {namespace_digest(base)}
    for name in base.__struct_fields__:
        value = getattr(base, name)
        other = NamespaceSpec(
            **{**{"model": "m", "weights_epoch": 1}, name: value + 1 if isinstance(value, int) else value + "x"}
        )
        seen.add(namespace_digest(other))
    assert len(seen) == len(base.__struct_fields__) + 1
    assert namespace_digest(NamespaceSpec(model="m", weights_epoch=1)) == namespace_digest(base)


def test_subkeys_and_salts() -> None:
    made = {keys.subkey(BLK, label) for label in keys.SUBKEYS}
    assert len(made) == 5
    with pytest.raises(ValueError, match="label"):
        keys.subkey(BLK, "master")
    salt = keys.engine_salt(BLK)
    assert len(salt) == 43
    assert keys.salt_tag(salt) == hashlib.sha256(salt.encode()).digest()[:16]


def test_pack_and_digest() -> None:
    rnd = random.Random(1)
    some = [rnd.randbytes(32) for _ in range(50)]
    assert list(keys.unpack(keys.pack(some))) == some
    total = (0, 0, 0)
    for key in some:
        total = keys.digest_add(total, key)
    rnd.shuffle(some)
    for key in some:
        total = keys.digest_add(total, key, -1)
    assert total == (0, 0, 0)
