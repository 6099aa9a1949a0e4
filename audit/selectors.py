"""Reads the log: which events somebody asks for, page by page and newest first, each with its place in the log.

A tenant's session sees the tenant's own events: row-level security decides that, not a filter here. Places in the log
are asked for over the fleet's plane, by the ids of events that the reader has seen already.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import connections
from django.db.models import Min, Q, QuerySet
from django.utils.module_loading import import_string

from audit import disclosure
from audit.contents import MARK, UNREADABLE, Content, content_of
from audit.models import Delivery, Event, Finding, Job, Webhook
from audit.registry import TYPES
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.sql import PLATFORM
from kvconsole.infra.statements import Rows
from kvcore.leaf import PII

OUTCOMES = ("unknown", "success", "failure", "denied")
FLAGS = {1: "personal_data", 2: "agent_signed", 4: "break_glass", 8: "late", 16: "approval", 32: "restore"}
PAGE, MOST = 50, 500
NEWER = 100
"""So many events that came since are counted; more are told as this many."""
REFUSALS = 5_000
"""So many refusals are looked through for attempts to approve one's own wishes."""
NAMES = {kind.number: kind.name for kind in TYPES.values()}
_DAY_US = 86_400_000_000
_REF = re.compile(r"[0-9a-f]{32}")
_LEAVES = "SELECT event, idx, hash, epoch, time_us FROM audit_leaf_all WHERE event = ANY(%s)"
_COLUMNS = (
    *("id", "event_id", "event_type", "time_us", "tenant_id", "tenant_ref", "actor_ref", "outcome", "flags"),
    *("producer_id", "producer_seq", "body", "body_hash", "pii_commit", "object_kind"),
    *("object_id", "request_id"),
)


class EventFilter(msgspec.Struct, frozen=True):
    """Which events are meant; "" and None do not narrow.

    Attributes:
        actor: a person's log-in name or id, a subject (`node:…`), or a name of the log (32 hex digits).
        action: a type (`token.issued`), or the noun of several (`token`).
        object: a kind (`token`), or a kind and an id (`token:…`).
        tenant: its slug or id; `platform`.
        outcome: one of `OUTCOMES`.
        request_id: of the request.
        since: the first moment.
        until: the moment after the last.
    """

    actor: str = ""
    action: str = ""
    object: str = ""
    tenant: str = ""
    outcome: str = ""
    request_id: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def narrows(self) -> bool:
        """Whether it leaves events out for another reason than their time."""
        return any((self.actor, self.action, self.object, self.tenant, self.outcome, self.request_id))


class Place(msgspec.Struct, frozen=True):
    """Where an event is in the log."""

    index: int
    hash: bytes
    epoch: int = 1
    """Number of the log: 1 is the first one."""
    time_us: int = 0
    """Of the event that was sealed there: another one under its number is not in the log."""


class EventView(msgspec.Struct, frozen=True):
    """An event as its reader sees it. `index` None: not in the log yet. `epoch`: in which one of several."""

    id: UUID
    index: int | None
    epoch: int | None
    leaf_hash: str
    time: datetime
    action: str
    number: int
    outcome: str
    tenant_id: UUID
    tenant_ref: str
    actor_ref: str
    actor_kind: str
    actor_roles: list[str]
    object_kind: str
    object_id: str
    request_id: str
    flags: list[str]
    producer_id: int
    producer_seq: int
    data: dict[str, Any] | None
    """None: its body was retired; the leaf stays."""
    body_hash: str
    personal: Any
    """A mapping, `shredded`, `retired`, `sealed` (not for this reader), `altered`, or None: there is none."""


class EventPage(NamedTuple):
    """Some events, newest first, and where older and newer ones are; "" = there are none."""

    items: list[EventView]
    older: str
    newer: str


def selected(asked: EventFilter) -> QuerySet[Event]:
    """The events that are meant, of those that the current plane shows, in no order yet.

    Indexes: audit_event_time, _actor, _kind, _object, _tenant, _request, _unusual.
    """
    rows = Event.objects.only(*_COLUMNS)
    if asked.since is not None:
        rows = rows.filter(time_us__gte=micros(asked.since))
    if asked.until is not None:
        rows = rows.filter(time_us__lt=micros(asked.until))
    for narrowed in (_by_tenant(asked), _by_action(asked), _by_object(asked), _by_actor(asked)):
        rows = rows.filter(narrowed)
    if asked.outcome:
        rows = rows.filter(outcome=OUTCOMES.index(asked.outcome))
    return rows.filter(request_id=asked.request_id) if asked.request_id else rows


def event_rows(asked: EventFilter) -> Rows:
    """The same, newest first, as a list of REST is made of."""
    return Rows(lambda: selected(asked), columns=_COLUMNS, key=("time_us", "id"), newest=True, kept=False)


