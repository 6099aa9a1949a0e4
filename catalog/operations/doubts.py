"""Decides which receipts that were accepted do not agree with what came after them, and marks them.

A receipt is held against three things, once its source was heard up to the receipt's position: what its own stream has
never taken back of what it had told, what it counted then, and what is announced after it. A second node that finds
something is heard at once, in `receipts`. Nothing is taken back: the receipt stays with its event, another event says
what it contradicts, and its step is done again. Called by `engine` before it plans.
"""

from datetime import datetime
from uuid import UUID

from django.db import connections, transaction

from catalog import operation_owners as owners
from catalog.models import Step
from catalog.operations.observing import Seen
from catalog.operations.receipts import DOUBTED, receipt_of, turn_doubt
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from kvcore.certificates import CopyReceipts, contradictions, detail_of
from kvcore.plan_steps import standings
from kvcore.receipts import ErasedDetail, VerifiedDetail

LATE = {"erase": ("fewer-than-announced",), "verify": ("counters-differ",)}
"""What can only be said once the stream was heard."""
ANNOUNCED_AGAIN = "announced-again"


def doubts_raise(seen: Seen, *, now: datetime) -> int:
    """Receipts of the operation that what came later contradicts are marked; how many places are in doubt anew.

    What was compared is not compared again. Where the source has gone on beyond a look, its counters say nothing any
    more; its digests are verified all the time (`catalog.ingest.inventory`), and a place with a difference is a gap.
    """
    if any(target.keys for target in seen.targets):  # the namespace lives on: its blocks may come and go
        return 0
    with transaction.atomic(using=plane()):
        rows = _open(seen)
        again = [one.seen.owner for one in standings(seen.observed) if one.came_back]
        if not rows and not again:
            return 0
        nodes = {row.node for row in rows if row.node}
        places = owners.compared([(bytes(t.digest), t.min_gen) for t in seen.targets], nodes) if nodes else {}
        ready = [(row, now_) for row in rows if (now_ := places.get(row.owner)) and _heard(row, now_)]
        _mark([row.id for row, _ in ready])
        found = {row.owner: code for row, now_ in ready if (code := _late(row, now_, seen.operation.id))}
        found |= {owner: ANNOUNCED_AGAIN for owner in again if _purged_behind_its_look(seen.operation.id, owner)}
        return sum(bool(turn_doubt(seen.operation.id, owner, code, now)) for owner, code in found.items())


def _open(seen: Seen) -> list[Step]:
    """Receipts that say what is there, and that were not compared yet."""
    if not any(step.outcome for step in seen.observed.steps):
        return []
    rows = Step.objects.select_for_update(skip_locked=True).filter(
        operation=seen.operation.id, kind__in=LATE, state__in=("done", "partial"), receipt__isnull=False
    )
    return list(rows.exclude(code__startswith=DOUBTED).exclude(args__has_key="compared"))


def _heard(row: Step, now: owners.Compared) -> bool:
    """Whether the source was heard up to the receipt's position, or the life that it speaks of is over."""
    return (now.boot, now.stream) != (row.at_boot, row.at_stream) or now.seq >= row.at_seq


def _mark(steps: list[UUID]) -> None:
    """These receipts are compared; in one statement, as there are as many as places."""
    if steps:
        with connections[plane()].cursor() as cursor:
            cursor.execute(named("catalog", "operations.sql")["steps_compared"], (steps,))


def _late(row: Step, now: owners.Compared, operation: UUID) -> str:
    """What the receipt contradicts, "" if nothing."""
    if (now.boot, now.stream) != (row.at_boot, row.at_stream):  # the life that it speaks of is over
        return ""
    mine = receipt_of(row), row.boot, row.attempt
    if row.kind == "erase":
        erases = Step.objects.filter(operation=operation, owner=row.owner, kind="erase", receipt__isnull=False)
        before = [r for r in erases.filter(attempt__lt=row.attempt) if detail_of(receipt_of(r), ErasedDetail)]
        told = CopyReceipts(earlier=tuple((receipt_of(r), r.boot, r.attempt) for r in before), erased=mine)
        said = contradictions(told, believed=now.here, heard=(now.boot, now.stream, row.at_seq))
    else:
        verified = detail_of(mine[0], VerifiedDetail)
        if verified is None or not now.exact or now.seq != row.at_seq:
            return ""
        said = contradictions(CopyReceipts(verified=mine), counted=now.others + verified.found_blocks)
    return next((code for code in said if code in LATE[row.kind]), "")


def _purged_behind_its_look(operation: UUID, owner: int) -> bool:
    """Whether the directory was cleared of all that the last look covers: what is there was announced after it."""
    rows = Step.objects.filter(operation=operation, owner=owner, state="done").exclude(code__startswith=DOUBTED)
    look = rows.filter(kind="verify").order_by("-attempt").values_list("at_boot", "at_stream", "at_seq").first()
    if look is None:
        return False
    return rows.filter(kind="purge", at_boot=look[0], at_stream=look[1], at_seq=look[2]).exists()
