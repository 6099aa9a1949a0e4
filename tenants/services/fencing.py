"""Decides how many namespaces are fenced at once, for good, and how the keys of what is fenced end.

Called by the catalog's operations, in the transaction that records why. One statement each, whatever their number: the
fence of a tenant is as durable, and nearly as quick, as that of one namespace. The keys of the next generations are
made durable beside that, several at a time, and are there before the commit.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections, transaction

from audit.services import record
from audit.standing import need_log
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import keystore, namespace_name
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM, named
from kvcore.keys import GENERATION_CLOSED
from tenants.constants import epoch_named
from tenants.models import Epoch, Model, Namespace
from tenants.services import resolved
from tenants.services.replaying import fences_mark

KEYS_AT_ONCE = 8


class Fenced(NamedTuple):
    """A namespace of which everything below `min_gen` is fenced, at position `fence_seq` of the fence log."""

    namespace: UUID
    tenant: UUID
    digest: bytes
    min_gen: int
    fence_seq: int


def namespaces_fence(
    *, namespaces: Collection[UUID], reason: str, actor: Principal | None, now: datetime, close: bool = False
) -> list[Fenced]:
    """Each namespace has its next generation, below which everything is fenced, on its way to all holders.

    What is closed is fenced too: its blocks may still lie somewhere.

    Args:
        namespaces: ids, as far as the current plane shows them.
        reason: a word for the log, not free text.
        close: for good: no request is resolved for them any more, whatever the generation.
    """
    if not namespaces:
        return []
    queries, ids = named("tenants", "operations.sql"), sorted(namespaces)
    with (
        transaction.atomic(using=plane()),
        connections[plane()].cursor() as cursor,
        ThreadPoolExecutor(KEYS_AT_ONCE, "keys") as makers,
    ):
        cursor.execute(queries["namespaces_close" if close else "namespaces_fence"], (GENERATION_CLOSED, ids))
        rows = [(row[0], row[1], bytes(row[2]), row[3], row[4]) for row in cursor.fetchall()]
        making = _keys_ensure(makers, ((r[2], r[3]) for r in rows if r[4] < GENERATION_CLOSED))
        columns = ([r[1] for r in rows], [r[0] for r in rows], [r[2] for r in rows], [r[4] for r in rows])
        cursor.execute(queries["fences_raise"], (now, *columns))
        raised = {bytes(digest): (seq, name) for digest, seq, name in cursor.fetchall()}
        fenced = [Fenced(ns, tenant, digest, min_gen, raised[digest][0]) for ns, tenant, digest, _, min_gen in rows]
        _record(fenced, reason, actor)
        for one in making:
            one.result()
        latest, name = max(raised.values(), default=(0, ""))
        nudge.on_commit(nudge.FENCES, latest, using=plane())
        transaction.on_commit(lambda: fences_mark(latest, name), using=plane(), robust=True)
        transaction.on_commit(lambda: resolved.forget(), using=plane(), robust=True)
    return fenced


def _keys_ensure(makers: ThreadPoolExecutor, generations: Iterable[tuple[bytes, int]]) -> list[Future[bytes]]:
    """The keys of these (digest, generation) are being made, as the caller would make them: a rehearsal makes none."""
    store = keystore()
    return [makers.submit(copy_context().run, store.ensure, namespace_name(*one)) for one in generations]


def _record(fenced: Sequence[Fenced], reason: str, actor: Principal | None) -> None:
    """One event a tenant, that names them by the hash of their digests."""
    by_tenant: dict[UUID, list[Fenced]] = {}
    for one in fenced:
        by_tenant.setdefault(one.tenant, []).append(one)
    for tenant, some in by_tenant.items():
        listed = hashlib.sha256(b"".join(sorted(f.digest + f.min_gen.to_bytes(8, "big") for f in some)))
        record(
            event_type="namespaces.fenced",
            outcome="success",
            actor=actor,
            tenant_id=actor.tenant_id if actor and actor.tenant_id else tenant,
            object_kind="tenant",
            object_id=str(tenant),
            body={
                "namespaces": len(some),
                "fence_seq": max(f.fence_seq for f in some),
                "reason": reason,
                "fences_hash": listed.hexdigest(),
            },
        )


def generations_shred(
    *, generations: Collection[tuple[bytes, int]], tenant_id: UUID, operation: str, actor: Principal
) -> int:
    """The keys of these generations (digest, below which) are destroyed for good; how many there were.

    They are destroyed last, within the transaction: should it fail then, the data is gone and the call can be repeated.

    Raises:
        Problem: audit-unavailable; no key was destroyed.
    """
    need_log()
    store, names = keystore(), _made(generations)
    there = sum(store.exists(name) for name in names)
    with transaction.atomic(using=plane()):
        record(
            event_type="key.destroyed",
            outcome="success",
            actor=actor,
            tenant_id=tenant_id,
            object_kind="operation",
            object_id=operation,
            body={"kind": "namespace", "keys": there},
        )
        for name in names:
            store.destroy(name)
    return there


def generations_shredded(generations: Collection[tuple[bytes, int]]) -> bool:
    """Whether no key of these generations (digest, below which) is there."""
    store = keystore()
    return not any(store.exists(name) for name in _made(generations))


def _made(generations: Collection[tuple[bytes, int]]) -> list[str]:
    """Names of the keys that these namespaces can have had below a generation."""
    rows = Namespace.objects.filter(digest__in=[digest for digest, _ in generations])
    last = {bytes(digest): generation for digest, generation in rows.values_list("digest", "generation")}
    return [
        namespace_name(digest, n)
        for digest, upto in generations
        for n in range(1, min(upto, last.get(digest, 0) + 1))
    ]  # fmt: skip


def epoch_close(*, epoch: str, policy: str, actor: Principal) -> None:
    """No request is resolved for the epoch (`model/number`) any more; what is there of it is the caller's matter.

    Raises:
        Problem: not-found, or conflict: it is over already.
    """
    model, number = epoch_named(epoch)
    with transaction.atomic(using=plane()):
        mine = Model.objects.filter(name=model, tenant_id=actor.tenant_id or PLATFORM)
        known = Epoch.objects.select_for_update(no_key=True).filter(model__in=mine)
        row = None if number is None else known.filter(epoch=number).first()
        if row is None:
            raise Problem("not-found")
        if row.state != "open":
            raise Problem("conflict", "The epoch is retired already.")
        _turn(row, "retired", "epoch.retired", {"model": model, "epoch": row.epoch, "policy": policy}, actor)


def epoch_reopen(*, epoch: str, operation: str, actor: Principal) -> None:
    """Requests are resolved for the epoch (`model/number`) again: its drain was stopped before anything was fenced."""
    model, number = epoch_named(epoch)
    if number is None:
        return
    with transaction.atomic(using=plane()):
        mine = Model.objects.filter(name=model, tenant_id=actor.tenant_id or PLATFORM)
        known = Epoch.objects.select_for_update(no_key=True).filter(model__in=mine, epoch=number)
        row = known.filter(state="retired").first()
        if row is None:
            return
        _turn(row, "open", "epoch.reopened", {"model": model, "epoch": row.epoch, "operation": operation}, actor)


def _turn(row: Epoch, state: str, event_type: str, body: dict[str, Any], actor: Principal) -> None:
    """The epoch is in this state, and the event says so. In a transaction."""
    row.state = state
    row.save(update_fields=["state"])
    record(
        event_type=event_type, outcome="success", actor=actor, tenant_id=row.tenant_id, object_kind="epoch",
        object_id=str(row.id), body=body,
    )  # fmt: skip
    transaction.on_commit(lambda: resolved.forget(), using=plane(), robust=True)
