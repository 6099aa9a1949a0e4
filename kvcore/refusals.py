"""Decides by which code a refusal is known: of a frame, an item, or an engine's event.

The codes are stable; each has a page under `docs/problems/` that says what was not done.
"""


class Refused(Exception):
    """A frame or item is malformed. Nothing of it was applied; `code` is stable and documented.

    `detail` may quote what came in: what cannot be printed is replaced, so that it can be stored and shown.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        if not detail.isprintable():
            detail = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in detail)
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code, self.detail = code, detail


REFUSALS = {
    "malformed-frame": "the body is not a frame of this contract",
    "truncated-frame": "the msgpack ends before the frame does",
    "frame-too-large": "more than 8 MiB, or more items or keys than allowed",
    "version-unsupported": "the frame's v is not one this console speaks",
    "foreign-token": "no token, or one of another node",
    "foreign-owner": "the item names an owner of another node",
    "fenced-boot": "this boot was replaced by a newer one",
    "seq-backwards": "the stream's seq went backwards without a new boot",
    "missing-dp-rank": "the source has several ranks and the frame names none",
    "wrong-dp-rank": "the frame names a rank that the source does not have",
    "unknown-item": "an item kind this console does not know",
    "wrong-type": "a field is missing, has another type, or a value outside its set",
    "nesting": "an item is nested deeper than the contract allows",
    "negative-size": "a size, count or time is negative, not finite, or beyond all reason",
    "used-over-capacity": "a tier reports more bytes used than it has",
    "bad-keys": "keys or parents are not whole 32-byte keys, or their numbers differ",
    "too-many-keys": "more keys than one item may carry",
    "duplicate-key": "a chain names the same key twice",
    "parent-cycle": "a key is its own ancestor within the item",
    "block-size-mismatch": "tokens or bytes of a block disagree with the registration",
    "unknown-medium": "an engine names a medium that is no tier this agent knows",
    "hashes-over-tokens": "more block hashes than the tokens can fill",
}
"""Every code and what it means; each is counted per source and shown on the node's page."""

AGENT = {
    "lease-over": "the node has no keys of this namespace generation now",
    "ticket-invalid": "the ticket was not made for this node, or under a key that is not its key of today",
    "ticket-expired": "the ticket is older than 30 seconds, or the clocks of node and console differ",
    "ticket-scope": "the ticket is for another namespace or generation than the requests",
    "request-malformed": "the body is not a batch of requests, or a request is not as it must be",
    "request-too-large": "the body is over 8 MiB, or has more than 1,024 requests",
    "block-size-mismatch": "blocks of this model have another size than the node's",
    "queue-full": "the node is reading more bodies than it has memory for, or has too many steps under way",
    "data-class": "blocks of this data class may not be on the node",
    "residency": "the tenant's blocks may not leave its region, and the node is in another one",
    "protection": "the node's tiers do not protect blocks as the tenant asks",
    "isolation": "the tenant uses nodes of its own, and this is none of them; or the node is another tenant's own",
    "no-room": "the node cannot promise room for the blocks that would come from another node",
    "session-fenced": "the session has moved to another node, and the turn does not know of it",
    "quota": "the tenant's quota leaves nothing on the node",
    "command-malformed": "the command cannot be read",
    "command-signature": "the command is not signed by the console that the node joined",
    "command-not-for-this-node": "the command is for another node",
    "command-expired": "the command is over, or was made by a clock that is ahead",
    "kind-unknown": "the agent does not know this kind of command",
    "agent-error": "the agent began the command and could not end it",
    "journal-full": "the agent's journal cannot be written, so the command was not begun or its receipt waits",
    "args-malformed": "the command's arguments are not as its kind needs them",
    "targets-unproven": "what the command reaches is not proved to be of an order",
    "keys-missing": "keys that the command's targets name did not come with it, or are others",
    "owner-unknown": "the node has no such tier, or another source speaks for it",
    "blocks-leased": "blocks that are in use are left, until nobody reads them or force breaks in",
    "tier-down": "the tier's medium did not answer",
    "medium-out-of-reach": "the node cannot see that medium of the other node",
    "readback-unclean": "what was read back after the erase is not clean",
    "version-unsupported": "the command is of another version of the protocol",
    "fenced-boot": "the command is for an earlier life of the agent",
    "not-authenticated": "the token of drive.token is needed",
    "not-found": "the agent has no such address",
    "method-not-allowed": "the agent has this address for another method",
}
"""Every code an agent answers requests and commands with, and what it means. Each has a page, too."""

MOVES = {
    "offer-unknown": "the node offers nothing under this step, or no longer",
    "transfer-signature": "who asks is not the destination that the order names, or who answers not the source",
    "transfer-session": "a message of a transfer was changed, or was said before",
    "transfer-malformed": "the message of a transfer cannot be read",
    "target-full": "the tier has no room for the blocks without others leaving",
    "source-unreachable": "the source did not answer for so long that the step ended",
    "too-many-left": "more runs were left than a receipt can name",
    "tenant-mismatch": "the node knows another owner of the namespace than the order says",
    "not-ordered": "the order does not mean these blocks",
    "too-large": "one run is larger than all that may be in flight to the node",
    "gone": "the blocks left the source before they were fetched",
    "moving": "what is there already is on its way to another node",
}
"""Every code an agent answers a move with, besides those above, and what it means. Each has a page, too."""
