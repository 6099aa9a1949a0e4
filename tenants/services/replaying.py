"""Decides what is fenced after a restore: everything that something outside the database proves to have been fenced.

Called by `catalog.restoring`, which asks the nodes. The key store proves it too: the key of a generation is made when
the one before it is fenced, and one that was destroyed can never be used again.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from django.db import connections, transaction

from audit.services import record
from kvconsole.infra import nudge
from kvconsole.infra.access import FLEET_PLANE, Principal
from kvconsole.infra.keystore import keystore, namespace_name
from kvconsole.infra.sql import PLATFORM, named
from kvcore.keys import GENERATION_CLOSED
from tenants import whole
from tenants.models import FenceLife
from tenants.services import resolved


class Comparing(NamedTuple):
    """How far the comparison of the present life is."""

    life: str
    whole: bool
    behind: bool
    answered: frozenset[str]


def comparing() -> Comparing:
    """Where it stands; of an earlier life nothing counts."""
    life = whole.life()
    row = FenceLife.objects.using(FLEET_PLANE).filter(id=1, life=life).first()
    if row is None:
        return Comparing(life, False, False, frozenset())
    return Comparing(life, row.whole, row.behind, frozenset(row.answered))


def fences_behind() -> bool:
    """Whether the key store has seen a fence that the database does not know, or knows of a newer generation."""
    store = keystore()
    mark = store.fence_mark()
    with connections[FLEET_PLANE].cursor() as cursor:
        if mark is not None:
            cursor.execute(named("tenants", "operations.sql")["fence_marked"], mark)
            if cursor.fetchone() is None:
                return True
        return bool(_higher(store.generations()))


def _higher(seen: Mapping[bytes, int]) -> list[bytes]:
    """Namespaces of which something outside proves a higher fence than the database has."""
    if not seen:
        return []
    with connections[FLEET_PLANE].cursor() as cursor:
        columns = list(seen), [min(gen, GENERATION_CLOSED) for gen in seen.values()]
        cursor.execute(named("tenants", "operations.sql")["fences_higher"], columns)
        return [bytes(row[0]) for row in cursor.fetchall()]


def fences_replay(*, seen: Mapping[bytes, int], actor: Principal, now: datetime) -> int:
    """Every namespace among these (digest, generation below which it was fenced) is fenced at least so high; how many.

    What the database does not know is no namespace of anybody, and cannot be looked up.
    """
    found = _higher(seen)
    if not found:
        return 0
    queries = named("tenants", "operations.sql")
    with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
        gens = [min(seen[digest], GENERATION_CLOSED) for digest in found]
        cursor.execute(queries["namespaces_refence"], (GENERATION_CLOSED, found, gens))
        rows = [(row[0], row[1], bytes(row[2]), row[3], row[4]) for row in cursor.fetchall()]
        for _, _, digest, generation, min_gen in rows:
            if min_gen < GENERATION_CLOSED:
                keystore().ensure(namespace_name(digest, generation))
        columns = ([r[1] for r in rows], [r[0] for r in rows], [r[2] for r in rows], [r[4] for r in rows])
        cursor.execute(queries["fences_raise"], (now, *columns))
        latest = max((row[1] for row in cursor.fetchall()), default=0)
        record(
            event_type="fences.replayed",
            outcome="success",
            actor=actor,
            tenant_id=PLATFORM,
            object_kind="fences",
            object_id=whole.life()[:60],
            body={"namespaces": len(rows), "fence_seq": latest, "without": []},
        )
        nudge.on_commit(nudge.FENCES, latest, using=FLEET_PLANE)
        transaction.on_commit(lambda: resolved.forget(), using=FLEET_PLANE, robust=True)
    return len(rows)


def fences_compared(
    *, life: str, behind: bool, answered: Collection[str], done: bool, without: Collection[str], actor: Principal
) -> None:
    """How far the comparison is, is written down; where it is done, everything is answered again.

    Args:
        life: the one that was compared; if another one has begun since, it counts for nothing.
        without: nodes that were not waited for; that is an event.
    """
    fields = {"life": life, "behind": behind, "answered": sorted(answered), "whole": done}
    with transaction.atomic(using=FLEET_PLANE):
        if without:
            record(
                event_type="fences.replayed",
                outcome="success",
                actor=actor,
                tenant_id=PLATFORM,
                object_kind="fences",
                object_id=life[:60],
                body={"namespaces": 0, "fence_seq": 0, "without": sorted(without)},
            )
        FenceLife.objects.using(FLEET_PLANE).update_or_create(id=1, defaults=fields)
    whole.forget()


def fences_mark(seq: int, name: str = "") -> None:
    """The key store remembers the newest fence, so that a database without it is known to be an older one.

    `name`: of the fence, where the caller knows it; else it is read.
    """
    if not name:
        with connections[FLEET_PLANE].cursor() as cursor:
            cursor.execute(named("tenants", "operations.sql")["fence_name"], (seq,))
            row = cursor.fetchone()
        if row is None:
            return
        name = row[0]
    keystore().mark_fence(seq, name)
