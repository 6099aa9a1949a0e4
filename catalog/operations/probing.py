"""Decides what another node is asked to look for in a place, and writes down beforehand what could be looked for.

Once a place is erased nobody knows any more which keys lay there; so some keys of each place in memory are kept with
its first erase, and forgotten when the operation ends. A store that several nodes share is looked through by namespace.
Called by `dispatching` and `certificate`.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from catalog import operation_owners as owners
from catalog.models import Step
from catalog.operations.observing import Seen
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from kvcore.plan_probes import MEMORY_TIERS
from kvcore.plan_steps import StepWish

KEYS_MOST, TARGETS_MOST = 64, 1000
"""Keys that one probe looks for, and namespaces."""


class Probe(NamedTuple):
    """Who looks, and what the command to it says."""

    node: UUID
    args: dict[str, Any]


def node_of(seen: Seen, wish: StepWish) -> UUID:
    """The node that a step goes to: that of its place, or the one that looks at it."""
    place = seen.places[wish.owner]
    if wish.kind != "probe":
        return place.node
    return next((other.node for other in seen.places.values() if other.node_name == wish.node), place.node)


def keys_before(seen: Seen, wishes: Sequence[StepWish]) -> dict[int, list[str]]:
    """Place → some keys of what these erases are about to find in memory."""
    new = [seen.places[w.owner] for w in wishes if w.kind == "erase" and w.tier in MEMORY_TIERS and not w.attempt]
    whole = [(bytes(t.digest), t.min_gen) for t in seen.targets if not t.keys_hash]
    if not new or not whole:
        return {}
    found = owners.samples(whole, MEMORY_TIERS)
    return {
        place.owner: found[place.source_id, place.tier][:KEYS_MOST]
        for place in new
        if (place.source_id, place.tier) in found
    }


def probes_of(seen: Seen, wishes: Sequence[StepWish]) -> dict[str, Probe]:
    """Step → its probe, for every one among the wishes; the node is the one that was chosen when the step was made."""
    probes = [w for w in wishes if w.kind == "probe"]
    if not probes:
        return {}
    kept: dict[int, list[str]] = {}
    rows = Step.objects.filter(operation=seen.operation.id)
    erases = rows.filter(kind="erase", owner__in=[w.owner for w in probes]).order_by("attempt")
    for owner, args in erases.values_list("owner", "args"):
        kept.setdefault(owner, []).extend(args.get("sample", ()))
    chosen = {str(id_): node for id_, node in rows.filter(id__in=[w.step for w in probes]).values_list("id", "node")}
    return {
        w.step: Probe(chosen.get(w.step) or node_of(seen, w), _args(seen, w, kept.get(w.owner, []))) for w in probes
    }


def _args(seen: Seen, wish: StepWish, keys: Sequence[str]) -> dict[str, Any]:
    in_memory = wish.tier in MEMORY_TIERS
    named_: list[dict[str, Any]] = [
        {"ns": t.ns, "gen_upto": t.gen_upto} for t in seen.intent.targets if not t.keys and t.group is None
    ]
    return {
        "node": str(seen.places[wish.owner].node),
        "source": wish.source,
        "tier": wish.tier,
        "targets": [] if in_memory else named_[:TARGETS_MOST],
        "canaries": list(keys)[:KEYS_MOST] if in_memory else [],
        "boot": "" if in_memory else wish.boot,
    }


def samples_forget(operations: Collection[UUID]) -> None:
    """No key is kept any more that was only to be looked for."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "operations.sql")["samples_forget"], (list(operations),))
