"""Decides what receipts of erasing say, what a certificate says, and what a command to erase names.

Agents make the details, the console makes certificates of them (`kvcore.certificates`), and `kvc-verify certificate`
reads both without either. All of it is canonical JSON: integers above 2^53 travel as strings.
"""

from typing import Any

import msgspec

from kvcore.erasure import CopyEvidence


class EraseTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes: every generation below `gen_upto` of a namespace (hex digest); of it one group, or these keys (hex).

    `gen_upto` is a decimal string, as it reaches 2^63. Keys are of 32 bytes, or the first 16 of them; where they are
    many they travel beside the command, and `attached` is their hash (`kvcore.targets`), `count` their number. `below`:
    and everything of the namespace that continues what they name.
    """

    ns: str
    gen_upto: str
    group: int | None = None
    keys: list[str] | None = None
    attached: str | None = None
    count: int = 0
    below: bool = False


class TargetsPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the targets of a command stand among the `count` of its order, and what makes the order's root of them."""

    first: int
    length: int
    count: int
    left: list[str] = []
    right: list[str] = []


class EraseArgs(msgspec.Struct, frozen=True, kw_only=True):
    """`Command.args` of erase, verify and shred. The fence of the targets is in force before anything is erased.

    `generation` is that of the intent; `deadline` is in seconds since 1970: from then on `force` may break leases.
    `fencing`: generations that are meant as a whole are over for good, and the node raises its fence to them itself.
    `targets` are a `part` of the order's, whose root is `targets_root`; the agent puts the parts together. `keys` are
    those that came beside them, by their hashes.
    """

    operation: str
    generation: int
    source: str
    dp_rank: int | None
    tier: str
    owner: int
    targets: list[EraseTarget]
    force: bool = False
    deadline: float = 0.0
    rate_bytes_per_s: int | None = None
    fencing: bool = False
    targets_root: str = ""
    part: TargetsPart | None = None
    keys: dict[str, bytes] = {}


class StreamPos(msgspec.Struct, frozen=True, kw_only=True):
    """The last position of a source's stream, -1 before the first frame."""

    boot: str
    stream: str
    seq: int


class Readback(msgspec.Struct, frozen=True, kw_only=True):
    """How it was looked again, and what was seen: of `sampled` places `clean` held nothing of the targets."""

    method: str  # readback | list | probe | none
    sampled: int = 0
    clean: int = 0
    evidence: str = ""  # hex SHA-256 of what was read


class Medium(msgspec.Struct, frozen=True, kw_only=True):
    """What the tier is made of. `encrypted`: it never held anything of a block but ciphertext."""

    type: str  # memory | flash | disk | remote | unknown
    encrypted: bool = False
    emulated: bool = False


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that are left because somebody reads them, and when the last of their leases ends."""

    blocks: int = 0
    leased_until: float | None = None


class ErasedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `erase`; nothing found is a receipt too, with zeros.

    `objects_root`: of `erasure.objects_root` over the refs of what was found. `residual`: flags that only the node can
    know (ENGINE_CANNOT, FORCED, KEY_MEDIUM_UNSANITISED). Times in microseconds since 1970.
    """

    objects_root: str
    objects: int
    blocks: int
    bytes: int
    technique: str  # memset | unlink | key_destroy | delete | none
    readback: Readback
    medium: Medium
    class_claimed: int
    stream_pos: StreamPos
    started_us: int
    finished_us: int
    residual: list[str] = []
    remaining: Remaining = Remaining()
    targets_root: str = ""


class VerifiedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `verify`: listed and read anew, whatever the erasing remembers.

    `counters`: {used_bytes, blocks} of the whole owner, which must agree with its digests.
    """

    found_blocks: int
    found_bytes: int
    listed_at_us: int
    counters: dict[str, int]
    readback: Readback
    medium: Medium
    stream_pos: StreamPos
    targets_root: str = ""


class ProbedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `probe`: what a second node finds in a tier of another, or in its raw medium."""

    node: str
    source: str
    tier: str
    method: str  # probe | scan
    asked: int
    found: int
    evidence: str
    at_us: int


class ShreddedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `shred`: the targets' values in the key file are gone, and so is the lease of their key."""

    objects: int
    key_medium: str  # flash | memory | tpm | unknown
    lease_dropped: bool
    flags: list[str] = []
    targets_root: str = ""


class CertificateReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt that counts for a copy: with the certificate's operation and generation, and the owner, its step.

    The id of the step follows from them (`plan_steps.step_id`), so no receipt of another order can stand here.
    """

    kind: str
    boot: str
    attempt: int
    hash: str  # of the receipt, hex


class CertificateCopy(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One owner in a certificate: what was seen of it (`evidence`), and the class and flags that follow from it.

    `absent`: the directory never believed anything to be there, and nothing was found; it does not count for the class.
    """

    node: str
    source: str
    dp_rank: int | None
    tier: str
    owner: int
    cls: int
    flags: list[str]
    receipts: list[CertificateReceipt]
    absent: bool
    objects: int
    blocks: int
    bytes: int
    evidence: CopyEvidence


class CertificateBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"cls": "class"}):
    """What a certificate says; `docs/certificate.md` has each field and how it is checked without the console."""

    v: int
    format: str  # kv-console-certificate
    origin: str
    operation: str
    kind: str
    generation: int
    selector: dict[str, Any]
    tenant_ref: str
    targets: list[dict[str, Any]]  # `kvcore.targets.named` of each: {namespace_ref, gen_upto, …}
    plan_hash: str
    order: dict[str, Any]  # {event_id, index, body_hash}
    times: dict[str, str]  # {request, fence, erase, verify}, RFC 3339 in UTC
    copies: list[CertificateCopy]
    cls: int
    flags: list[str]
    exceptions: list[dict[str, str]]  # {code, node}
    requester_ref: str
    approver_refs: list[str]
    receipts_root: str
    receipts: list[dict[str, Any]]  # signed envelopes, verbatim
    node_keys: dict[str, str]  # node → public key, hex
    seal: bool
    issued_at: str
    supplements: str = ""  # the operation whose certificate this one completes
