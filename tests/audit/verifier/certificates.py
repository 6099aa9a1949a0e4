"""Certificates as a console makes them: nodes that sign receipts in chains, an order in a log, the file over both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from kvcore.certificates import CopyReceipts, body_bytes, certificate_file, complete, copy_row
from kvcore.erasure import CopyEvidence, object_ref, objects_root
from kvcore.messages import Receipt, Signed, receipt_hash, seal
from kvcore.plan_steps import step_id
from kvcore.receipts import (
    CertificateBody,
    CertificateCopy,
    ErasedDetail,
    EraseTarget,
    Medium,
    ProbedDetail,
    Readback,
    Remaining,
    ShreddedDetail,
    StreamPos,
    VerifiedDetail,
)
from kvcore.targets import Bound
from tests.audit.verifier.bundles import Event, Log, jcs, sample, sha

OPERATION = "0197f0a1-0000-7000-8000-00000000000a"
NAMESPACE, PLAN = "ab" * 32, "cd" * 32
TARGETS = [EraseTarget(ns=NAMESPACE, gen_upto=str(2**63))]
ROOT = Bound(TARGETS).root
AT = 1_790_000_000.25
TOLD = CopyEvidence(
    fenced=True, unroutable=True, salt_honoured=True, reachable=True, believed=3, encrypted=True, key_destroyed=True,
    store_medium="kms",
)  # fmt: skip
Step = tuple[Receipt, str, int]


def name(number: int) -> str:
    return str(UUID(int=number))


@dataclass
class Node:
    """A node that signs what it is told to, each receipt after the one before."""

    number: int
    prev: str = "0" * 64
    looked: str = ROOT
    signed: list[Signed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([self.number]) * 32)
        self.public = self.key.public_key().public_bytes_raw()
        self.name = name(self.number)

    def says(self, kind: str, owner: int, detail: msgspec.Struct, *, outcome: str = "done", attempt: int = 0,
             step: str | None = None) -> Step:  # fmt: skip
        boot = f"b{self.number}"
        root = self.looked if kind == "verify" else ROOT
        of = {} if kind == "probe" else {"targets_root": root}
        step = step or str(step_id(OPERATION, 1, kind, owner, boot, attempt))
        receipt = Receipt(
            v=1, step=step, kind=kind, node=self.name, outcome=outcome, at=AT + len(self.signed), prev=self.prev,
            detail={**msgspec.to_builtins(detail), **of},
        )  # fmt: skip
        self.signed.append(seal("receipt", receipt, self.key.sign, self.public))
        self.prev = receipt_hash(receipt)
        return receipt, boot, attempt


def erased(technique: str = "memset", *, objects: int = 3, claimed: int = 3, medium: Medium | None = None,
           left: int = 0, residual: tuple[str, ...] = ()) -> ErasedDetail:  # fmt: skip
    refs = [object_ref("ef" * 32, bytes([n]) * 32) for n in range(objects)]
    read = Readback(method="readback" if technique == "memset" else "list", sampled=objects, clean=objects,
                    evidence="0" * 64)  # fmt: skip
    return ErasedDetail(
        objects_root=objects_root(refs), objects=objects, blocks=objects, bytes=16 * objects,
        technique=technique if objects else "none", readback=read, medium=medium or Medium(type="memory"),
        class_claimed=claimed, stream_pos=StreamPos(boot="b", stream="s", seq=7), started_us=1, finished_us=2,
        remaining=Remaining(blocks=left), residual=list(residual),
    )  # fmt: skip


def verified(medium: Medium | None = None, *, found: int = 0) -> VerifiedDetail:
    return VerifiedDetail(
        found_blocks=found, found_bytes=16 * found, listed_at_us=3, counters={"used_bytes": 0, "blocks": found},
        readback=Readback(method="list"), medium=medium or Medium(type="memory"),
        stream_pos=StreamPos(boot="b", stream="s", seq=8),
    )  # fmt: skip


FLASH = Medium(type="flash", encrypted=True)


def copies(nodes: dict[int, Node]) -> list[CertificateCopy]:
    """Memory that another probed, flash whose key is gone, a lease that was broken, and a tier that held nothing."""
    one, two = nodes[1], nodes[2]
    probe = ProbedDetail(node=one.name, source="engine", tier="dram", method="probe", asked=3, found=0, evidence="",
                         at_us=4)  # fmt: skip
    told: list[tuple[Node, int, str, CopyReceipts, CopyEvidence]] = [
        (one, 1, "dram", CopyReceipts(
            erased=one.says("erase", 1, erased()), verified=one.says("verify", 1, verified()),
            probes=(two.says("probe", 1, probe),)), TOLD),
        (one, 2, "ssd", CopyReceipts(
            erased=one.says("erase", 2, erased("unlink", claimed=2, medium=FLASH)),
            verified=one.says("verify", 2, verified(FLASH)),
            shredded=one.says("shred", 2, ShreddedDetail(objects=3, key_medium="flash", lease_dropped=True))), TOLD),
        (two, 3, "dram", CopyReceipts(
            earlier=(two.says("erase", 3, erased(left=2), outcome="partial"),),
            erased=two.says("erase", 3, erased(objects=2, residual=("FORCED",)), attempt=1),
            verified=two.says("verify", 3, verified())), TOLD),
        (two, 4, "hbm", CopyReceipts(
            erased=two.says("erase", 4, erased(objects=0)), verified=two.says("verify", 4, verified())),
         replace(TOLD, believed=0, encrypted=False, emulated=True)),
    ]  # fmt: skip
    return [
        copy_row(node=n.name, source="engine", dp_rank=0, tier=tier, owner=owner, receipts=receipts, told=evidence)
        for n, owner, tier, receipts, evidence in told
    ]


def ordering(change: Callable[[dict[str, Any]], None] | None = None, kind: int = 0x0501) -> Log:
    """A log whose event 11 is the order."""
    body: dict[str, Any] = {
        "action": "order.approved", "actor": {"kind": "user"}, "object": {"kind": "operation", "id": OPERATION},
        "data": {"operation": OPERATION, "kinds": ["erase", "shred", "verify"], "nodes": [name(1), name(2)],
                 "plan_hash": PLAN, "risk": "R2", "targets_root": ROOT, "targets": 1,
                 "not_after": "2026-12-01T00:00:00Z"},
        "outcome": "success", "request_id": "r",
    }  # fmt: skip
    if change:
        change(body)
    events = sample(20).events
    events[11] = Event(body=body, kind=kind)
    return Log(events)


LOG = ordering()
TIMES = {"request": "2026-11-30T10:00:00Z", "fence": "2026-11-30T10:00:00.25Z", "erase": "2026-11-30T10:00:02Z",
         "verify": "2026-11-30T10:00:03Z"}  # fmt: skip
Change = Callable[[dict[str, Any]], None]


def certificate(
    *, rows: Callable[[dict[int, Node]], list[CertificateCopy]] = copies, production: bool = True, log: Log = LOG,
    change: Change | None = None, whole: Change | None = None, order: bool = True,
) -> bytes:  # fmt: skip
    """The file. `change` changes the body before it is signed, `whole` the file."""
    nodes = {number: Node(number) for number in (1, 2)}
    made = rows(nodes)
    answered = {one.kind for row in made for one in row.receipts}
    leaf, raw = log.leaves[11], jcs(log.events[11].body)
    body = CertificateBody(
        v=1, format="kv-console-certificate", origin=log.origin, operation=OPERATION, kind="deletion", generation=1,
        selector={"tenant": "sha256:00"}, tenant_ref="00" * 16,
        targets=[{"namespace_ref": NAMESPACE, "gen_upto": str(2**63)}], plan_hash=PLAN,
        order={"event_id": str(UUID(bytes=sha(b"id11")[:16])), "index": 11,
               "body_hash": sha(b"kvconsole/audit-body/v1\0" + raw).hex()},
        times={kind: at for kind, at in TIMES.items() if kind in {"request", "fence", *answered}},
        copies=made, cls=0, flags=[], exceptions=[], requester_ref="11" * 16, approver_refs=[], receipts_root="",
        receipts=[], node_keys={node.name: node.public.hex() for node in nodes.values()}, seal=False,
        issued_at="2026-11-30T10:00:04Z",
    )  # fmt: skip
    assert len(leaf) == 148
    signed = [one for node in nodes.values() for one in node.signed]
    made_body = msgspec.json.decode(body_bytes(complete(body, receipts=signed, production=production)))
    if change:
        change(made_body)
    return written(made_body, log=log, whole=whole, order=(raw.decode(), log.proof(11)) if order else None)


def written(body: dict[str, Any], *, log: Log = LOG, whole: Change | None = None,
            order: tuple[str, str] | None = None) -> bytes:  # fmt: skip
    raw = rfc8785.dumps(body)
    text = f"kvconsole/bundle/v1\n{log.origin}\n{sha(raw).hex()}\n"
    data = certificate_file(raw, f"{text}\n{log.export.line(text)}", order)
    if whole is None:
        return data
    found = msgspec.json.decode(data)
    whole(found)
    return rfc8785.dumps(found) + b"\n"
