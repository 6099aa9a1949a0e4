"""Decides whether a node's receipt counts: its own word for this step, in the chain of its receipts, agreeing with what
else is known; and keeps it with its event.

The signature and the step were checked where it was received (`catalog.agents`). What does not agree is kept and
marked: it is evidence too, but of nothing that was asked. Called by `dispatching`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connections, transaction

from audit.services import record
from catalog.agents import Answered
from catalog.models import Operation, Step
from catalog.operation_orders import ENGINE
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from kvcore.certificates import CopyReceipts, contradictions, detail_of
from kvcore.messages import Receipt
from kvcore.receipts import ErasedDetail, ProbedDetail, StreamPos, VerifiedDetail
from kvcore.told import told_of

STATES = frozenset({"done", "partial", "failed", "refused"})
DOUBTED = "contradicted"
"""What the code of a step begins with whose receipt does not agree with what else is known."""
FOUND_BY = ("found-by-probe", "found-by-scan")
BOUND = frozenset({"erase", "verify", "shred"})
"""Kinds of steps whose receipts say of which targets they are."""
AGENT_SIGNED = 2
"""Flag of events that hold a node's own word."""


class Came(NamedTuple):
    """A receipt for a step that this holder has leased."""

    step: UUID
    token: int
    answer: Answered


def receipts_keep(operation: Operation, came: Sequence[Came], *, now: datetime) -> int:
    """The receipts are in their steps, each once, with an event each; how many were new.

    A holder that was overtaken keeps nothing: whoever has the lease gets the same receipt.
    """
    if not came:
        return 0
    kept = 0
    with transaction.atomic(using=plane()):
        rows = {row.id: row for row in Step.objects.select_for_update().filter(id__in=[c.step for c in came])}
        earlier = _of_owners(operation.id, {row.owner for row in rows.values()})
        forks = _forks([(rows[c.step], c.answer) for c in came if c.step in rows])
        for one in came:
            row = rows.get(one.step)
            if row is None or row.state != "waiting" or row.lease_token != one.token:
                continue
            code = "receipt-chain-forked" if one.answer.hash in forks else ""
            code = code or _against(row, one.answer.receipt, earlier.get(row.owner, []))
            _keep(row, one.answer, "" if code in FOUND_BY else code, now)
            if code in FOUND_BY:  # it is the node's own word that does not hold
                turn_doubt(operation.id, row.owner, code, now)
            kept += 1
    return kept


def turn_doubt(operation: UUID, owner: int, code: str, now: datetime) -> int:
    """The last erase of a place and every look since are no proof of anything, and are done again; how many receipts.

    They stay, with their events; another event says what each contradicts.
    """
    rows = Step.objects.select_for_update().filter(operation=operation, owner=owner, receipt__isnull=False)
    good = rows.filter(state__in=("done", "partial")).exclude(code__startswith=DOUBTED)
    last = good.filter(kind="erase").order_by("-attempt").first()
    looks = good.filter(kind="verify", done_at__gte=last.done_at) if last else good.filter(kind="verify")
    marked = [*looks, *([last] if last else [])]
    for row in marked:
        row.code = f"{DOUBTED}:{code}"[:63]
        _event(row, receipt_of(row), code, None)
        row.save(update_fields=["code"])
    return len(marked)


def _keep(row: Step, answer: Answered, doubt: str, now: datetime) -> None:
    receipt = answer.receipt
    erased, verified = detail_of(receipt, ErasedDetail), detail_of(receipt, VerifiedDetail)
    row.state = receipt.outcome if receipt.outcome in STATES else "failed"
    row.code = (f"{DOUBTED}:{doubt}" if doubt else receipt.code)[:63]
    row.done_at, row.lease_until = now, None
    row.receipt, row.told = msgspec.to_builtins(answer.envelope), told_of(receipt)
    row.receipt_hash, row.receipt_prev = answer.hash, receipt.prev
    if row.kind == "erase" and erased is not None:
        row.done_blocks, row.done_bytes = erased.blocks, erased.bytes
        _stand(row, erased.stream_pos)
    if row.kind == "verify" and verified is not None:
        _stand(row, verified.stream_pos)
    row.receipt_event = _event(row, receipt, doubt, verified)
    row.save()


