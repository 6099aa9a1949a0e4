"""The leaf: the golden vector, every field there and back, refusals."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from kvcore import leaf as leaves
from kvcore.leaf import LEAF_BYTES, Leaf, LeafError, parse_leaf
from kvcore.proofs import leaf_hash

GOLDEN = bytes.fromhex(
    "4b56414c00010101000000000000000000065bfeda25e000018f00000000700080000000000000002e3bf5e4e6ec8f3b404f7e84df6793b3"
    "e70d6d910be59a984c5f213b80c5d01901010001000000000000000105252e3c3b1092abe0d2b563b1481a51bf1c6b1654d391dd87802a31"
    "c1edb4259efead2f53f3139ea1dd1d735cda7bb385803eb4c0e92cc43db5fffb362046d2"
)
BODY = b'{"action":"tenant.create","plan":"std"}'
PERSON = b'{"email":"op@example.org","ip":"192.0.2.7"}'

FIELDS = st.builds(
    Leaf,
    event_type=st.integers(0, 2**16 - 1),
    index=st.integers(0, 2**64 - 1),
    time_us=st.integers(0, 2**64 - 1),
    event_id=st.binary(min_size=16, max_size=16),
    tenant_ref=st.binary(min_size=16, max_size=16),
    actor_ref=st.binary(min_size=16, max_size=16),
    outcome=st.integers(0, 3),
    flags=st.integers(0, 31).map(lambda n: 2 * n),
    producer_id=st.integers(0, 2**16 - 1),
    producer_seq=st.integers(0, 2**64 - 1),
    body_hash=st.binary(min_size=32, max_size=32),
    pii_commit=st.just(bytes(32)),
)


def test_the_golden_leaf() -> None:
    found = parse_leaf(GOLDEN)
    assert found.event_type == 0x0101
    assert (found.index, found.producer_id, found.producer_seq, found.outcome) == (0, 1, 1, 1)
    assert found.flags == leaves.PII
    assert found.body_hash == leaves.body_hash(BODY)
    assert found.pii_commit == leaves.pii_commitment(b"\x33" * 32, PERSON)
    assert leaves.leaf(**asdict(found)) == GOLDEN
    assert leaf_hash(GOLDEN).hex() == "40f5ae4817fe7d9d8ecfde2880d5e66285ad5dabe2057207d58da9e2c878e395"
    assert leaf_hash(GOLDEN) == hashlib.sha256(b"\0" + GOLDEN).digest()


@given(FIELDS)
def test_what_is_written_is_read(found: Leaf) -> None:
    data = leaves.leaf(**asdict(found))
    assert len(data) == LEAF_BYTES
    assert parse_leaf(data) == found


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (0, 0, "leaf-magic"),
        (5, 2, "leaf-version"),
        (72, 4, "leaf-outcome"),
        (73, 0, "leaf-flags"),
        (73, 65, "leaf-flags"),
    ],
)
def test_what_no_leaf_says_is_refused(at: int, value: int, code: str) -> None:
    data = bytearray(GOLDEN)
    data[at] = value
    with pytest.raises(LeafError) as caught:
        parse_leaf(bytes(data))
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b"", GOLDEN[:-1], GOLDEN + b"\0"])
def test_a_leaf_has_its_length(data: bytes) -> None:
    with pytest.raises(LeafError, match="leaf-length"):
        parse_leaf(data)


@pytest.mark.parametrize(
    "change",
    [{"event_id": b"x"}, {"body_hash": b""}, {"outcome": 4}, {"index": -1}, {"event_type": 2**16}, {"flags": 256}],
)
def test_what_the_layout_cannot_hold_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(LeafError):
        leaves.leaf(**(asdict(parse_leaf(GOLDEN)) | change))
