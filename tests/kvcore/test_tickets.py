"""A ticket is good for one node, one generation, one range of one chain, for a while; whatever is changed voids it."""

import secrets

import msgspec
import pytest

from kvcore.tickets import (
    Peer,
    Scope,
    Ticket,
    peer_of,
    readable_blocks,
    ticket_issue,
    ticket_refusal,
)

KEY, NS, NOW = secrets.token_bytes(32), secrets.token_bytes(32), 1_800_000_000.0
CHAIN = secrets.token_bytes(32 * 10)
PEER = Peer(node="n2", role="giver", public_key=bytes(32), url="http://127.0.0.1:1")
SCOPE = Scope(decision="d", blocks=6, upto=CHAIN[5 * 32 : 6 * 32], peers=(PEER,))


def issue(**more) -> Ticket:
    return ticket_issue(KEY, **({"node": "n1", "ns": NS, "gen": 3, "expires_at": NOW + 30, "scope": SCOPE} | more))


def refusal(ticket: Ticket, **more):
    return ticket_refusal(ticket, **({"key": KEY, "node": "n1", "now": NOW} | more))


def test_a_good_ticket_is_good_in_both_forms_and_packs():
    for ticket in (issue(), issue(scope=None)):
        assert refusal(ticket) is None
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(ticket), type=Ticket) == ticket
        assert msgspec.json.decode(msgspec.json.encode(ticket), type=Ticket) == ticket


@pytest.mark.parametrize(
    "change",
    [
        {"node": "n2"}, {"ns": bytes(32)}, {"gen": 4}, {"expires_at": NOW + 29}, {"mac": bytes(32)}, {"scope": None},
        {"scope": msgspec.structs.replace(SCOPE, blocks=7)}, {"scope": msgspec.structs.replace(SCOPE, upto=bytes(32))},
        {"scope": msgspec.structs.replace(SCOPE, decision="e")}, {"scope": msgspec.structs.replace(SCOPE, peers=())},
        {"scope": msgspec.structs.replace(SCOPE, peers=(msgspec.structs.replace(PEER, role="taker"),))},
        {"scope": msgspec.structs.replace(SCOPE, peers=(msgspec.structs.replace(PEER, public_key=bytes(31) + b"1"),))},
        {"scope": msgspec.structs.replace(SCOPE, peers=(msgspec.structs.replace(PEER, url="http://x"),))},
    ],
)  # fmt: skip
def test_what_was_changed_is_invalid(change):
    assert refusal(msgspec.structs.replace(issue(), **change)) == "ticket-invalid"


def test_another_key_another_node_another_time():
    assert refusal(issue(), key=bytes(32)) == "ticket-invalid"
    assert refusal(issue(), node="n2") == "ticket-invalid"
    assert refusal(issue(), now=NOW + 31) == "ticket-expired"
    assert refusal(issue(expires_at=NOW + 3600)) == "ticket-expired"


def test_the_range_is_the_chain_up_to_one_key():
    assert readable_blocks(SCOPE, CHAIN) == 6
    assert readable_blocks(SCOPE, CHAIN[: 6 * 32]) == 6
    assert readable_blocks(Scope(decision="d", blocks=0), CHAIN) == 0
    assert readable_blocks(SCOPE, secrets.token_bytes(320)) is None
    assert readable_blocks(SCOPE, CHAIN[: 5 * 32]) is None
    assert readable_blocks(Scope(decision="d", blocks=-1, upto=CHAIN[-32:]), CHAIN) is None
    assert readable_blocks(Scope(decision="d", blocks=6), CHAIN) is None


def test_peers_are_named_by_role():
    assert peer_of(SCOPE, "n2", "giver") == PEER
    assert peer_of(SCOPE, "n2", "taker") is None
    assert peer_of(SCOPE, "n3", "giver") is None