def _event(row: Step, receipt: Receipt, doubt: str, verified: VerifiedDetail | None) -> int:
    event = record(
        event_type="receipt.refused" if doubt else "receipt.accepted",
        outcome="failure" if doubt or row.state in ("failed", "refused") else "success",
        actor=ENGINE,
        tenant_id=row.tenant_id,
        object_kind="step",
        object_id=str(row.id),
        body=_told(row, receipt, doubt, verified),
        flags=AGENT_SIGNED,
    )
    return event.id


def _told(row: Step, receipt: Receipt, doubt: str, verified: VerifiedDetail | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "operation": str(row.operation),
        "step": str(row.id),
        "node": str(row.node),
        "kind": row.kind,
        "receipt_hash": row.receipt_hash,
    }
    if doubt:
        return {**body, "code": doubt}
    return {
        **body,
        "outcome": receipt.outcome,
        "prev": receipt.prev or "",
        "blocks": row.done_blocks,
        "bytes": row.done_bytes,
        "found": verified.found_blocks if verified and row.kind == "verify" else None,
        "refusal": receipt.code,
    }


def _stand(row: Step, at: StreamPos) -> None:
    row.at_boot, row.at_stream, row.at_seq = at.boot[:100], at.stream[:100], at.seq


def _of_owners(operation: UUID, owners: set[int]) -> dict[int, list[Step]]:
    """The receipts of these places so far, in the order of their attempts."""
    found: dict[int, list[Step]] = {}
    rows = Step.objects.filter(operation=operation, owner__in=owners, receipt__isnull=False).order_by("done_at")
    for row in rows:
        found.setdefault(row.owner, []).append(row)
    return found


def _against(row: Step, receipt: Receipt, earlier: Sequence[Step]) -> str:
    """A code of what the receipt contradicts, "" if it agrees with all that is known of the place."""
    mine = (receipt, row.boot, row.attempt)
    ended = row.kind in BOUND and receipt.outcome in ("done", "partial")
    if ended and receipt.detail.get("targets_root") != row.args.get("targets_root"):
        return "other-targets"
    erased = mine if row.kind == "erase" else _last(earlier, "erase")
    if row.kind == "probe":
        probed = detail_of(receipt, ProbedDetail)
        if probed is not None and (probed.node, probed.tier) != (row.args.get("node"), row.tier):
            return "probe-of-another"
        said = contradictions(CopyReceipts(verified=_last(earlier, "verify"), probes=(mine,)))
        return next((code for code in said if code in FOUND_BY), "")
    verified = mine if row.kind == "verify" else None
    said = contradictions(CopyReceipts(erased=erased, verified=verified))
    return said[0] if said else ""


def _last(rows: Sequence[Step], kind: str) -> tuple[Receipt, str, int] | None:
    """The last good receipt of a kind."""
    for row in reversed(rows):
        if row.kind == kind and row.state in ("done", "partial") and not row.code.startswith(DOUBTED):
            return receipt_of(row), row.boot, row.attempt
    return None


def receipt_of(row: Step) -> Receipt:
    """The receipt in a step that has one."""
    return msgspec.convert((row.receipt or {})["body"], Receipt)


def _forks(pairs: Sequence[tuple[Step, Answered]]) -> set[str]:
    """Hashes of receipts that follow a receipt which another one follows too: their node has two histories.

    A node that is enrolled anew has a new key, and begins again.
    """
    by_node: dict[UUID, dict[tuple[str, str], set[str]]] = {}
    for row, answer in pairs:
        if row.node is not None:
            place = answer.envelope.key, answer.receipt.prev
            by_node.setdefault(row.node, {}).setdefault(place, set()).add(answer.hash)
    found: set[str] = set()
    with connections[plane()].cursor() as cursor:
        for node, after in by_node.items():
            query = named("catalog", "operations.sql")["receipts_after"]
            cursor.execute(query, {"node": node, "prev": [prev for _, prev in after]})
            known: dict[tuple[str, str], set[str]] = {}
            for key, prev, hash_ in cursor.fetchall():
                known.setdefault((key, prev), set()).add(hash_)
            for place, hashes in after.items():
                if len((known.get(place, set()) | hashes) - {""}) > 1:
                    found |= hashes
    return found
