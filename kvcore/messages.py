"""Decides the messages between console and node besides events: inventory, digest, heartbeat, command, receipt, ticket.

Both sides build and check them here, so there is one form. Signing and verifying come in as callables: this module
knows which bytes are signed, not how. Sources: RFC 8785 (canonical JSON), `docs/protocol.md`.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import rfc8785

from kvcore.receipts import (
    CertificateBody as CertificateBody,
)
from kvcore.receipts import (
    ErasedDetail as ErasedDetail,
)
from kvcore.receipts import (
    ShreddedDetail as ShreddedDetail,
)
from kvcore.receipts import (
    VerifiedDetail as VerifiedDetail,
)
from kvcore.tickets import (
    Ticket as Ticket,
)
from kvcore.tickets import (
    ticket_issue as ticket_issue,
)
from kvcore.tickets import (
    ticket_mac as ticket_mac,
)
from kvcore.tickets import (
    ticket_refusal as ticket_refusal,
)

PROTOCOL = 1
Sign = Callable[[bytes], bytes]
Verify = Callable[[bytes, bytes], bool]
"""(signature, message) -> whether it is good."""


class InventoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of everything a source holds, exact as of `seq` of `stream`: frames up to it are contained in it.

    `items` are `add` and `adds` only. The writer replaces what it believes when the page marked `last` has come,
    in one commit; the next frame is `seq + 1`. `gap`: reason of a loss between an engine that cannot list and its
    agent; what is listed is then all that the agent knows, and the source is not exact.
    """

    v: int
    node: str
    source: str
    boot: str
    stream: str
    seq: int
    inventory: str
    page: int
    last: bool
    ts: float
    items: list[msgspec.Raw]
    dp_rank: int | None = 0
    shard: int = 0
    fence_seq: int = 0
    allowances: int = 0
    gap: str = ""


class DigestLine(msgspec.Struct, frozen=True, array_like=True):
    """What a source says it holds of one (namespace, generation, group, tier): count and sums of `keys.digest_add`."""

    ns: bytes
    gen: int
    group: int
    tier: str
    blocks: int
    lo: int
    hi: int


class DigestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of a source as of `seq`: equal ones verify it without paging the inventory. All lines, always.

    `gap` as in an inventory.
    """

    v: int
    node: str
    source: str
    boot: str
    stream: str
    seq: int
    ts: float
    lines: list[DigestLine]
    dp_rank: int | None = 0
    shard: int = 0
    fence_seq: int = 0
    allowances: int = 0
    gap: str = ""


class SourcePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a source's outbox stands: `seq` is the last frame it numbered, -1 before the first."""

    source: str
    dp_rank: int
    boot: str
    stream: str
    seq: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Sent twice a second where no frame was."""

    sources: list[SourcePosition]
    fence_seq: int = 0
    allowances: int = 0
    refused: list[dict[str, Any]] = []
    """What the agent has not taken: {ns, tier, reason, count}."""
    life: str = ""
    refused_seq: int = 0
    """Number of the batch in `refused` within a life of the agent; one that comes again is the same and counts once."""
    ranks: dict[str, int] = {}
    """Source → how many data-parallel ranks speak for it. Where the node said nothing of it, there is only rank 0."""
    load: list[Any] = []
    """Reports as `kvcore.loads.WorkerLoad`; each is judged alone."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """What carries a generation below `min_gen` in `ns` is never routable again."""

    ns: bytes
    min_gen: int


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a frame was refused; its neighbours were applied."""

    index: int
    code: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The console's answer to frames, inventory pages, digests and heartbeats. It comes after the commit.

    `state`: next | duplicate | gap | reset for frames (the frame at `expect_seq` is wanted next; on gap the agent
    rewinds, or sends an inventory where its outbox no longer has it or `inventory` is true);
    page | applied | stale for inventories; equal | differs | stale for digests; ok for heartbeats.
    """

    state: str
    committed_seq: int = -1
    expect_seq: int = 0
    fence_seq: int = 0
    fences_after: list[Fence] = []
    allowances: dict[str, Any] = {}
    rejected: list[Rejected] = []
    inventory: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """An order to one node, signed by the command key. `step` makes it idempotent: same step, same receipt."""

    v: int
    step: str
    kind: str  # inventory | digest | ping | fence | verify | probe; others destroy: signed only for an order in the log
    node: str
    order_hash: str  # hex `leaf.body_hash` of the order's event
    issued_at: float
    expires_at: float
    boot: str | None = None
    args: dict[str, Any] = {}


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a node did for a command. `prev` is the hash of its previous receipt: per node they form a chain."""

    v: int
    step: str
    kind: str
    node: str
    outcome: str  # done | refused | failed | partial (leased blocks are left: code `blocks-leased`)
    at: float
    prev: str
    positions: list[SourcePosition] = []
    code: str = ""
    detail: dict[str, Any] = {}


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A command or receipt with its Ed25519 signature (hex) over `signed_bytes`."""

    body: dict[str, Any]
    signature: str
    key: str  # fingerprint of the signing key


class Sent(Signed, frozen=True, kw_only=True):
    """A command as it is sent: `keys` are those that its targets name by their hashes, so the signature covers them."""

    keys: dict[str, bytes] = {}


def canonical(value: msgspec.Struct | dict[str, Any]) -> bytes:
    """RFC 8785 bytes of a message; integers above 2^53 must already be strings."""
    return rfc8785.dumps(msgspec.to_builtins(value))


def signed_bytes(kind: str, body: dict[str, Any]) -> bytes:
    """The bytes a signature covers: the domain (`command`, `receipt` or `enrolment`), then the canonical body."""
    return f"kvconsole/{kind}/v1\n".encode() + canonical(body)


def fingerprint(public_key: bytes) -> str:
    """32 hex digits by which a public key is named."""
    return hashlib.sha256(public_key).hexdigest()[:32]


def seal(kind: str, message: Command | Receipt, sign: Sign, public_key: bytes) -> Signed:
    """The message in its signed envelope."""
    body = msgspec.to_builtins(message)
    return Signed(body=body, signature=sign(signed_bytes(kind, body)).hex(), key=fingerprint(public_key))


def open_command(envelope: Signed, verify: Verify, *, node: str, now: float, boot: str | None = None) -> Command | str:
    """The command if it is genuine, for this node and not over; else the code of the refusal. Nothing was done."""
    try:
        good = verify(bytes.fromhex(envelope.signature), signed_bytes("command", envelope.body))
        command = msgspec.convert(envelope.body, Command)
    except (ValueError, msgspec.ValidationError, rfc8785.CanonicalizationError, RecursionError):
        return "command-malformed"
    if not good:
        return "command-signature"
    if command.v != PROTOCOL:
        return "version-unsupported"
    if command.node != node:
        return "command-not-for-this-node"
    if now > command.expires_at or command.issued_at > now + 30:
        return "command-expired"
    if command.boot is not None and command.boot != boot:
        return "fenced-boot"
    return command


def receipt_hash(receipt: Receipt) -> str:
    """The link in a node's chain of receipts."""
    return hashlib.sha256(signed_bytes("receipt", msgspec.to_builtins(receipt))).hexdigest()


class EnrolmentQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node asks the console to sign before it sends its token: only who has the command key can answer.

    `console` is the host that the node dialled, so that an answer cannot be passed on from another address.
    """

    console: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    nonce: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    public_key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


def enrolment_bytes(question: EnrolmentQuestion) -> bytes:
    """The bytes that the answer's signature covers, in a domain of their own: never those of a command."""
    return signed_bytes("enrolment", msgspec.to_builtins(question))


ENROLMENT_TOKEN = "kvc_enrol_<id>_<secret><crc>.<fingerprint>"  # noqa: S105 - a shape, not a token
"""Shape of an enrolment token: what follows the dot is the `fingerprint` of the console's command key."""
