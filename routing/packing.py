"""Decides how what a decision was made from is packed, and whether scoring it again gives the same answer.

Nothing of a prompt is in it: no token ids, no keys, no salts. Called by `recorder` (pack) and `selectors` (again).
"""

import zlib
from collections.abc import Mapping

import msgspec

from kvcore.cards import NOTHING_LEARNED, Ask, Candidate, Choice, Edge, Held, Learned
from kvcore.policies import Policy
from kvcore.scoring import score

FORM = 1
LEVEL = 1
BYTES_MOST = 4 * 2**20
"""What a packed decision may unpack to."""


class Inputs(msgspec.Struct, frozen=True, array_like=True):
    """Everything that the scorer was given, and what it answered (None: nobody was asked, or it was a refusal)."""

    form: int
    ask: Ask
    candidates: tuple[Candidate, ...]
    held: tuple[Held, ...]
    edges: Mapping[str, Mapping[str, Edge]]
    policy: Policy
    learned: Learned = NOTHING_LEARNED
    choice: Choice | None = None


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Inputs)


def pack(inputs: Inputs) -> bytes:
    """The inputs as they are kept."""
    return zlib.compress(_encode(inputs), LEVEL)


def unpack(blob: bytes) -> Inputs | None:
    """The inputs; None: of a form that this version cannot read, or damaged."""
    try:
        inflate = zlib.decompressobj()
        found = _decoder.decode(inflate.decompress(blob, BYTES_MOST))
    except (zlib.error, msgspec.DecodeError, msgspec.ValidationError):
        return None
    return found if found.form == FORM else None


def again(inputs: Inputs, policy: Policy | None = None) -> Choice:
    """What the scorer says to the same inputs, by the same policy or another one."""
    return score(inputs.ask, inputs.candidates, inputs.held, inputs.edges, policy or inputs.policy, inputs.learned)
