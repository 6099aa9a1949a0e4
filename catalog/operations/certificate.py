"""Makes an operation's certificate: what the console knows of each copy besides the receipts, and the body over both.

The body is `kvcore.certificates`; it never says more than was seen. It is signed before the transaction that keeps it,
in which the operation ends. Called by `engine`; `grades` also where an operation is shown.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import rfc8785
from django.conf import settings
from django.db import transaction

from audit import certifying, signing
from audit.certifying import Shown, certificate_issue, certificate_sign
from audit.proving import checkpoint_now, decision_of, event_body, order_refs, place_of, proof_of
from audit.services import tenant_ref
from audit.signing import NotAnswered
from catalog.models import Node, Operation, Plan, Step
from catalog.operation_orders import ENGINE, operation_conclude
from catalog.operation_owners import Place
from catalog.operations.observing import ORDER_GENERATION, Seen
from catalog.operations.probing import samples_forget
from catalog.operations.receipts import DOUBTED, receipt_of
from kvconsole.infra.access import FLEET_PLANE, plane
from kvconsole.infra.keystore import KeyStore
from kvconsole.infra.rest import Problem
from kvcore.certificates import (
    FORMAT,
    VERSION,
    CopyReceipts,
    body_bytes,
    certificate_file,
    complete,
    copy_row,
    evidence_of,
)
from kvcore.erasure import CopyEvidence, Graded, copy_class
from kvcore.messages import Receipt, Signed
from kvcore.plan_state import Condition
from kvcore.plan_steps import erase_targets
from kvcore.receipts import CertificateBody, CertificateCopy
from kvcore.targets import named
from kvcore.told import receipt_told

Counted = dict[int, dict[str, list[Any]]]
"""Place → kind → the steps whose receipts count, in the order of their attempts."""


def counted(operation: UUID) -> Counted:
    """The receipts that say that something was done, and that agree with the others."""
    found: Counted = {}
    rows = Step.objects.using(FLEET_PLANE).filter(operation=operation, receipt__isnull=False).order_by("attempt")
    for row in rows:
        if _counts(row):
            found.setdefault(row.owner, {}).setdefault(row.kind, []).append(row)
    return found


def _counts(row: Any) -> bool:
    return row.state in ("done", "partial") and not row.code.startswith(DOUBTED)


def copies(seen: Seen, found: Counted, *, unroutable: bool, keys_gone: bool) -> list[CertificateCopy]:
    """A row of the certificate for every place that could be asked or was believed to hold something."""
    return [
        copy_row(
            node=str(place.node), source=place.source, dp_rank=place.dp_rank, tier=place.tier, owner=place.owner,
            receipts=_receipts(found.get(place.owner, {}), receipt_of), told=told,
        )
        for place, told in _known(seen, found, unroutable=unroutable, keys_gone=keys_gone)
    ]  # fmt: skip


def _known(seen: Seen, found: Counted, *, unroutable: bool, keys_gone: bool) -> Iterator[tuple[Place, CopyEvidence]]:
    """What the console knows of each of these places besides the receipts."""
    believed = _believed(seen.operation)
    engines = dict(Node.objects.using(FLEET_PLANE).values_list("id", "engine"))
    doubted = {step.owner for step in seen.observed.steps if step.bad and step.kind != "probe"}
    for owner in seen.observed.owners:
        place, kinds = seen.places[owner.owner], found.get(owner.owner, {})
        steps = [step.total_blocks for some in kinds.values() for step in some]
        known = max(believed.get(owner.owner, 0), owner.blocks, *steps)
        if place.retired and not known:
            continue
        engine = (engines.get(place.node) or {}).get("kind")
        told = CopyEvidence(
            fenced=seen.operation.fenced_at is not None,
            unroutable=unroutable and not seen.intent.finer,
            salt_honoured=engine == "reference",
            bypass_possible=engine != "reference",
            held=seen.intent.held,
            reachable=not place.retired and (place.reachable or "verify" in kinds),
            gap=place.gap,
            contradicted=owner.owner in doubted,
            believed=known,
            encrypted=place.encrypted,
            emulated=place.emulated,
            key_destroyed=keys_gone,
            store_medium=KeyStore.medium if keys_gone else "",
        )
        yield place, told


def _receipts(kinds: Mapping[str, Sequence[Any]], receipt: Callable[[Any], Receipt]) -> CopyReceipts:
    def of(kind: str) -> list[tuple[Receipt, str, int]]:
        return [(receipt(row), row.boot, row.attempt) for row in kinds.get(kind, ())]

    erases, looks, shreds = of("erase"), of("verify"), of("shred")
    last = kinds["verify"][-1].done_at if looks else None
    probes = [row for row in kinds.get("probe", ()) if last and row.done_at and row.done_at >= last]
    return CopyReceipts(
        earlier=tuple(erases[:-1]),
        erased=erases[-1] if erases else None,
        verified=looks[-1] if looks else None,
        shredded=shreds[-1] if shreds else None,
        probes=tuple((receipt(row), row.boot, row.attempt) for row in probes),
    )


def _believed(operation: Operation) -> dict[int, int]:
    """Place → blocks that the plan saw there."""
    if operation.plan is None:
        return {}
    body = Plan.objects.using(FLEET_PLANE).filter(id=operation.plan).values_list("body", flat=True).first()
    return {cell["owner"]: cell.get("blocks", 0) for cell in (body or {}).get("cells", ())}


def certificate_make(
    seen: Seen, conditions: list[Condition], *, now: datetime
) -> CertificateBody | NotAnswered:  # fmt: skip
    """The body of the operation's certificate; NotAnswered: its order cannot be shown in the log now."""
    operation, found = seen.operation, counted(seen.operation.id)
    true = {one.type for one in conditions if one.status == "true"}
    keys_gone = keys_over(seen)
    rows = copies(seen, found, unroutable="Unroutable" in true, keys_gone=keys_gone)
    newest = checkpoint_now()
    order = place_of(operation.order_event) if operation.order_event else None
    refs = order_refs(operation.order_event) if operation.order_event else None
    if order is None or refs is None:
        return NotAnswered("order-not-logged")
    decision = decision_of(operation.approval) if operation.approval else None
    approvers = [refs_[3] for refs_ in [order_refs(decision)] if refs_] if decision else []
    kept = [row.receipt for kinds in found.values() for rows_ in kinds.values() for row in rows_]
    envelopes = [msgspec.convert(one, Signed) for one in kept]
    body = CertificateBody(
        v=VERSION,
        format=FORMAT,
        origin=newest.origin,
        operation=str(operation.id),
        kind=operation.kind,
        generation=ORDER_GENERATION,
        selector=_selector(operation.selector),
        tenant_ref=tenant_ref(operation.tenant_id).hex(),
        targets=[named(target) for target in erase_targets(seen.intent.targets)],
        plan_hash=bytes(operation.plan_hash).hex(),
        order={"event_id": refs[0], "index": order, "body_hash": refs[1]},
        times=_times(operation, {one.kind for row in rows for one in row.receipts}),
        copies=rows,
        cls=0,
        flags=[],
        exceptions=[],
        requester_ref=refs[3],
        approver_refs=approvers,
        receipts_root="",
        receipts=[],
        node_keys=_keys({row.node for kinds in found.values() for some in kinds.values() for row in some if row.node}),
        seal=False,
        issued_at=_text(now),
        supplements=str(operation.options.get("supplements") or ""),
    )
    return complete(body, receipts=envelopes, production=settings.PRODUCTION)


