"""Appends audit events, each in the transaction of what it tells.

The only writer of `audit_event`; callers are the services of all apps, in the transaction of their change. There is
no `try` around it: a change whose event cannot be written does not happen.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidTag
from django.db import connections
from django.db.transaction import TransactionManagementError
from msgspec.structs import replace

from audit import disclosure
from audit.drafts import Draft
from audit.drafts import EventRefused as EventRefused
from audit.drafts import actor_ref as actor_ref
from audit.drafts import portable as portable
from audit.drafts import tenant_ref as tenant_ref
from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra import evidence, rest, statements
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.ending import Insert, numbered
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore.leaf import APPROVAL as APPROVAL
from kvcore.leaf import LATE as LATE
from kvcore.leaf import PII

Outcome = Literal["unknown", "success", "failure", "denied"]
AT_ONCE = frozenset({"command.ordered", "order.approved", "approval.decided"})
"""Types that others refer to by hash or leaf: never a part of another event."""
FOLLOWS = (
    *("namespace.generation_bumped", "namespaces.fenced", "token.revoked", "token.issued", "sharing.left"),
    "key.destroyed",
)
"""Types that follow from something else, the least telling first; a call's event is of another type if it can be."""
MOST_ALSO = 100
"""Things that one event tells beside its own."""
_COLUMNS = (
    *("event_id", "event_type", "tenant_id", "tenant_ref", "actor_ref", "outcome", "flags", "body", "body_hash"),
    *("pii_ct", "pii_commit", "pii_key", "object_kind", "object_id", "request_id"),
)
_GIVEN = ("id", "time_us", "producer_id", "producer_seq")
_UUID, _BYTES, _INT2, _INT4, _TEXT = 2950, 17, 21, 23, 25  # oids of pg_type
_INSERT = Insert(
    b"audit_event",
    numbered(
        f"INSERT INTO audit_event ({', '.join(_COLUMNS)}) VALUES ({', '.join(['%s'] * len(_COLUMNS))})"  # noqa: S608
        f" RETURNING {', '.join(_GIVEN)}"
    ),
    (_UUID, _INT4, _UUID, _BYTES, _BYTES, _INT2, _INT2, *(5 * [_BYTES]), *(3 * [_TEXT])),
)


class Recorded(msgspec.Struct):
    """An event that was recorded. To ask for what the database sets has it written, if it was not yet."""

    event_id: UUID
    event_type: int
    tenant_ref: bytes
    actor_ref: bytes
    alias: str = ""
    """Connection; "" = it will be written with what else its call does, perhaps as a part of another event."""
    tenant_id: UUID = PLATFORM
    outcome: int = 0
    flags: int = 0
    body: bytes = b""
    body_hash: bytes = b""
    pii_ct: bytes | None = None
    pii_commit: bytes = b""
    pii_key: bytes | None = None
    object_kind: str = ""
    object_id: str = ""
    request_id: str = ""
    given: list[int] = msgspec.field(default_factory=list)

    @property
    def id(self) -> int:
        """Its key, with the time."""
        return self._given(0)

    @property
    def time_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return self._given(1)

    @property
    def producer_id(self) -> int:
        """Which process wrote it."""
        return self._given(2)

    @property
    def producer_seq(self) -> int:
        """As its how-manieth."""
        return self._given(3)

    def _given(self, at: int) -> int:
        if not self.given:
            statements.put_now(self.alias)
        return self.given[at]


