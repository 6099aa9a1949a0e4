"""Decides what may be asked of the signer, and in which form: client and process share these shapes.

What comes in is JSON in which no name is given twice, so that two readers never see two meanings.
"""

import json
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import rfc8785

MOST_SIZE = 2**63 - 1
MOST_PROOF = 63
"""Hashes of one proof; a tree of 2^63 leaves needs no more."""
MOST_EVENT = 96 * 1024
"""Characters of an event's body: an order that names 2,000 nodes."""
MOST_COMMANDS = 256
"""Signed in one answer."""

Hash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Ref = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
"""Under which name an actor stands in the log."""
Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_SIZE)]
Proof = Annotated[list[Hash], msgspec.Meta(max_length=MOST_PROOF)]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event of the log: its leaf (hex), where it stands, what proves that, and its body as it is stored."""

    leaf: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{296}\Z")]
    index: Size
    proof: Proof
    body: Annotated[str, msgspec.Meta(max_length=MOST_EVENT)]


class HeadAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log grew from `old_size` leaves, which were signed, to `new_size`; `proof` shows that it only grew.

    `first`: the first leaf, which says how this log goes on after another one; wanted with its first head alone.
    """

    old_size: Size
    new_size: Size
    new_root: Hash
    proof: Proof = []
    first: Evidence | None = None


class SignAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command, and for one that destroys the order it follows and the approval of that.

    `size`: the tree under which the proofs were made; they hold only under the signer's latest head.
    """

    command: dict[str, Any]
    order: Evidence | None = None
    approval: Evidence | None = None
    size: Size | None = None


class SignAllAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands of one order; what proves it goes with them once. As `SignAsked` for each of them."""

    commands: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_COMMANDS)]
    order: Evidence | None = None
    approval: Evidence | None = None
    size: Size | None = None


class ExportAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle was made whose manifest has this SHA-256; `origin`: of an earlier epoch of this log."""

    manifest_sha256: Hash
    origin: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first leaves of a log that are still there, as its own key signed them; no note where there are none."""

    size: Size
    root: Hash
    note: Annotated[str, msgspec.Meta(max_length=8192)] = ""


class EpochOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two people agreed that a log ends and goes on under another key; brought to the signer by hand, in a file."""

    v: Literal[1]
    origin: str
    reason: Literal["restore", "key-stolen", "key-replaced"]
    approval: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f-]{36}\Z")]
    approvers: tuple[Ref, Ref]
    kept: Kept


def strict(raw: bytes) -> Any:
    """What the JSON says.

    Raises:
        ValueError: it is none, gives a name twice, or is nested too deeply.
    """
    try:
        return json.loads(raw.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def canonical(raw: bytes) -> dict[str, Any]:
    """The object whose RFC 8785 form these bytes are.

    Raises:
        ValueError: they are not the one way to write it.
    """
    found = strict(raw)
    try:
        if isinstance(found, dict) and rfc8785.dumps(found) == raw:
            return found
    except RecursionError:
        pass
    raise ValueError("not the canonical form of an object")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")
