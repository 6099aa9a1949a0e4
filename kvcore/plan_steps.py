"""Decides which steps an operation wants next: from what is intended and what was observed, and nothing else.

`steps` asks for what is missing, so planning after the plan's result asks for nothing. A step's id follows from the
operation, its generation, the kind, the owner, its boot and the attempt: whoever plans it, the agent does it once.
Order: fence → (grace) → erase on every owner → verify on every owner → purge by the console's own source → shred.
Called by the console's engine, which dispatches, and by `kvcore.plan_state`, which says where an operation stands.
"""

import hashlib
from typing import Any
from uuid import UUID

import msgspec
import rfc8785

from kvcore.plans import Target

KEPT_TIERS = frozenset({"ssd", "remote"})
"""Tiers whose objects lie encrypted under keys of the agent's key file."""
LOCAL = frozenset({"purge", "keys"})
"""Steps that the console does itself: the writer purges, the key store destroys."""
DESTROYS = frozenset({"erase", "shred"})
"""Steps that are signed only for the order in the log."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation of a kind does. All are the same engine."""

    name: str
    fences: bool  # generations are fenced before anything else
    keys: bool  # the generations' keys are destroyed in the end
    finalizers: tuple[str, ...]


FINALIZERS = ("catalog", "routing", "keys")
KINDS: dict[str, Kind] = {
    "deletion": Kind(name="deletion", fences=True, keys=True, finalizers=FINALIZERS),
    "epoch": Kind(name="epoch", fences=True, keys=True, finalizers=FINALIZERS),
    "quota_trim": Kind(name="quota_trim", fences=False, keys=False, finalizers=("catalog",)),
}


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `generation` grows with every change of it. Times are in seconds since 1970.

    `finer`: keys of a namespace go, and the namespace lives on (no fence of a generation, no key is destroyed).
    `deadline`: until then leased blocks are waited for; then they are broken. `method` key_destroy: keys first.
    """

    operation: str
    kind: str
    generation: int
    targets: tuple[Target, ...]
    approved: bool = True
    denied: bool = False
    expired: bool = False
    paused: bool = False
    held: bool = False
    stopped: bool = False
    finer: bool = False
    crypto_erase: bool = False
    grace_until: float = 0.0
    deadline: float = 0.0
    rate_bytes_per_s: int | None = None


class StepSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A step as its row says. `ended`: a receipt was accepted; `outcome` is the receipt's.

    `boot` and `seq` are the receipt's position, `found` the blocks a verify found, `left` those an erase left.
    `accepted_class` and `flags` as graded; `bad`: its receipt contradicts what else was seen.
    """

    step: str
    kind: str
    owner: int
    boot: str
    attempt: int = 0
    outcome: str = ""  # done | refused | failed | partial; "" = not ended
    at: float = 0.0
    position_boot: str = ""
    position_stream: str = ""
    position_seq: int = -1
    found: int = 0
    left: int = 0
    leased_until: float | None = None
    blocks: int = 0
    bytes: int = 0
    bad: bool = False


class OwnerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An owner as the directory sees it now. `blocks` and `bytes` of the targets are believed there."""

    owner: int
    node: str
    source: str
    tier: str
    dp_rank: int | None = 0
    boot: str = ""
    stream: str = ""
    seq: int = -1
    reachable: bool = True
    fenced: bool = False  # the node acknowledged the fences of this operation
    gap: bool = False
    retired: bool = False  # the owner is gone with its node's leaving: nothing can be asked of it
    blocks: int = 0
    bytes: int = 0
    total_bytes: int = 0  # when the operation began
    last_heard: float = 0.0


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when it is planned. `owners` are all, also where nothing is believed to be."""

    now: float
    owners: tuple[OwnerSeen, ...]
    steps: tuple[StepSeen, ...] = ()
    fenced_at: float | None = None
    order_logged: bool = False  # the order is under a signed checkpoint
    routers_waiting: int = 0
    gateways_waiting: int = 0
    lease_ends_at: float | None = None  # of the last key lease of the targets, None = none is out
    keys_destroyed: bool = False
    requested_at: float | None = None
    concluded_at: float | None = None


class StepWish(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is wanted. `args` are those of the command; `not_before` holds a repetition back."""

    step: str
    kind: str
    node: str
    source: str
    dp_rank: int | None
    tier: str
    owner: int
    boot: str
    attempt: int
    args: dict[str, Any]
    not_before: float = 0.0


def step_id(operation: str, generation: int, kind: str, owner: int, boot: str, attempt: int = 0) -> UUID:
    """The id (UUIDv8) of a step, the same whoever plans it."""
    named = {"attempt": attempt, "boot": boot, "generation": generation, "kind": kind, "operation": operation}
    found = hashlib.sha256(b"kvconsole/step/v1\n" + rfc8785.dumps({**named, "owner": owner})).digest()
    number = int.from_bytes(found[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    return UUID(int=number & ~(0x3 << 62) | 2 << 62)


def steps(intent: Intent, observed: Observed) -> list[StepWish]:
    """The steps that are wanted now and have not ended, in the order of their owners."""
    raise NotImplementedError
