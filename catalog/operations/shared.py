"""Reads once what several operations have in common or ask alike: an operation more costs no statement more.

Everything is read on the fleet's connection when it is first asked for. Called by `observing`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from audit.proving import signed_among
from catalog import operation_owners as owners
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_plans import holds_in_force
from kvconsole.infra.access import FLEET_PLANE
from tenants.erasing import Fences, KeysOut, keys_out_each, node_fences, node_leases_each


class Known(NamedTuple):
    """What is known of one operation besides its own rows."""

    held: Mapping[bytes, Mapping[tuple[int, str], owners.Held]]
    keys: KeysOut
    leases: Mapping[str, datetime]


class Shared:
    """What these operations have in common; `whole`: the targets of each that are meant as a whole, as not by keys."""

    def __init__(
        self, operations: Sequence[Operation], targets: Mapping[UUID, Sequence[OperationTarget]], now: datetime
    ) -> None:
        self.operations, self.now = operations, now
        self.targets = {one.id: targets.get(one.id, ()) for one in operations}
        self.whole = {id_: [t for t in of if not t.keys_hash] for id_, of in self.targets.items()}
        self._behind: dict[int, int] = {}

    def fences(self, operation: Operation) -> list[tuple[UUID, int]]:
        """The fences that the operation raised: namespace and generation."""
        return [(t.namespace, t.min_gen) for t in self.whole[operation.id] if t.namespace]

    @cached_property
    def places(self) -> dict[int, owners.Place]:
        """All places by number."""
        found = [*owners.places(), *owners.unheard()] if self.operations else []
        return {place.owner: place for place in found}

    @cached_property
    def acknowledged(self) -> dict[str, int]:
        """Node → up to where it has applied the fences."""
        return node_fences() if self.operations else {}

    @cached_property
    def signed(self) -> set[int]:
        """The orders of these operations that stand under a signed head."""
        return signed_among({one.order_event for one in self.operations if one.order_event is not None})

    @cached_property
    def on_hold(self) -> set[UUID]:
        """The namespaces of these operations that a legal hold keeps."""
        mine = {t.namespace for targets in self.targets.values() for t in targets if t.namespace}
        return set().union(*(covered & mine for _, covered in holds_in_force())) if mine else set()

    @cached_property
    def plans(self) -> dict[UUID, dict[str, Any]]:
        """The bodies of the plans of those that reach single keys, or are not fenced yet."""
        finer = {
            one.plan
            for one in self.operations
            if one.plan and (one.fenced_at is None or len(self.whole[one.id]) < len(self.targets[one.id]))
        }
        rows = Plan.objects.using(FLEET_PLANE).filter(id__in=finer)
        return dict(rows.values_list("id", "body")) if finer else {}

    @cached_property
    def _held(self) -> dict[tuple[bytes, int], dict[tuple[int, str], owners.Held]]:
        return owners.held_each(sorted({(bytes(t.digest), t.min_gen) for ts in self.whole.values() for t in ts}))

    @cached_property
    def _asked(self) -> list[Fences]:
        return [Fences(self.fences(one), one.fence_seq) for one in self.operations]

    @cached_property
    def _keys(self) -> dict[UUID, KeysOut]:
        found = keys_out_each(self._asked, now=self.now)
        return {one.id: keys for one, keys in zip(self.operations, found, strict=True)}

    @cached_property
    def _leases(self) -> dict[UUID, dict[str, datetime]]:
        found = node_leases_each(self._asked)
        return {one.id: leases for one, leases in zip(self.operations, found, strict=True)}

    def known(self, operation: Operation, *, off: bool) -> Known:
        """What is known of it. `off`: a node of it does not answer, so when its leases ended is of interest."""
        mine = {bytes(t.digest): self._held.get((bytes(t.digest), t.min_gen), {}) for t in self.whole[operation.id]}
        leases = self._leases[operation.id] if off and self.fences(operation) else {}
        return Known(mine, self._keys[operation.id], leases)

    def behind(self, seq: int) -> int:
        """How many routers may still answer without the fence."""
        if seq not in self._behind:
            self._behind[seq] = import_string(settings.ROUTERS_BEHIND)(seq=seq, now=self.now)
        return self._behind[seq]
