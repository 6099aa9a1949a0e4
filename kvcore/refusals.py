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