def events(asked: EventFilter, cursor: str = "", *, reader: Principal, limit: int = PAGE) -> EventPage:
    """A page of events for pages of the console; REST has signed cursors of its own over the same rows.

    Args:
        asked: which.
        cursor: `older` or `newer` of another page; what is none is the newest page.
        reader: who sees them.
        limit: at most so many, up to `MOST`.
    """
    backwards, at = cursor.startswith("~"), _position(cursor.removeprefix("~"))
    rows, limit = selected(asked), min(limit, MOST)
    if at is not None:
        rows = rows.filter(_beyond(*at, newer=backwards))
    order = ("time_us", "id") if backwards and at else ("-time_us", "-id")
    found = list(rows.order_by(*order)[: limit + 1])
    more, found = len(found) > limit, found[:limit]
    if backwards and at:
        found.reverse()
    older = more if not (backwards and at) else True
    newer = more if backwards and at else at is not None
    first, last = (f"{e.time_us}.{e.id}" for e in (found[0], found[-1])) if found else ("", "")
    views = event_views(found, reader=reader)
    return EventPage(views, last if older and found else "", f"~{first}" if newer and found else "")


def newer(asked: EventFilter, after: datetime, *, but: UUID) -> int:
    """How many of the events that are meant came after this moment, without one, at most `NEWER`. Index: _time."""
    since = max(asked.since, after) if asked.since else after
    rows = selected(msgspec.structs.replace(asked, since=since))
    return rows.filter(time_us__gt=micros(after)).exclude(event_id=but).values("id")[:NEWER].count()


def places_of(ids: Collection[UUID]) -> dict[UUID, int]:
    """Where events are in the log, by their UUID; those that are there, of those that the current plane shows."""
    if not (near := _near(ids)):
        return {}
    known = list(Event.objects.filter(near, event_id__in=ids).values_list("event_id", "id", "time_us"))
    found = places([event for _, event, _ in known])
    at = [(name, place_of(event, time_us, found)) for name, event, time_us in known]
    return {name: place.index for name, place in at if place}


def event(event_id: UUID) -> Event | None:
    """One event that the current plane shows. Index: audit_event_uuid; ids hold their time, so one month is asked."""
    rows = Event.objects.only(*_COLUMNS).filter(event_id=event_id)
    near = _near([event_id])
    return (rows.filter(near).first() if near else None) or rows.first()


def _near(ids: Collection[UUID]) -> Q:
    """A day around the times that such ids hold; empty where none holds one."""
    at = [(one.int >> 80) * 1000 for one in ids if one.version == 7]
    return Q(time_us__gte=min(at) - _DAY_US, time_us__lt=max(at) + _DAY_US) if at else Q()


def places(ids: Collection[int]) -> dict[int, Place]:
    """Where events are in the log, by their `id`; what is not sequenced is not there. Index: audit_leaf by event."""
    if not ids:
        return {}
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_LEAVES, [list(ids)])
        return {event: Place(index, bytes(hash_), *more) for event, index, hash_, *more in cursor.fetchall()}


def place_of(event: int, time_us: int, found: Mapping[int, Place]) -> Place | None:
    """Of those found, the place of this event; None: it is not in the log."""
    place = found.get(event)
    return place if place is not None and place.time_us == time_us else None


def event_views(rows: Sequence[Event], *, reader: Principal) -> list[EventView]:
    """The events as they are shown; one query for all their places."""
    found, opened = places([row.id for row in rows]), reader.may("auditor")
    there = {row.id: row.time_us for row in rows if row.flags & PII} if opened else {}
    sealed = disclosure.sealed_of(there)
    at = [place_of(row.id, row.time_us, found) for row in rows]
    return [event_view(row, place, sealed.get(row.id), opened=opened) for row, place in zip(rows, at, strict=True)]


def event_view(row: Event, place: Place | None, sealed: disclosure.Sealed | None, *, opened: bool) -> EventView:
    """One event as it is shown.

    Args:
        row: the event.
        place: where it is in the log.
        sealed: its personal data, where it was asked for.
        opened: whether its personal data is shown.
    """
    raw = bytes(row.body or b"")
    said = content_of(raw)
    return EventView(
        id=row.event_id,
        index=place.index if place else None,
        epoch=place.epoch if place else None,
        leaf_hash=place.hash.hex() if place else "",
        time=moment(row.time_us),
        action=NAMES.get(row.event_type, f"0x{row.event_type:04x}"),
        number=row.event_type,
        outcome=OUTCOMES[row.outcome],
        tenant_id=row.tenant_id,
        tenant_ref=bytes(row.tenant_ref).hex(),
        actor_ref=bytes(row.actor_ref).hex(),
        actor_kind=said.actor.kind,
        actor_roles=said.actor.roles,
        object_kind=row.object_kind,
        object_id=row.object_id,
        request_id=row.request_id,
        flags=flags_of(row.flags, said),
        producer_id=row.producer_id,
        producer_seq=row.producer_seq,
        data=said.data if raw else None,
        body_hash=bytes(row.body_hash).hex(),
        personal=disclosure.shown(row, sealed, opened=opened),
    )


