"""Decides what is said on the road of a request whose prefill and decode may be on different nodes.

Whoever carries the request calls the node that decodes (`serve`), that one calls the node that computes (`prefill`),
and blocks are fetched from whoever gives them (`gifts`). Answers are lines of JSON, one an event, as it happens.
"""

from typing import Any

import msgspec

from kvcore.tickets import Ticket
from nodeagent.engines.base import Request

SERVE, PREFILL, GIFTS, SESSIONS = "/v1/serve", "/v1/prefills", "/v1/gifts", "/v1/sessions"
ALIVE_SECONDS = 0.2
"""A node that computes says at least so often that it still does."""
LOST_SECONDS = 0.9
"""One that said nothing for so long is lost: the other side is told within a second."""
TERMS = ("queue_p", "cache_load", "prefill", "transfer", "queue_d", "first_decode")
"""What a request waits for on nodes, in order; the seventh, `router`, is before them and is its caller's to measure."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a plan: blocks from `from_block` up to `to_block`, and whence they come (local, remote, compute)."""

    from_block: int
    to_block: int
    source: str
    node: str = ""
    tier: str = ""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `serve` and `prefill`. `ticket` is the called node's, with a scope; `tickets` are for others.

    `prefill`: the node that computes, "" = the called one. `floor`: blocks that the session has written so far.
    """

    ticket: Ticket
    request: Request
    prefill: str = ""
    plan: list[Range] = []
    tickets: list[Ticket] = []
    floor: int = 0
    version: int = 0
    """How often the session has moved between nodes, as far as the caller was told."""


class SessionMove(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `sessions`: the session leaves this node, as its move number `version`."""

    ticket: Ticket
    session: str
    version: int


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of an answer. `at`: arrived, admitted, loaded, published, computed, finished, committed, turn, first,
    done, fell-back, alive, refused. `ms` counts from the arrival, by the clock of who says it."""

    at: str
    ms: float = 0.0
    blocks: int = 0
    code: str = ""
    outcome: dict[str, Any] | None = None


class Refused(Exception):
    """The request is not carried out here. `code` says why; nothing of it is held."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


encode = msgspec.json.Encoder().encode
order_of = msgspec.msgpack.Decoder(Order).decode
event_of = msgspec.json.Decoder(Event).decode