def certificate_keep(seen: Seen, body: CertificateBody, *, now: datetime) -> bool | NotAnswered:
    """The certificate is issued and the operation concluded, in one transaction. False: somebody was first."""
    draft = certificate_sign(body_bytes(body))
    if isinstance(draft, NotAnswered):
        return draft
    with transaction.atomic(using=plane()):
        operation = Operation.objects.select_for_update(no_key=True).filter(id=seen.operation.id).first()
        if operation is None or operation.concluded_at is not None or operation.generation != seen.operation.generation:
            return False
        operation.certificate = certificate_issue(
            draft=draft,
            operation=operation.id,
            tenant_id=operation.tenant_id,
            erasure=body.cls,
            flags=body.flags,
            seal=body.seal,
            exceptions=len(body.exceptions),
            receipts=len(body.receipts),
            supplements=UUID(body.supplements) if body.supplements else None,
            actor=ENGINE,
            now=now,
        )
        if operation.certificate is None:  # there is one that no conclusion goes with: nothing is claimed on it
            return NotAnswered("certificate-foreign")
        operation.save(update_fields=["certificate"])
        Step.objects.filter(operation=operation.id, state="waiting").update(state="cancelled", done_at=now)
        samples_forget([operation.id])
        outcome = "completed_with_exceptions" if body.exceptions else "completed"
        operation_conclude(
            operation, outcome, now, erasure=body.cls, flags=body.flags, steps=len(body.receipts)
        )  # fmt: skip
    return True


