"""Signed commands, receipts, tickets: any flipped bit is found."""

import hashlib
import hmac
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import messages as m
from kvcore.messages import Command, Receipt, Signed, open_command, seal, ticket_issue, ticket_refusal

KEY, PUBLIC = b"k" * 32, b"p" * 32


def sign(message: bytes) -> bytes:
    return hmac.digest(KEY, message, "sha256")


def verify(signature: bytes, message: bytes) -> bool:
    return hmac.compare_digest(signature, sign(message))


def command(**change: Any) -> Command:
    base = Command(v=1, step="s", kind="ping", node="n", order_hash="00", issued_at=100.0, expires_at=130.0)
    return msgspec.structs.replace(base, **change)


def opened(envelope: Signed, **more: Any) -> Command | str:
    return open_command(envelope, verify, **{"node": "n", "now": 110.0, **more})


def test_a_command_is_opened_once_it_is_genuine_for_us_and_in_time() -> None:
    envelope = seal("command", command(), sign, PUBLIC)
    assert opened(envelope) == command()
    assert envelope.key == m.fingerprint(PUBLIC)
    assert opened(envelope, node="other") == "command-not-for-this-node"
    assert opened(envelope, now=131.0) == "command-expired"
    assert opened(envelope, now=60.0) == "command-expired"
    assert opened(seal("command", command(boot="b1"), sign, PUBLIC), boot="b1") == command(boot="b1")
    assert opened(seal("command", command(boot="b1"), sign, PUBLIC), boot="b2") == "fenced-boot"
    assert opened(seal("command", command(v=9), sign, PUBLIC)) == "version-unsupported"


def test_forged_commands() -> None:
    envelope = seal("command", command(), sign, PUBLIC)
    assert opened(msgspec.structs.replace(envelope, signature="00" * 32)) == "command-signature"
    assert opened(msgspec.structs.replace(envelope, signature="xyz")) == "command-malformed"
    assert opened(msgspec.structs.replace(envelope, body={"v": 1})) == "command-malformed"
    assert (
        opened(msgspec.structs.replace(envelope, body={**envelope.body, "args": {"n": 2**70}})) == "command-malformed"
    )
    receipt = seal("receipt", command(), sign, PUBLIC)  # the domain is part of what is signed
    assert opened(receipt) == "command-signature"


@given(st.sampled_from(["step", "kind", "node", "order_hash"]), st.text(min_size=1, max_size=5))
def test_any_change_of_the_body_is_found(field: str, value: str) -> None:
    envelope = seal("command", command(), sign, PUBLIC)
    if envelope.body[field] != value:
        changed = msgspec.structs.replace(envelope, body={**envelope.body, field: value})
        assert opened(changed) == "command-signature"


def test_receipts_form_a_chain() -> None:
    receipt = Receipt(v=1, step="s", kind="ping", node="n", outcome="done", at=1.0, prev="")
    link = m.receipt_hash(receipt)
    assert link == hashlib.sha256(m.signed_bytes("receipt", msgspec.to_builtins(receipt))).hexdigest()
    assert link != m.receipt_hash(msgspec.structs.replace(receipt, prev=link))
    assert m.canonical(receipt) == m.canonical(msgspec.to_builtins(receipt))


@pytest.mark.parametrize(
    ("change", "node", "now", "refusal"),
    [
        ({}, "n", 100.0, None),
        ({}, "other", 100.0, "ticket-invalid"),
        ({"node": "other"}, "other", 100.0, "ticket-invalid"),
        ({"gen": 2}, "n", 100.0, "ticket-invalid"),
        ({"ns": b"x" * 32}, "n", 100.0, "ticket-invalid"),
        ({"expires_at": 131.0}, "n", 100.0, "ticket-invalid"),
        ({"mac": b"x" * 32}, "n", 100.0, "ticket-invalid"),
        ({}, "n", 131.0, "ticket-expired"),
        ({}, "n", 60.0, "ticket-expired"),
    ],
)
def test_tickets(change: dict[str, Any], node: str, now: float, refusal: str | None) -> None:
    ticket = ticket_issue(KEY, node="n", ns=b"n" * 32, gen=1, expires_at=130.0)
    assert ticket_refusal(msgspec.structs.replace(ticket, **change), KEY, node=node, now=now) == refusal


def test_answers_leave_out_what_is_not_said() -> None:
    body = msgspec.msgpack.encode(m.Answer(state="next", committed_seq=4))
    assert msgspec.msgpack.decode(body) == {"state": "next", "committed_seq": 4}
    assert msgspec.msgpack.decode(body, type=m.Answer).fences_after == []