def flags_of(flags: int, said: Content) -> list[str]:
    """The words for what a leaf's flags say, and whether the body can be read."""
    return [*(name for bit, name in FLAGS.items() if flags & bit), *([MARK] if said is UNREADABLE else [])]


def own_approvals(since: datetime) -> list[EventView]:
    """Attempts to approve what one had asked for oneself, newest first, of the latest refusals. Index: _kind."""
    rows = Event.objects.only(*_COLUMNS).filter(event_type=TYPES["access.refused"].number, time_us__gte=micros(since))
    found = [row for row in rows.order_by("-time_us", "-id")[:REFUSALS] if b'"approval-own"' in bytes(row.body)]
    return [event_view(row, None, None, opened=False) for row in found]


def jobs(kind: Any = "") -> QuerySet[Job]:
    """Exports and verifications that the current plane shows, or those of one kind."""
    return Job.objects.filter(kind=kind) if kind else Job.objects.all()


def findings(state: Any = "") -> QuerySet[Finding]:
    """What was found amiss in the log: all of it, or what is open or closed."""
    rows = Finding.objects.all()
    return rows.filter(resolved_at__isnull=state == "open") if state else rows


def webhooks() -> QuerySet[Webhook]:
    """Webhooks that the current plane shows: a tenant its own, the fleet its own."""
    return Webhook.objects.filter(tenant_id=PLATFORM) if plane() == FLEET_PLANE else Webhook.objects.all()


def deliveries(webhook: Any) -> QuerySet[Delivery]:
    """What was sent to one webhook, by its id."""
    return Delivery.objects.filter(webhook=webhook)


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return int(at.timestamp()) * 1_000_000 + at.microsecond


def moment(time_us: int) -> datetime:
    """The time of an event, in UTC."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)


# --- filters ------------------------------------------------------------------------------

_NOTHING = Q(pk__in=[])


def _by_tenant(asked: EventFilter) -> Q:
    if not asked.tenant:
        return Q()
    found = tenant_named(asked.tenant)
    return _NOTHING if found is None else Q(tenant_id=found)


def tenant_named(text: str) -> UUID | None:
    """The tenant of this slug or id, as far as the current plane shows it."""
    if text == "platform":
        return PLATFORM
    try:
        return UUID(text)
    except ValueError:
        found: UUID | None = import_string(settings.TENANT_FINDER)(text)
        return found


def _by_action(asked: EventFilter) -> Q:
    if not asked.action:
        return Q()
    if asked.action in TYPES:
        return Q(event_type=TYPES[asked.action].number)
    numbers = [kind.number for kind in TYPES.values() if kind.name.startswith(f"{asked.action.removesuffix('.*')}.")]
    return Q(event_type__in=numbers) if numbers else _NOTHING


def _by_object(asked: EventFilter) -> Q:
    if not asked.object:
        return Q()
    kind, of_one, object_id = asked.object.partition(":")
    return Q(object_kind=kind, object_id=object_id) if of_one else Q(object_kind=kind)


def _by_actor(asked: EventFilter) -> Q:
    if not asked.actor:
        return Q()
    if _REF.fullmatch(asked.actor):
        return Q(actor_ref=bytes.fromhex(asked.actor))
    first, now = _first(), datetime.now(UTC)
    since, until = max(asked.since or first, first), min(asked.until or now, now)
    refs = [ref for subject in _subjects(asked.actor) for ref in disclosure.actor_refs(subject, since, until)]
    return Q(actor_ref__in=refs) if refs else _NOTHING


def actor_said(text: str) -> str:
    """The actor of a filter without a person's name, to be kept: a subject, or a name of the log; "" = any."""
    if not text or ":" in text or _REF.fullmatch(text):
        return text
    return next(iter(_subjects(text)), "nobody:unknown")


def _subjects(text: str) -> list[str]:
    """Whom a name means: a subject says it itself, an id is a person's, any other word a log-in name."""
    if ":" in text:
        return [text]
    try:
        return [f"user:{UUID(text)}"]
    except ValueError:
        found: list[str] = import_string(settings.SUBJECT_FINDER)(text)
        return found


def _first() -> datetime:
    """When the first event was. Index: audit_event_time."""
    found = Event.objects.aggregate(first=Min("time_us"))["first"]
    return datetime.now(UTC) if found is None else moment(found)


def _position(text: str) -> tuple[int, int] | None:
    time_us, _, event = text.partition(".")
    if not (time_us.isdecimal() and event.isdecimal() and len(text) < 40 and text.isascii()):
        return None
    return int(time_us), int(event)


def _beyond(time_us: int, event: int, *, newer: bool) -> Q:
    """Behind this event; that the time is not before is said by itself, as an index takes up from there."""
    if newer:
        return Q(time_us__gte=time_us) & (Q(time_us__gt=time_us) | Q(id__gt=event))
    return Q(time_us__lte=time_us) & (Q(time_us__lt=time_us) | Q(id__lt=event))
