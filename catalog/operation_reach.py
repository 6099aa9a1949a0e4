"""Reads what operations reach: their targets as they are kept, and what binds these to the order.

Keys may be many, so they are read only where they are sent or taken out of the catalog. Called where an order is
recorded, and by the engine.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from catalog.models import Operation, OperationTarget
from kvconsole.infra.access import FLEET_PLANE, plane
from kvcore import move_steps
from kvcore.moves import MOVES
from kvcore.plan_kinds import KINDS
from kvcore.plan_steps import erase_targets
from kvcore.plans import Target
from kvcore.targets import Bound


def targets_of(operations: Collection[UUID], *, using: str = FLEET_PLANE) -> QuerySet[OperationTarget]:
    """The targets of operations in a fixed order, without their keys."""
    rows = OperationTarget.objects.using(using).filter(operation__in=operations)
    return rows.defer("keys").order_by("digest", "part")


def target_of(row: OperationTarget) -> Target:
    """A target as the rules see it."""
    return Target(
        ns=bytes(row.digest).hex(),
        gen_upto=str(row.min_gen),
        namespace=str(row.namespace or ""),
        group=row.cache_group,
        keys=row.keys_hash or None,
        key_count=row.key_count,
        below=row.below,
    )


def keys_of(operation: UUID) -> dict[str, bytes]:
    """Hash → packed keys, of all targets that name some."""
    rows = OperationTarget.objects.using(FLEET_PLANE).filter(operation=operation).exclude(keys_hash="")
    return {name: bytes(keys or b"") for name, keys in rows.values_list("keys_hash", "keys")}


def reach_told(operation: Operation) -> dict[str, Any]:
    """What the event of the order says of its reach: root over the targets, when leases may be broken, fences."""
    bound = Bound(erase_targets(tuple(target_of(row) for row in targets_of([operation.id], using=plane()))))
    kind = KINDS[operation.kind]
    return {
        "targets_root": bytes.fromhex(bound.root),
        "targets": bound.count,
        "force_after": operation.deadline if kind.fences else None,
        "fencing": kind.fences and not any(target.attached for target in bound.targets),
    }


def kinds_of(operation: Operation, *, fencing: bool) -> list[str]:
    """The kinds of commands that the order is for."""
    if operation.kind in move_steps.KINDS:
        return sorted(MOVES)
    return ["erase", *(["fence"] if fencing else []), *(["shred"] if fencing and KINDS[operation.kind].keys else [])]
