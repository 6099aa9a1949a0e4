"""Decides what a selector reaches, as the input of a plan (`kvcore.plans`): targets, cells, blockers, totals.

A selector means sets of namespaces where they can be told apart; `prefix` and `older_than` are finer, and the requester
chooses whether the rest of their namespaces goes too. Called by `operation_requests` when a plan is frozen and again
when it is started.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from catalog import operation_owners as owners
from catalog.models import Hold
from catalog.operation_blockers import hits_a_day, leases_on, pins_on, transfers_on
from catalog.operation_blocks import Meant, blocks_meant
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM
from kvcore.plans import SAMPLE, Blocker, Cell, Options, PlanInput, Requester, Selector, Target
from kvcore.targets import KEY
from tenants.erasing import Erasable, namespaces_selected, selected_missing

add_codes(
    {
        "selector-empty": (422, "The selector names nothing"),
        "collateral-needed": (422, "It must be said what becomes of the rest of the namespace"),
        "selector-unsupported": (422, "This selector cannot be carried out yet"),
    }
)
NARROWS = ("tenant", "namespace", "epoch", "subject", "session", "label", "data_class")
MOST_ANDS = 8


def selector_of(said: dict[str, Any], actor: Principal) -> Selector:
    """The selector as it was said; of a tenant's people it is of their own tenant, whatever it says.

    Raises:
        Problem: validation-failed or selector-empty.
    """
    try:
        found = msgspec.convert(said, Selector, strict=True)
    except msgspec.ValidationError as e:
        errors = [{"pointer": "/selector", "code": "invalid", "detail": str(e)[:200]}]
        raise Problem("validation-failed", errors=errors) from e
    if len(found.and_) > MOST_ANDS or any(part.and_ for part in found.and_):
        errors = [{"pointer": "/selector/and", "code": "invalid", "detail": f"At most {MOST_ANDS}, and not nested."}]
        raise Problem("validation-failed", errors=errors)
    if actor.tenant_slug:
        if found.tenant not in ("", actor.tenant_slug):
            raise selected_missing("tenant")
        found = msgspec.structs.replace(found, tenant=actor.tenant_slug)
    if not any(getattr(part, name) for part in (found, *found.and_) for name in NARROWS):
        raise Problem(
            "selector-empty", "Name a tenant, a namespace, an epoch, a subject, a session, a label or a class."
        )
    return found


def finer(selector: Selector) -> bool:
    """Whether it means less than whole namespaces."""
    return any(part.prefix or part.older_than is not None for part in (selector, *selector.and_))


def namespaces_of(selector: Selector) -> list[Erasable]:
    """The namespaces of which every part of the selector is true.

    Raises:
        Problem: not-found or not-separable.
    """
    found: dict[UUID, Erasable] | None = None
    for part in (selector, *selector.and_):
        said = {name: getattr(part, name) for name in NARROWS}
        if not any(said.values()) and part is not selector:
            continue
        rows = {row.id: row for row in namespaces_selected(**{**said, "tenant": part.tenant or selector.tenant})}
        found = rows if found is None else {id_: row for id_, row in found.items() if id_ in rows}
    return list((found or {}).values())


def plan_input(*, kind: str, selector: Selector, options: Options, actor: Principal, now: datetime) -> PlanInput:
    """All that a plan of this selector is made of, as it is now.

    Raises:
        Problem: as `namespaces_of`; of finer selectors collateral-needed, catalog-behind.
    """
    if finer(selector):
        if not options.collateral:
            raise Problem(
                "collateral-needed",
                "prefix and older_than mean a part of a namespace: say collateral none (these blocks and all that"
                " continue them go) or"
                " namespace (the whole namespace goes).",
            )
        _require_past(selector, now)
    rows = namespaces_of(selector)
    blocks = None
    if finer(selector):
        blocks = blocks_meant(_generations(rows), (selector, *selector.and_), sample=SAMPLE)
        there = {one.digest for one in blocks.meant}
        rows = [row for row in rows if row.digest in there]
    keyed = blocks if options.collateral == "none" else None
    generations = _generations(rows)
    believed = keyed.held if keyed else owners.held(generations)
    at = {(p.source_id, p.tier): p for p in owners.places()}
    whole = [_target(row, believed.get(row.digest, {}), at) for row in rows]
    targets = tuple(_keyed(whole, keyed.meant) if keyed else whole)
    return PlanInput(
        kind=kind,
        selector=selector,
        targets=targets,
        requester=requester_of(actor),
        options=options,
        pins=tuple(pins_on(rows, now)),
        leases=tuple(leases_on(rows, now)),
        transfers=tuple(transfers_on(rows)),
        holds=tuple(_holds(rows)),
        totals=owners.totals(),
        lost_hits=None if keyed else hits_a_day(rows, now),
        sample=blocks.sample if blocks else owners.sample(generations, SAMPLE) if generations else (),
    )


def _require_past(selector: Selector, now: datetime) -> None:
    """What is made from now on cannot be old."""
    ages = [part.older_than for part in (selector, *selector.and_) if part.older_than is not None]
    if any(age > now.timestamp() for age in ages):
        errors = [{"pointer": "/selector/older_than", "code": "invalid", "detail": "It lies ahead."}]
        raise Problem("validation-failed", errors=errors)


def _generations(rows: Sequence[Erasable]) -> list[tuple[bytes, int]]:
    return [(row.digest, upto(row)) for row in rows]


def _keyed(whole: Sequence[Target], meant: Sequence[Meant]) -> Iterator[Target]:
    """The keys of each namespace as targets; what is held of them stands at the first one."""
    by_ns = {target.ns: target for target in whole}
    for one in meant:
        for name, keys in one.parts():
            target = by_ns[one.digest.hex()]
            yield replace(
                target, group=one.group, keys=name, key_count=len(keys) // KEY, below=one.below, packed=keys
            )  # fmt: skip
            by_ns[target.ns] = replace(target, cells=())


def requester_of(actor: Principal) -> Requester:
    """Who asks, as far as a plan needs it."""
    return Requester(ref=actor.subject, tenant=actor.tenant_slug, rule=actor.kind == "system")


def upto(row: Erasable) -> int:
    """Below which generation everything goes: that which requests carry now is the last to go."""
    return max(row.min_gen, row.generation + 1)


def _target(
    row: Erasable, believed: dict[tuple[int, str], owners.Held], at: dict[tuple[int, str], owners.Place]
) -> Target:
    return Target(
        ns=row.digest.hex(),
        gen_upto=str(upto(row)),
        tenant=row.tenant,
        namespace=str(row.id),
        label=row.label,
        data_class=row.data_class,
        shared_with=row.members,
        share_group=str(row.share_group or ""),
        cells=tuple(_cell(at[place], what) for place, what in sorted(believed.items()) if place in at),
    )


def cell_of(place: owners.Place, what: owners.Held | None, part: float = 1.0) -> Cell:
    """A part of what is believed to be in a place, as a plan has it."""
    size = what or owners.Held(0, 0)
    return _cell(place, owners.Held(round(size.blocks * part), round(size.bytes * part)))


def _cell(place: owners.Place, what: owners.Held) -> Cell:
    return Cell(
        owner=place.owner,
        node=place.node_name,
        source=place.source,
        tier=place.tier,
        dp_rank=place.dp_rank,
        reachable=place.reachable,
        boot=place.boot,
        stream=place.stream,
        seq=place.seq,
        blocks=what.blocks,
        bytes=what.bytes,
    )


def _holds(rows: Sequence[Erasable]) -> list[Blocker]:
    """The legal holds on these namespaces."""
    digests = {row.id: row.digest.hex() for row in rows}
    return [
        Blocker(kind="hold", ref=str(hold.id), ns=digests[namespace], reason=hold.authority)
        for hold, covered in holds_on(set(digests))
        for namespace in sorted(covered)
    ]


def holds_on(namespaces: set[UUID]) -> list[tuple[Hold, set[UUID]]]:
    """Legal holds in force on any of these namespaces, also on those that came after it was placed, with which."""
    every = holds_in_force() if namespaces else []
    return [(hold, covered & namespaces) for hold, covered in every if covered & namespaces]


def holds_in_force() -> list[tuple[Hold, set[UUID]]]:
    """All legal holds in force, with the namespaces that each covers now."""
    found = []
    for hold in Hold.objects.filter(state__in=("active", "releasing")):
        selector = msgspec.convert(hold.selector, Selector)
        try:
            covered = set(hold.namespaces) | {row.id for row in namespaces_of(selector)}
        except Problem:  # what it named is gone by name, not by what was there then
            covered = set(hold.namespaces)
        found.append((hold, covered))
    return found


def tenant_of(rows: Sequence[Erasable], actor: Principal) -> UUID:
    """Whose matter it is: the tenant's where all of it is of one, else the platform's."""
    if actor.tenant_id:
        return actor.tenant_id
    whose = {row.owner for row in rows}
    return whose.pop() if len(whose) == 1 else PLATFORM
