"""What the signer answers, asked directly."""

import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from audit.keyfiles import key_file
from audit.signer.app import Signer
from kvcore.messages import PROTOCOL, EnrolmentQuestion, enrolment_bytes, fingerprint, signed_bytes


@pytest.fixture
def signer(tmp_path):
    return Signer(key_file(tmp_path / "k", make=True), "t" * 40, clock=lambda: 1000.0)


def order(**fields):
    return json.dumps({
        "v": PROTOCOL, "step": "s", "kind": "ping", "node": "n", "order_hash": "00", "issued_at": 1000.0,
        "expires_at": 1060.0, **fields,
    }).encode()  # fmt: skip


@pytest.mark.parametrize("kind", ["inventory", "digest", "ping"])
def test_harmless_orders_are_signed(signer, kind):
    status, envelope = signer.sign(order(kind=kind))
    assert status == 200
    key = Ed25519PublicKey.from_public_bytes(signer.public)
    key.verify(bytes.fromhex(envelope.signature), signed_bytes("command", envelope.body))
    assert envelope.key == fingerprint(signer.public)
    assert envelope.body["kind"] == kind


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        *[
            (order(kind=k), 403, "kind-not-allowed")
            for k in ("purge", "erase", "verify", "migrate", "", "PING", "ping ")
        ],
        (order(expires_at=999.0), 403, "command-expired"),
        (order(expires_at=5000.0), 403, "command-expired"),
        (order(issued_at=2000.0, expires_at=1500.0), 403, "command-expired"),
        (order(v=2), 400, "version-unsupported"),
        (b"", 400, "command-malformed"),
        (b"{", 400, "command-malformed"),
        (order(args={"n": 2**60}), 400, "command-malformed"),
        (order()[:-1] + b',"args":{"x":' + b"[" * 30000 + b"]" * 30000 + b"}}", 400, "command-malformed"),
        (b"[]", 400, "command-malformed"),
        (order(kind=1), 400, "command-malformed"),
    ],
)
def test_nothing_else_is(signer, raw, status, code):
    assert signer.sign(raw) == (status, {"code": code})


QUESTION = {"console": "console.example", "nonce": "0a" * 32, "public_key": "0b" * 32, "node": "n1"}


def test_a_nodes_question_is_answered_in_a_domain_of_its_own(signer):
    status, answer = signer.prove(json.dumps(QUESTION).encode())
    assert (status, answer["public_key"]) == (200, signer.public.hex())
    key, signature = Ed25519PublicKey.from_public_bytes(signer.public), bytes.fromhex(answer["signature"])
    key.verify(signature, enrolment_bytes(EnrolmentQuestion(**QUESTION)))
    for other in ("command", "receipt"):
        with pytest.raises(InvalidSignature):
            key.verify(signature, signed_bytes(other, QUESTION))


@pytest.mark.parametrize(
    "change",
    [{"nonce": "0a"}, {"nonce": "0A" * 32}, {"public_key": ""}, {"node": ""}, {"node": "x" * 64}, {"console": ""},
     {"kind": "purge"}, {"node": 1}],
)  # fmt: skip
def test_no_other_question_is(signer, change):
    assert signer.prove(json.dumps(QUESTION | change).encode()) == (400, {"code": "question-malformed"})
    assert signer.prove(b"{") == (400, {"code": "question-malformed"})
    assert signer.prove(order()) == (400, {"code": "question-malformed"})
