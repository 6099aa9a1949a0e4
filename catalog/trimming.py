"""Reads which tenants hold more on a tier than they may, and what a plan to trim them is made of.

The choice is `kvcore.trimming`; pins and legal holds are rows here. Called by the rule of quotas, and when a plan of
its kind is frozen and when it starts.
"""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from catalog import operation_owners as owners
from catalog.index.facts import unpack
from catalog.models import Pin
from catalog.operation_plans import cell_of, holds_on, upto
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.plans import Options, PlanInput, Requester, Selector, Target
from kvcore.targets import KEY, keys_hash, packed
from kvcore.trimming import Cut, Lot, trim
from tenants.erasing import Erasable, namespaces_selected
from tenants.placing import groups_namespaces

KIND = "quota_trim"
SEGMENTS = 4096
"""Segments of a namespace that are looked at for its ends."""


class Over(NamedTuple):
    """A tenant that holds `bytes` on a tier, more than `limit`."""

    tenant: UUID
    tier: str
    limit: int
    bytes: int


def tenants_over() -> list[Over]:
    """Tenants that hold more on a tier than their quota allows, exactly as of the writer's last commit.

    What share groups hold is their owner's, as nodes count it too.
    """
    shared = groups_namespaces()
    columns = (list(shared), list(shared.values()))
    return [Over(*row) for row in fetch(named("catalog", "rules.sql")["over_quota"], columns, using=FLEET_PLANE)]


def trim_input(*, selector: Selector, options: Options, requester: Requester, now: datetime) -> PlanInput:
    """What of the tenant leaves the tier, as far as it is over its quota now: what is missed least."""
    rows = {row.digest: row for row in namespaces_selected(tenant=selector.tenant)}
    over = [one for one in tenants_over() if one.tier == options.tier and _is(one.tenant, rows.values())]
    at = [place for place in owners.places() if place.tier == options.tier and not place.retired]
    targets: list[Target] = []
    if over:
        believed = owners.held([(digest, upto(row)) for digest, row in rows.items()])
        for cut in _cuts(over[0], rows, now):
            row = rows[bytes.fromhex(cut.lot.ns)]
            here = believed.get(row.digest, {})
            part = cut.size_bytes / max(cut.lot.size_bytes, 1)
            cells = (cell_of(place, here.get((place.source_id, place.tier)), part) for place in at)
            targets.append(_target(row, cut, tuple(cell for cell in cells if cell.blocks)))
    return PlanInput(
        kind=KIND, selector=selector, targets=tuple(targets), requester=requester, options=options,
        totals=owners.totals(),
    )  # fmt: skip


def _is(tenant: UUID, rows: Collection[Erasable]) -> bool:
    return any(row.owner == tenant for row in rows)


def _cuts(over: Over, rows: dict[bytes, Erasable], now: datetime) -> list[Cut]:
    lots = [
        Lot(
            ns=bytes(digest).hex(), data_class=rows[bytes(digest)].data_class, blocks=blocks, size_bytes=size,
            block_bytes=block, warm_at=warm.timestamp() if warm else now.timestamp(),
        )
        for digest, blocks, size, block, warm in fetch(
            named("catalog", "rules.sql")["warmth"],
            (over.tier, over.tenant, [row.id for row in rows.values() if row.share_group]),
            using=FLEET_PLANE,
        )
        if bytes(digest) in rows
    ]  # fmt: skip
    whole, keys = _pinned(over.tenant, [row.digest for row in rows.values() if row.share_group], now)
    held = {ns for _, some in holds_on({row.id for row in rows.values()}) for ns in some}
    spared = whole | {row.digest.hex() for row in rows.values() if row.id in held}
    return trim(
        over.bytes - over.limit, lots, spared=spared, pinned=keys, leaves=lambda lot, most: _leaves(over, lot, most)
    )


def _pinned(tenant: UUID, shared: list[bytes], now: datetime) -> tuple[set[str], dict[str, set[bytes]]]:
    """Namespaces that are pinned as a whole, and keys of others that are; shared ones by any member."""
    whole: set[str] = set()
    keys: dict[str, set[bytes]] = {}
    for pin in Pin.objects.using(FLEET_PLANE).filter(Q(tenant_id=tenant) | Q(digest__in=shared), until__gt=now):
        ns = bytes(pin.digest).hex()
        if pin.keys is None:
            whole.add(ns)
        else:
            keys.setdefault(ns, set()).update(bytes.fromhex(key)[:KEY] for key in pin.keys)
    return whole, keys


def _leaves(over: Over, lot: Lot, most: int) -> Iterator[bytes]:
    rows = fetch(
        named("catalog", "rules.sql")["leaves"], (over.tier, bytes.fromhex(lot.ns), SEGMENTS), using=FLEET_PLANE
    )
    for keys, n, held in rows:
        mask, raw = unpack(n, bytes(held) if held is not None else None), bytes(keys)
        for offset in reversed(range(mask.bit_length())):
            if mask >> offset & 1:
                yield raw[KEY * offset : KEY * (offset + 1)]
                most -= 1
                if most <= 0:
                    return


def _target(row: Erasable, cut: Cut, cells: tuple[object, ...]) -> Target:
    keys = None if cut.keys is None else packed(cut.keys)
    return Target(
        ns=row.digest.hex(), gen_upto=str(upto(row)), tenant=row.tenant, namespace=str(row.id), label=row.label,
        data_class=row.data_class, shared_with=row.members, share_group=str(row.share_group or ""),
        keys=None if keys is None else keys_hash(keys),
        key_count=len(cut.keys or ()), packed=keys or b"", cells=cells,  # type: ignore[arg-type]
    )  # fmt: skip
