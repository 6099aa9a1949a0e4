"""Decides what a ticket allows: one node, one namespace generation, and of a chain the blocks up to one key.

A ticket is a MAC under a key that the console and that node alone have, so the node judges it without asking anybody.
One with a scope belongs to one decision of a router: it says how much of the chain may be read from the cache, and
names by their keys the other nodes that take part. Issued by `catalog.services` and routers, judged by agents.
"""

import hmac
from typing import Literal

import msgspec

from kvcore.keys import KEY_BYTES, framed

SECONDS_MAX = 30.0
SKEW_SECONDS = 5.0
PEERS_MAX = 64


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another node of the same request. A `giver` may be fetched from, a `taker` may fetch; each proves itself by its
    key (Ed25519). `url` is where a giver answers."""

    node: str
    role: Literal["giver", "taker"]
    public_key: bytes
    url: str = ""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What of a chain may be read, for which decision: its first `blocks` blocks, which end with the key `upto`.

    A key stands for everything before it, so the range is one key. 0 blocks: nothing is read, all is computed.
    """

    decision: str
    blocks: int
    upto: bytes = b""
    peers: tuple[Peer, ...] = ()


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Leave to use one node for one namespace generation, for at most 30 s; without a scope for any of its blocks."""

    node: str
    ns: bytes
    gen: int
    expires_at: float
    mac: bytes
    scope: Scope | None = None


def ticket_mac(key: bytes, *, node: str, ns: bytes, gen: int, expires_at: float, scope: Scope | None = None) -> bytes:
    """MAC of a ticket under the node's ticket key of the day. With and without a scope the domains differ."""
    fields = [node.encode(), ns, str(gen).encode(), repr(expires_at).encode()]
    if scope is None:
        return hmac.digest(key, framed(b"kvconsole/ticket/v1", *fields), "sha256")
    fields += [scope.decision.encode(), str(scope.blocks).encode(), scope.upto]
    for peer in scope.peers:
        fields += [peer.node.encode(), peer.role.encode(), peer.public_key, peer.url.encode()]
    return hmac.digest(key, framed(b"kvconsole/ticket/v2", *fields), "sha256")


def ticket_issue(
    key: bytes, *, node: str, ns: bytes, gen: int, expires_at: float, scope: Scope | None = None
) -> Ticket:
    """A ticket for the node."""
    mac = ticket_mac(key, node=node, ns=ns, gen=gen, expires_at=expires_at, scope=scope)
    return Ticket(node=node, ns=ns, gen=gen, expires_at=expires_at, mac=mac, scope=scope)


def ticket_refusal(ticket: Ticket, key: bytes, *, node: str, now: float) -> str | None:
    """None if the ticket is good for this node now, else why not."""
    mac = ticket_mac(
        key, node=ticket.node, ns=ticket.ns, gen=ticket.gen, expires_at=ticket.expires_at, scope=ticket.scope
    )
    if not hmac.compare_digest(mac, ticket.mac) or ticket.node != node:
        return "ticket-invalid"
    if now > ticket.expires_at or ticket.expires_at > now + SECONDS_MAX + SKEW_SECONDS:
        return "ticket-expired"
    return None


def readable_blocks(scope: Scope, chain: bytes) -> int | None:
    """How many leading blocks of the chain (packed keys) the scope lets be read; None if it is of another chain."""
    if scope.blocks == 0:
        return 0
    start = (scope.blocks - 1) * KEY_BYTES
    if not 0 < scope.blocks <= len(chain) // KEY_BYTES or len(scope.peers) > PEERS_MAX:
        return None
    return scope.blocks if hmac.compare_digest(chain[start : start + KEY_BYTES], scope.upto) else None


def peer_of(scope: Scope, node: str, role: str) -> Peer | None:
    """The named node in that role, None if the ticket does not name it."""
    return next((p for p in scope.peers if p.node == node and p.role == role), None)
