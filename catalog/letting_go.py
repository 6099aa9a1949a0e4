"""Decides whether what a drain finds no room for may be let go: it destroys last copies, and asks what deletions ask.

A drain has no way to ask a second person: what would need one is refused before anything begins. What a legal hold
keeps is never let go, neither what is on hold now nor what will be while it runs (`catalog.operations.moving`). Called
by `move_requests`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from catalog import operation_owners as owners
from catalog.operation_plans import holds_on
from catalog.operation_requests import DESTROY
from catalog.windows import need_open
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem, add_codes
from kvcore.risk import Risk, Stakes, risk
from tenants.erasing import Erasable

add_codes({"recompute-too-grave": (409, "What would be let go needs a second person, and a drain cannot ask one")})
DESTROYER = "destructive-operator"
SLACK = 2
"""Room is an estimate and blocks have a size: so many times what seems to have none may go, and not more."""
Held = Mapping[bytes, Mapping[tuple[int, str], owners.Held]]


class Loss(msgspec.Struct, frozen=True):
    """What of a place may go at most, in bytes, and whose namespaces that may be."""

    place: owners.Place
    bytes: int
    rows: tuple[Erasable, ...]


def phrase_of(node: str) -> str:
    """What has to be typed before blocks of the node are let go."""
    return f"recompute {node}"


def need_destroyer(actor: Principal, now: datetime) -> None:
    """Passes for whom deletions of the fleet are for, with the proof that they need.

    Raises:
        Problem: forbidden, step-up-required or scope-missing.
    """
    if not actor.may(DESTROYER):
        raise Problem("forbidden", f"recompute destroys what has no room elsewhere: it needs the role {DESTROYER}.")
    if code := actor.unproven(DESTROY, now.timestamp()):
        raise Problem(code, f"The token must have the scope {DESTROY}." if code == "scope-missing" else "")


def losses(short: Iterable[tuple[owners.Place, int]], rows: Sequence[Erasable], held: Held) -> list[Loss]:
    """What may go of each place where so many bytes have no room elsewhere; what a hold keeps is none of it."""
    kept: set[UUID] = set().union(*(covered for _, covered in holds_on({row.id for row in rows})))
    found = []
    for place, size in short:
        at = place.source_id, place.tier
        mine = tuple(row for row in rows if row.id not in kept and at in held.get(row.digest, {}))
        most = min(SLACK * size, sum(held[row.digest][at].bytes for row in mine))
        if most > 0:
            found.append(Loss(place, most, mine))
    return found


def risk_of(found: Sequence[Loss]) -> tuple[Risk, tuple[str, ...]]:
    """As a deletion of it would have, and R2 at least."""
    rows = [row for loss in found for row in loss.rows]
    sizes: dict[str, int] = {}
    for loss in found:
        sizes[loss.place.tier] = sizes.get(loss.place.tier, 0) + loss.bytes
    totals = owners.totals() if found else {}
    stakes = Stakes(
        width="namespace", own=False, bytes=sum(sizes.values()),
        part=max((size / max(totals.get(tier, 0), size) for tier, size in sizes.items()), default=0.0),
        tenants=len({name for row in rows for name in (row.tenant, *row.members)}),
        shared=any(row.members for row in rows), restricted=any(row.data_class == "restricted" for row in rows),
        crypto_erase=False, pins_overridden=False,
    )  # fmt: skip
    level, reasons = risk(stakes)
    return max(level, Risk.R2), reasons


def need_agreed(found: Sequence[Loss], *, node: str, phrase: str, reason: str, tenant_id: UUID, now: datetime) -> Risk:
    """The risk of letting it go, where all is said that this risk asks for.

    Raises:
        Problem: recompute-too-grave, deny-window, reason-needed or confirm-phrase-wrong; nothing was begun.
    """
    level, reasons = risk_of(found)
    size = sum(loss.bytes for loss in found)
    if level >= Risk.R3:
        raise Problem(
            "recompute-too-grave",
            f"Its risk is {level} ({', '.join(reasons)}): up to {size} bytes would go. Nothing was begun and nothing"
            " was let go: drain without recompute, and delete what stays with a plan.",
        )
    need_open(tenant_id, level, now)
    if not reason.strip():
        raise Problem("reason-needed")
    if " ".join(phrase.split()).casefold() != phrase_of(node).casefold():
        raise Problem("confirm-phrase-wrong", f"Up to {size} bytes would go. Type: {phrase_of(node)}")
    return level