def record(
    *,
    event_type: str,
    outcome: Outcome,
    actor: Principal | None,
    tenant_id: UUID | None,
    object_kind: str,
    object_id: str,
    body: Mapping[str, Any],
    pii: Mapping[str, Any] | None = None,
    request_id: str = "",
    flags: int = 0,
    happened_at: datetime | None = None,
) -> Recorded:
    """The event is in the trail, and on its way into the log, if and only if the current transaction commits.

    It is written ahead of the transaction's next statement, or together with the COMMIT. In a call of an audited route
    it is written at the end of the call's transaction, together with all else that the call records (`events_write`);
    what is answered then has neither body nor numbers. What others refer to by its hash (`AT_ONCE`) is written at once.

    Args:
        event_type: a name of `audit.registry.TYPES`.
        outcome: how it ended.
        actor: who did it; None = nobody that is known.
        tenant_id: whose matter it is; None = the platform's.
        object_kind, object_id: what it was done to.
        body: the data, with the type's fields only and without personal data.
        pii: personal data, sealed under the key of the person it is about (`object_kind` user), else under the
            actor's, else the tenant's; that key can be destroyed.
        request_id: of the request; the current one if not given.
        flags: of `kvcore.leaf`.
        happened_at: when, if it is recorded later than it happened.

    Raises:
        TransactionManagementError: outside a transaction.
        EventRefused: unknown type or field, or a value of another type.
        KeyStoreUnavailable: actor and tenant cannot be named; nothing was written, the caller's change must not be.
    """
    alias = plane()
    if not connections[alias].in_atomic_block:
        raise TransactionManagementError("an audit event needs the transaction of what it tells")
    kind = TYPES.get(event_type)
    if kind is None:
        raise EventRefused(f"{event_type}: unknown type")
    if why := kind.refusal(body):
        raise EventRefused(f"{event_type}: {why}")
    data, personal = portable(body), {**(pii or {})}
    for name in kind.free & data.keys():
        if said := data.pop(name):
            personal[name] = said
    draft = Draft(
        kind=kind,
        event_id=uuid7(),
        outcome=outcome,
        actor=actor,
        tenant=tenant_id or PLATFORM,
        object_kind=object_kind,
        object_id=object_id,
        data=data,
        pii=portable(personal) if personal else personal,
        request_id=request_id or rest.request_id(),
        flags=flags,
        happened_at=happened_at,
    )
    call = evidence.current()
    if call is not None:
        mark = call.mark(alias)
        if alias in call.kept and event_type not in AT_ONCE:
            call.kept[alias].append((mark, draft))
            tenant, who = draft.names().values()
            return Recorded(draft.event_id, kind.number, tenant, who)
    event = _write(alias, draft)
    if event_type in AT_ONCE:
        statements.put_now(alias)
    return event


def events_write(alias: str, drafts: Sequence[Draft]) -> None:
    """What a call recorded is one event: the most telling one, with the others in its body as `also`.

    What cannot be told there (of another tenant, sealed for another person, or beyond `MOST_ALSO`) is an event of its
    own, which names that event as its `cause`, and no request.
    """
    weights = [FOLLOWS.index(d.kind.name) if d.kind.name in FOLLOWS else len(FOLLOWS) for d in drafts]
    at = max(range(len(drafts)), key=lambda i: (weights[i], i))
    main = drafts[at]
    also: list[Draft] = []
    apart: list[Draft] = []
    for one in (d for i, d in enumerate(drafts) if i != at):
        its_own = one.tenant in (main.tenant, PLATFORM) and (not one.pii or one.subject == main.subject)
        (also if its_own and len(also) < MOST_ALSO else apart).append(one)
    written = _write(alias, main, also)
    for one in apart:
        _write(alias, replace(one, request_id="", cause=written.event_id))


def _write(alias: str, draft: Draft, also: Sequence[Draft] = ()) -> Recorded:
    values = draft.columns(also)
    event = Recorded(alias=alias, **values)
    statements.put(_INSERT, _binary(**values), event.given.extend, using=alias)
    return event


def _binary(
    *,
    event_id: UUID,
    event_type: int,
    tenant_id: UUID,
    outcome: int,
    flags: int,
    object_kind: str,
    object_id: str,
    request_id: str,
    **others: bytes | None,
) -> list[bytes | None]:
    return [
        event_id.bytes,
        event_type.to_bytes(4),
        tenant_id.bytes,
        others["tenant_ref"],
        others["actor_ref"],
        outcome.to_bytes(2),
        flags.to_bytes(2),
        *(others["body"], others["body_hash"], others["pii_ct"], others["pii_commit"], others["pii_key"]),
        object_kind.encode(),
        object_id.encode(),
        request_id.encode(),
    ]


def pii_open(event: Event) -> dict[str, Any] | None:
    """The personal data of an event, or None: there is none, or the key of whose it is was destroyed.

    Args:
        event: with all its columns.

    Raises:
        cryptography.exceptions.InvalidTag: the data was altered.
    """
    found = disclosure.disclosed(event)
    if found == disclosure.ALTERED:
        raise InvalidTag
    return msgspec.json.decode(found.text, type=dict) if isinstance(found, disclosure.Disclosed) else None


def pii_verdict(event: Event) -> str:
    """What became of an event's personal data: none, readable, shredded, retired or altered.

    All but the last are valid: the leaf still says what was committed to, and nobody can test it by guessing.
    """
    if event.pii_ct is None:
        return "retired" if event.flags & PII else "none"
    found = disclosure.disclosed(event)
    return found if isinstance(found, str) else "readable"
