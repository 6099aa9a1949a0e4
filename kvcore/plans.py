"""Decides what a plan is: what of which namespaces goes, where it was seen, what stands in the way, how risky it is.

A plan is frozen: its hash covers targets, positions and cells, and what starts is compared with it (`drifted`). Steps
are in `kvcore.plan_steps`, conditions and the state of an operation in `kvcore.plan_state`, risk in `kvcore.risk`.
Called by the console's planners; nothing here asks a clock or a table.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
import rfc8785
from msgspec.structs import replace

from kvcore.plan_kinds import KINDS
from kvcore.risk import WIDTHS, Stakes, risk

PLAN_SECONDS = 900.0
"""How long a plan may be started."""
DRIFT_ONE_IN = 20
"""If more than one byte in so many came or went, a plan has to be made anew."""
SAMPLE = 100
ALL_GENERATIONS = str(2**63)
"""`gen_upto` that fences a namespace for ever: of a model epoch that is over."""
ERASURE_SCOPES = ("tenant", "class", "label", "subject", "session")
"""What a tenant may say must be separable; each contains the ones before it."""
Collateral = Literal["", "none", "namespace"]
PARTS = frozenset({"prefix", "older_than"})
"""Fields of a selector that mean a part of a namespace."""


class Selector(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"data_class": "class", "and_": "and"}
):
    """What goes. Fields narrow each other, and so do the selectors of `and`.

    `namespace`, `subject` and `session` are digests or ids, never what they were made of; `prefix` are block keys
    (hex); `older_than` is in seconds since 1970: placements born before.
    """

    tenant: str = ""
    namespace: str = ""
    epoch: str = ""
    subject: str = ""
    session: str = ""
    label: str = ""
    data_class: str = ""
    prefix: tuple[str, ...] = ()
    older_than: float | None = None
    and_: tuple["Selector", ...] = ()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one owner (node, source, dp_rank, tier) holds of a target, exact as of the position."""

    owner: int
    node: str
    source: str
    tier: str
    dp_rank: int | None = 0
    reachable: bool = True
    boot: str = ""
    stream: str = ""
    seq: int = -1
    blocks: int = 0
    bytes: int = 0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Generations below `gen_upto` (decimal) of a namespace (hex digest), of it one group or some keys.

    `keys` is the hash of `key_count` keys (`kvcore.targets`), which are kept beside; `below`: with all that continues
    them. `tenant` is "" for what nobody claimed; `shared_with` are other tenants that read the namespace.
    """

    ns: str
    gen_upto: str
    tenant: str = ""
    namespace: str = ""  # id
    label: str = ""
    data_class: str = ""
    shared_with: tuple[str, ...] = ()
    share_group: str = ""
    group: int | None = None
    keys: str | None = None
    key_count: int = 0
    below: bool = False
    packed: bytes = b""  # the keys, where they are at hand
    cells: tuple[Cell, ...] = ()


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of a target: a pin, a lease of a key, a transfer or a hold (`kind`), by id."""

    kind: Literal["pin", "key_lease", "transfer", "hold"]
    ref: str
    ns: str
    node: str = ""
    tier: str = ""
    blocks: int = 0
    until: float | None = None
    reason: str = ""


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a digest or id, and the tenant it belongs to ("" = of the fleet). `rule`: what was decided before."""

    ref: str
    tenant: str = ""
    rule: bool = False


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the requester chose. `share_groups`: those whose namespaces go too; without it they are left out.

    `crypto_erase`: keys are destroyed as the method, at once, and nodes that are off are reached by it. `drain`: what
    goes stays readable for `drain_seconds` at most, and no longer than somebody may still be sent to it. `places` and
    `tier`: where alone it is taken away, of kinds that fence nothing.
    """

    collateral: Collateral = ""
    share_groups: tuple[str, ...] = ()
    override_pins: bool = False
    crypto_erase: bool = False
    drain: bool = False
    drain_seconds: float = 0.0
    places: tuple[int, ...] = ()
    tier: str = ""
    grace_seconds: float = 0.0
    rate_bytes_per_s: int | None = None


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan is made of. `totals`: tier → bytes that the tier holds in the whole fleet."""

    kind: str
    selector: Selector
    targets: tuple[Target, ...]
    requester: Requester
    options: Options = Options()
    pins: tuple[Blocker, ...] = ()
    leases: tuple[Blocker, ...] = ()
    transfers: tuple[Blocker, ...] = ()
    holds: tuple[Blocker, ...] = ()
    totals: Mapping[str, int] = {}
    restricted: frozenset[str] = frozenset({"restricted"})
    lost_hits: float | None = None
    sample: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen plan. `left_out` are targets of share groups that were not chosen; `cells` are sums by owner."""

    kind: str
    selector: Selector
    options: Options
    requester: Requester
    targets: tuple[Target, ...]
    left_out: tuple[Target, ...]
    cells: tuple[Cell, ...]
    blockers: tuple[Blocker, ...]
    unreachable: tuple[str, ...]
    tenants: tuple[str, ...]
    blocks: int
    bytes: int
    risk: str
    reasons: tuple[str, ...]
    lost_hits: float | None
    sample: tuple[str, ...]
    created_at: float
    expires_at: float
    plan_hash: str


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since a plan was frozen. `replan`: it may not be started; `reasons` say why."""

    added: tuple[Cell, ...]
    bytes_before: int
    bytes_now: int
    tenants_entered: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def replan(self) -> bool:
        """Whether the operation goes back to planned."""
        return bool(self.reasons)


def fields_of(selector: Selector) -> set[str]:
    """The fields that select something, also in `and`; in the words of the API."""
    inner: set[str] = set().union(*(fields_of(one) for one in selector.and_))
    return inner | {f for f in msgspec.to_builtins(selector) if f != "and"}


def width(selector: Selector, collateral: Collateral = "") -> str:
    """The narrowest field of a selector: all of them narrow each other. "" = it selects everything.

    Where whole namespaces go for a part of them, what means the part narrows nothing.
    """
    meant = fields_of(selector) - (PARTS if collateral == "namespace" else frozenset())
    return min(meant, key=WIDTHS.index, default="")


def closed(selector: Selector) -> bool:
    """Whether it selects whole namespaces; where not, the requester has to choose the collateral."""
    return not fields_of(selector) & PARTS


def inseparable(selector: Selector, erasure_scope: str) -> str:
    """The narrowest field that the tenant's scope cannot tell apart, "" if it can all of them.

    What would go instead is the whole of `erasure_scope`.
    """
    depth = ERASURE_SCOPES.index(erasure_scope)
    beyond = [scope for scope in ERASURE_SCOPES[depth + 1 :] if scope in fields_of(selector)]
    return beyond[-1] if beyond else ""


def plan_freeze(asked: PlanInput, now: float) -> Plan:
    """The plan of what was found, to be started within 15 minutes."""
    targets, left_out = _split(asked)
    cells = sum_cells(targets)
    level, reasons = risk(_stakes(asked, targets, cells))
    chosen = {target.ns for target in targets}
    blockers = [b for b in (*asked.pins, *asked.leases, *asked.transfers, *asked.holds) if b.ns in chosen]
    plan = Plan(
        kind=asked.kind,
        selector=asked.selector,
        options=asked.options,
        requester=asked.requester,
        targets=targets,
        left_out=left_out,
        cells=cells,
        blockers=tuple(sorted(blockers, key=lambda b: (b.kind, b.ns, b.ref))),
        unreachable=tuple(sorted({cell.node for cell in cells if not cell.reachable})),
        tenants=_tenants(targets),
        blocks=sum(cell.blocks for cell in cells),
        bytes=sum(cell.bytes for cell in cells),
        risk=level,
        reasons=reasons,
        lost_hits=asked.lost_hits,
        sample=asked.sample[:SAMPLE],
        created_at=now,
        expires_at=now + PLAN_SECONDS,
        plan_hash="",
    )
    return replace(plan, plan_hash=plan_hash(plan))


def plan_hash(plan: Plan) -> str:
    """SHA-256 (hex) over what would be done: selector, options, targets, positions and cells, in one order."""
    targets = [
        {"below": t.below, "group": t.group, "gen_upto": t.gen_upto, "keys": t.keys, "ns": t.ns, "tenant": t.tenant}
        for t in plan.targets
    ]
    cells = msgspec.to_builtins([replace(cell, reachable=True) for cell in plan.cells])
    whole = {"kind": plan.kind, "selector": msgspec.to_builtins(plan.selector), "targets": targets, "cells": cells,
             "options": msgspec.to_builtins(plan.options)}  # fmt: skip
    return hashlib.sha256(b"kvconsole/plan/v1\n" + rfc8785.dumps(whole)).hexdigest()


def sum_cells(targets: Iterable[Target]) -> tuple[Cell, ...]:
    """One cell an owner, over all targets, in the order of the owners; the latest position counts."""
    sums: dict[int, Cell] = {}
    for cell in (cell for target in targets for cell in target.cells):
        one = sums.get(cell.owner)
        if one is not None:
            later = cell if cell.seq > one.seq else one
            cell = replace(later, blocks=one.blocks + cell.blocks, bytes=one.bytes + cell.bytes)
        sums[cell.owner] = cell
    return tuple(sums[owner] for owner in sorted(sums))


def _split(asked: PlanInput) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """What goes, and what is left out because others read it and its share group was not chosen."""
    ordered = sorted(asked.targets, key=_place)
    out = [bool(t.shared_with) and t.share_group not in asked.options.share_groups for t in ordered]
    return tuple(t for t, o in zip(ordered, out, strict=True) if not o), tuple(
        t for t, o in zip(ordered, out, strict=True) if o
    )


def _place(t: Target) -> tuple[str, int, str, str, str]:
    return t.ns, -1 if t.group is None else t.group, t.keys or "", t.tenant, t.gen_upto


def _tenants(targets: Iterable[Target]) -> tuple[str, ...]:
    return tuple(sorted({tenant for t in targets for tenant in (t.tenant, *t.shared_with)}))


def _stakes(asked: PlanInput, targets: tuple[Target, ...], cells: tuple[Cell, ...]) -> Stakes:
    tenants = _tenants(targets)
    held: dict[str, int] = {}
    for cell in cells:
        held[cell.tier] = held.get(cell.tier, 0) + cell.bytes
    parts = [held[tier] / max(asked.totals.get(tier, 0), held[tier]) for tier in held if held[tier]]
    pinned = {pin.ns for pin in asked.pins} & {target.ns for target in targets}
    return Stakes(
        width=width(asked.selector, asked.options.collateral),
        rule=asked.requester.rule,
        own=asked.requester.tenant != "" and set(tenants) <= {asked.requester.tenant},
        bytes=sum(held.values()),
        part=max(parts, default=0.0),
        tenants=len(tenants),
        shared=any(target.shared_with for target in targets),
        restricted=any(target.data_class in asked.restricted for target in targets),
        crypto_erase=asked.options.crypto_erase,
        pins_overridden=asked.options.override_pins and bool(pinned),
        lives_on=asked.kind in KINDS and not KINDS[asked.kind].fences,
    )


def drifted(plan: Plan, asked: PlanInput) -> Drift:
    """What is different now. Added cells are fine: they go too, and are shown with what came on top."""
    targets, _ = _split(asked)
    before = {cell.owner: cell for cell in plan.cells}
    added = []
    for cell in sum_cells(targets):
        was = before.get(cell.owner)
        blocks, size = (was.blocks, was.bytes) if was else (0, 0)
        if was is None or cell.blocks > blocks:
            added.append(replace(cell, blocks=cell.blocks - blocks, bytes=max(0, cell.bytes - size)))
    now = sum(cell.bytes for target in targets for cell in target.cells)
    entered = tuple(sorted(set(_tenants(targets)) - set(plan.tenants)))
    far = abs(now - plan.bytes) * DRIFT_ONE_IN > plan.bytes
    reasons = (("bytes-differ",) if far else ()) + (("tenant-entered",) if entered else ())
    return Drift(added=tuple(added), bytes_before=plan.bytes, bytes_now=now, tenants_entered=entered, reasons=reasons)


def confirm_phrase(plan: Plan) -> str:
    """What has to be typed from R2 on."""
    return f"delete {plan.blocks:,} objects"


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as it is kept: JSON of it, from which `plan_from_json` makes the same, but for the keys themselves."""
    found: dict[str, Any] = msgspec.to_builtins(plan)
    for target in (*found["targets"], *found["left_out"]):
        del target["packed"]
    return found


def plan_from_json(kept: Mapping[str, Any]) -> Plan:
    """The plan that was kept."""
    return msgspec.convert(kept, Plan)


def confirmed(plan: Plan, phrase: str) -> bool:
    """Whether the phrase is the plan's, whatever its case and spaces."""
    return " ".join(phrase.casefold().split()) == confirm_phrase(plan)
