"""Reads the records of an export: each event with its leaf, by the places of both in the log."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import connections

from audit.disclosure import ALTERED, SEALED, SHREDDED, Disclosed, Sealed, sealed_of, unsealed
from audit.tree import Ask
from kvconsole.infra import keystore
from kvconsole.infra.access import Principal, plane, tenant_context
from kvcore.leaf import PII

_LEAVES = "SELECT idx, event, time_us, hash, data FROM audit_leaf WHERE idx = ANY(%s) ORDER BY idx"
_RUN = "SELECT idx, event, time_us, hash, data FROM audit_leaf WHERE idx BETWEEN %s AND %s ORDER BY idx"
_EVENTS = (
    "SELECT id, event_id, event_type, time_us, tenant_ref, actor_ref, outcome, flags, producer_id, producer_seq, body,"
    " object_kind, object_id, request_id FROM audit_event"
    " WHERE id = ANY(%s) AND time_us BETWEEN %s AND %s"
)


class Missing(LookupError):
    """A leaf of the log has no event any more, or a place of the log no leaf: nothing true can be exported."""


class Record(msgspec.Struct, frozen=True):
    """One event with its place in the log."""

    index: int
    hash: bytes
    leaf: bytes
    event_id: UUID
    event_type: int
    time_us: int
    tenant_ref: bytes
    actor_ref: bytes
    outcome: int
    flags: int
    producer_id: int
    producer_seq: int
    body: bytes
    """Verbatim; empty: it was retired."""
    object_kind: str
    object_id: str
    request_id: str
    personal: Disclosed | str | None
    """Opened, `sealed` or `shredded`; None: it has none."""


def read(
    indexes: Sequence[int], *, ask: Ask, reader: Principal, opened: bool, sealed: psycopg.Connection[Any]
) -> list[Record]:
    """The records at these places, in their order.

    Args:
        indexes: places in the log, ascending.
        ask: the tables of that log.
        reader: as whom; what its tenant may not see is missing.
        opened: with personal data that can still be read.
        sealed: a connection as kv_audit, for the columns that only it sees.

    Raises:
        Missing: a place has no leaf, or a leaf no event that the reader may see.
    """
    if not indexes:
        return []
    first, last = indexes[0], indexes[-1]
    run = last - first + 1 == len(indexes)
    leaves = ask(_RUN, (first, last)) if run else ask(_LEAVES, (list(indexes),))
    if len(leaves) != len(indexes):
        raise Missing(f"of the {len(indexes)} leaves from {first} to {last} there are {len(leaves)}")
    times = [leaf[2] for leaf in leaves]
    with tenant_context(reader):
        rows = _rows(plane(), _EVENTS, ([leaf[1] for leaf in leaves], min(times), max(times)))
    events = {(row[0], row[3]): row for row in rows}
    found = [(leaf, events.get((leaf[1], leaf[2]))) for leaf in leaves]
    kept = sealed_of({row[0]: row[3] for _, row in found if row and row[7] & PII}, sealed)
    return [_record(leaf, row, kept.get(leaf[1]), opened) for leaf, row in found]


def _rows(alias: str, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _record(leaf: tuple[Any, ...], row: tuple[Any, ...] | None, kept: Sealed | None, opened: bool) -> Record:
    if row is None:
        raise Missing(f"the leaf {leaf[0]} has no event")
    _, event_id, event_type, time_us, tenant_ref, actor_ref, *_ = row
    personal: Disclosed | str | None = None
    if row[7] & PII:
        personal = _personal(kept, event_id, opened) if kept else SHREDDED  # it went with its body
    return Record(
        index=leaf[0],
        hash=bytes(leaf[3]),
        leaf=bytes(leaf[4]),
        event_id=event_id,
        event_type=event_type,
        time_us=time_us,
        tenant_ref=bytes(tenant_ref),
        actor_ref=bytes(actor_ref),
        outcome=row[6],
        flags=row[7],
        producer_id=row[8],
        producer_seq=row[9],
        body=bytes(row[10] or b""),
        object_kind=row[11],
        object_id=row[12],
        request_id=row[13],
        personal=personal,
    )


def _personal(kept: Sealed, event_id: UUID, opened: bool) -> Disclosed | str:
    if opened:
        found = unsealed(kept, event_id)
        return SEALED if found == ALTERED else found
    try:
        keystore.keystore().secret(f"subject-{kept.key.hex()}")
    except keystore.KeyMissing:
        return SHREDDED
    return SEALED