def grades(seen: Seen, *, unroutable: bool) -> dict[int, Graded]:
    """Place → class and flags reached so far, where something of it was answered.

    By what is kept of receipts beside them (`kvcore.told`): it is what the certificate would say now.
    """
    found: dict[int, dict[str, list[Any]]] = {}
    for row in seen.rows:
        if row.told and _counts(row):
            found.setdefault(row.owner, {}).setdefault(row.kind, []).append(row)
    gone = keys_over(seen)
    reached = {}
    for place, told in _known(seen, found, unroutable=unroutable, keys_gone=gone):
        evidence = evidence_of(_receipts(found.get(place.owner, {}), _told), told)
        if place.owner in found or (gone and evidence.encrypted):
            reached[place.owner] = copy_class(evidence)
    return reached


def _told(row: Any) -> Receipt:
    return receipt_told(kind=row.kind, outcome=row.state, told=row.told)


def keys_over(seen: Seen) -> bool:
    """Whether nobody can use the generations' keys any more: they are destroyed, and every lease of them is over.

    This also reaches a node that is off.
    """
    end = seen.observed.lease_ends_at
    return seen.observed.keys_destroyed and (end is None or end <= seen.observed.now)


def _selector(said: dict[str, Any]) -> dict[str, Any]:
    """The selector without anything that somebody may have named a person by: whoever knows the word can check it."""
    found = {k: [_selector(part) for part in v] if k == "and" else v for k, v in said.items()}
    for name in ("label", "session"):
        if found.get(name):
            found[name] = "sha256:" + hashlib.sha256(str(found[name]).encode()).hexdigest()
    if found.get("prefix"):
        found["prefix"] = [hashlib.sha256(str(key).encode()).hexdigest() for key in found["prefix"]]
    return found


def _times(operation: Operation, answered: set[str]) -> dict[str, str]:
    """When each was reached; of what no receipt in it answers there is no time."""
    said = {
        "request": operation.created_at,
        "fence": operation.fenced_at,
        "erase": operation.erased_at if "erase" in answered else None,
        "verify": operation.verified_at if "verify" in answered else None,
    }
    return {name: _text(at) for name, at in said.items() if at is not None}


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _keys(nodes: set[UUID]) -> dict[str, str]:
    rows = Node.objects.using(FLEET_PLANE).filter(id__in=nodes).values_list("id", "public_key")
    return {str(node): bytes(key or b"").hex() for node, key in rows}


# --- the file -------------------------------------------------------------------------------


def certificate_text(found: Shown) -> bytes:
    """The file that is given out, with the order's event and proof where the log has them."""
    return certificate_file(found.body, found.note, _order_proof(found.operation))


def _order_proof(operation: UUID) -> tuple[str, str] | None:
    event = Operation.objects.using(FLEET_PLANE).filter(id=operation).values_list("order_event", flat=True).first()
    if event is None:
        return None
    try:
        proof = proof_of(event)
    except Problem:
        return None
    body = event_body(event)
    return (body.decode(), proof) if body is not None else None


def certificate_verdict(file: dict[str, Any]) -> dict[str, Any]:
    """Whether this console issued the certificate in this file, and whether its bytes and its signature are whole."""
    problems: list[str] = []
    body, note = file.get("body"), file.get("note")
    if not isinstance(body, dict) or not isinstance(note, str):
        return {"valid": False, "known": False, "signature": False, "problems": ["malformed"], "operation": ""}
    try:
        raw = rfc8785.dumps(body)
    except (ValueError, RecursionError):
        return {"valid": False, "known": False, "signature": False, "problems": ["malformed"], "operation": ""}
    digest = hashlib.sha256(raw).digest()
    known = certifying.is_issued(digest)
    signed = signing.export_signed(note, digest)
    problems += [] if known else ["not-issued-here"]
    problems += [] if signed else ["signature"]
    operation = str(body.get("operation", ""))[:36] if known else ""
    return {
        "valid": known and signed, "known": known, "signature": signed, "problems": problems, "operation": operation,
    }  # fmt: skip
