"""REST of what is announced and what was lost: hints of sessions, prefixes that will be needed, trust, lost hits."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.rules.sessions import session_end
from kvconsole.infra.access import Principal, audited, counted, route
from kvconsole.infra.calls import call, caller
from kvconsole.infra.rest import Problem, Strict
from kvcore.blocks import TIERS
from kvcore.hints import BLOCKS_MOST, ETA_MOST_MS, PRIORITIES
from kvcore.residency import PLACE
from routing import hints
from routing.lost_hits import Lost, lost_hits
from tenants.erasing import ErasableTenant, erasable_tenant, namespaces_selected

ENDERS = ("operator", "destructive-operator", "tenant-admin", "gateway")
READERS = ("viewer", "operator", "destructive-operator", "auditor", "tenant-admin", "tenant-member", "gateway")
END = "end"
"""The hint that starts a deletion: it is intent and leaves an event, as does what is refused before it is known which
hint it is; the others are counted."""
KEY, DIGEST = r"^[0-9a-f]{64}\Z", r"^([0-9a-f]{64}|[0-9a-f-]{36})\Z"
SPAN_MOST = timedelta(days=31)
TENANT = OpenApiParameter("tenant", str, description="Whose; a tenant's own callers may leave it out")
LOST = [
    TENANT,
    OpenApiParameter("namespace", str, description="Only of this namespace: its digest"),
    OpenApiParameter("from", datetime, description="RFC 3339; an hour ago if not said"),
    OpenApiParameter("to", datetime, description="RFC 3339; now if not said; at most 31 days after `from`"),
]


class HintIn(Strict):
    """Body of POST /sessions/{id}/hints. `tenant`: whose session it is; a tenant's own callers may leave it out.

    `namespace` and `block_keys` say which prefix is the session's where its blocks are not apart from the rest.
    """

    event = serializers.ChoiceField(
        [END, "tool_start", "tool_end"],
        help_text="end: nobody comes back to it; what is cached of it goes. tool_start: it comes back after a tool, in"
        " `eta_ms`. tool_end: the tool has ended.",
    )
    tenant = serializers.RegexField(PLACE, max_length=63, required=False)
    eta_ms = serializers.FloatField(min_value=0, max_value=ETA_MOST_MS, required=False)
    confidence = serializers.FloatField(min_value=0, max_value=1, default=1.0)
    namespace = serializers.RegexField(DIGEST, required=False)
    block_keys = serializers.ListField(
        child=serializers.RegexField(KEY), min_length=1, max_length=BLOCKS_MOST, required=False
    )


class AnnouncedOut(serializers.Serializer[Any]):
    """An announcement that was taken. `reason`: why nothing is done; "" = something is, or (`wished`) will be tried.

    `believed`: how far, from 0 to 1. `slot_kept` is always false: keeping blocks keeps no worker's slot.
    """

    id = serializers.UUIDField()
    effect = serializers.ChoiceField([hints.KEPT, hints.WISHED, hints.FETCHED, hints.NOTHING])
    reason = serializers.CharField()
    until = serializers.DateTimeField()
    blocks = serializers.IntegerField()
    believed = serializers.FloatField()
    trust = serializers.FloatField()
    slot_kept = serializers.BooleanField()
    operation = serializers.UUIDField(allow_null=True)


class HintOut(AnnouncedOut):
    """What came of a hint. `operation`: of an end, what takes away what was cached; null = nothing of it was cached.

    The other fields are of a tool's start and end.
    """

    id = serializers.UUIDField(required=False)
    effect = serializers.ChoiceField([hints.KEPT, hints.NOTHING], required=False)
    reason = serializers.CharField(required=False)
    until = serializers.DateTimeField(required=False)
    blocks = serializers.IntegerField(required=False)
    believed = serializers.FloatField(required=False)
    trust = serializers.FloatField(required=False)
    slot_kept = serializers.BooleanField(required=False)


class TrustOut(serializers.Serializer[Any]):
    """How far what a tenant announces is believed (`share`, from 0 to 1), and what became of it within `days`."""

    share = serializers.FloatField()
    came = serializers.IntegerField()
    missed = serializers.IntegerField()
    open = serializers.IntegerField()
    unseen = serializers.IntegerField()
    days = serializers.IntegerField()


class SaidOut(serializers.Serializer[Any]):
    """One hint of a session and what became of it."""

    id = serializers.UUIDField()
    said_at = serializers.DateTimeField()
    until = serializers.DateTimeField()
    effect = serializers.CharField()
    reason = serializers.CharField()
    believed = serializers.FloatField()
    blocks = serializers.IntegerField()
    state = serializers.ChoiceField(["open", "came", "missed", "unseen"])
    came_at = serializers.DateTimeField(allow_null=True)


class HintsOut(serializers.Serializer[Any]):
    """The newest hints of a session, and its tenant's trust."""

    items = SaidOut(many=True)
    trust = TrustOut()


class SessionHints(APIView):
    """Hints about a session."""

    @call("session_hints_list", answer=HintsOut, query=[TENANT], refusals=("not-found", "validation-failed"))
    def get(self, request: Request, session: str) -> Response:
        """What was announced of the session and whether it came, newest first, at most 50; kept for 7 days."""
        tenant, now = _tenant(request.query_params.get("tenant", "")), datetime.now(UTC)
        fields = SaidOut().fields.keys()
        said = [{name: getattr(row, name) for name in fields}
                for row in hints.announcements_of(tenant=tenant.id, session=session)]  # fmt: skip
        trust = msgspec.to_builtins(hints.trust_view(tenant=tenant.id, now=now))
        return Response(HintsOut({"items": said, "trust": trust}).data)

    @call(
        "session_hints_create", body=HintIn, answer=HintOut, status=202,
        refusals=("not-found", "not-separable", "audit-unavailable", "validation-failed", "hints-too-many"),
        counted=lambda fields: fields["event"] != END,
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], session: str) -> Response:
        """The session has ended: what was cached of it is fenced and erased, once, however often it is said. Or a tool
        runs: what is cached of it is kept for a while, as far as the tenant's announcements came true before."""
        who, now, event = caller(), datetime.now(UTC), fields.pop("event")
        tenant = _slug(fields.pop("tenant", ""), who)
        if event == END:
            made = session_end(tenant=tenant, session=session, actor=who, now=now)
            return Response({"operation": str(made.id) if made else None}, status=202)
        if ("namespace" in fields) != ("block_keys" in fields):
            raise _invalid("/block_keys", "namespace and block_keys go together.")
        if event == "tool_start" and "eta_ms" not in fields:
            raise _invalid("/eta_ms", "Say when it comes back.")
        said = hints.session_announce(
            tenant=tenant, session=session, event=event, actor=who, now=now, **{"eta_ms": 0.0, **fields}
        )
        return Response(_told(said), status=202)


class AdvisoryIn(Strict):
    """Body of POST /advisories: a prefix will be needed on a node. `tier`: where on it."""

    namespace = serializers.RegexField(DIGEST)
    block_keys = serializers.ListField(child=serializers.RegexField(KEY), min_length=1, max_length=BLOCKS_MOST)
    node = serializers.CharField(max_length=200)
    tier = serializers.ChoiceField([str(tier) for tier in TIERS], default="dram")
    need_at = serializers.DateTimeField()
    priority = serializers.IntegerField(min_value=0, max_value=PRIORITIES - 1, default=5)
    expires_at = serializers.DateTimeField()
    confidence = serializers.FloatField(min_value=0, max_value=1, default=1.0)


class Advisories(APIView):
    """Announced use of prefixes."""

    @call(
        "advisories_create", body=AdvisoryIn, answer=AnnouncedOut, status=202,
        refusals=("not-found", "validation-failed", "hints-too-many"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """The prefix is copied to where it will be needed, if there is time, room and trust."""
        return Response(_told(hints.prefix_announce(**fields, actor=caller(), now=datetime.now(UTC))), status=202)


class TenantTrust(APIView):
    """How far a tenant's announcements are believed."""

    @call("tenants_trust_get", answer=TrustOut, refusals=("not-found",))
    def get(self, request: Request, slug: str) -> Response:
        """Measured: how often what it announced came true."""
        return Response(msgspec.to_builtins(hints.trust_view(tenant=_tenant(slug).id, now=datetime.now(UTC))))


class LossOut(serializers.Serializer[Any]):
    """Tokens: `available` = `achieved` + the sum of `lost`, by cause; `unknown` is a cause. `beyond`: hits that nobody
    knew of before."""

    decisions = serializers.IntegerField()
    available = serializers.IntegerField()
    achieved = serializers.IntegerField()
    beyond = serializers.IntegerField()
    lost = serializers.DictField(child=serializers.IntegerField())


class StepOut(LossOut):
    """One step of time."""

    at = serializers.DateTimeField()


class SpaceOut(LossOut):
    """One namespace."""

    namespace = serializers.CharField()


class LostOut(serializers.Serializer[Any]):
    """Answer of GET /lost-hits; steps and namespaces without figures are left out."""

    total = LossOut()
    step_seconds = serializers.IntegerField()
    steps = StepOut(many=True)
    namespaces = SpaceOut(many=True)


class LostHits(APIView):
    """Hits that could have been and were not."""

    @call("lost_hits_get", answer=LostOut, query=LOST, refusals=("not-found", "validation-failed"))
    def get(self, request: Request) -> Response:
        """Of decisions whose hits were measured: what could have been reused, what was, and why the rest was not."""
        since, until = _span(request)
        slug, space = request.query_params.get("tenant", ""), request.query_params.get("namespace", "")
        tenant = _tenant(slug).id if slug else None
        digest = namespaces_selected(namespace=space)[0].digest if space else None
        found = lost_hits(since=since, until=until, tenant=tenant, namespace=digest)
        return Response(
            {
                "total": _loss(found.total),
                "step_seconds": found.step_seconds,
                "steps": [{"at": at, **_loss(lost)} for at, lost in found.steps],
                "namespaces": [{"namespace": digest.hex(), **_loss(lost)} for digest, lost in found.namespaces],
            }
        )


def _loss(lost: Lost) -> dict[str, Any]:
    return msgspec.to_builtins(lost)  # type: ignore[no-any-return]


def _span(request: Request) -> tuple[datetime, datetime]:
    now, field = datetime.now(UTC), serializers.DateTimeField(default_timezone=UTC)
    said = {}
    for name in ("from", "to"):
        if text := request.query_params.get(name):
            try:
                said[name] = field.run_validation(text)
            except serializers.ValidationError:
                raise _invalid(f"/{name}", "RFC 3339, please.") from None
    until = said.get("to", now)
    since = said.get("from", until - timedelta(hours=1))
    if not since < until <= since + SPAN_MOST:
        raise _invalid("/from", "Before `to`, and within 31 days of it.")
    return since, until


def _slug(given: str, who: Principal) -> str:
    """Whose session it is.

    Raises:
        Problem: validation-failed: nobody said; not-found: not the caller's.
    """
    tenant = given or who.tenant_slug
    if not tenant:
        errors = [{"pointer": "/tenant", "code": "required", "detail": "Say whose session it is."}]
        raise Problem("validation-failed", errors=errors)
    if who.tenant_slug not in ("", tenant):
        raise Problem("not-found")
    return str(tenant)


def _tenant(given: str) -> ErasableTenant:
    found = erasable_tenant(_slug(given, caller()))
    if found is None:
        raise Problem("not-found")
    return found


def _told(said: hints.Announced) -> dict[str, Any]:
    operation: UUID | None = said.operation
    told = {name: getattr(said, name) for name in said.__struct_fields__}
    return {**told, "id": str(said.id), "operation": str(operation) if operation else None, "slot_kept": False}


def _invalid(pointer: str, detail: str) -> Problem:
    return Problem("validation-failed", errors=[{"pointer": pointer, "code": "invalid", "detail": detail}])


urlpatterns: list[URLPattern] = [
    route(
        "sessions/<str:session>/hints", SessionHints.as_view(), "session-hints",
        POST=audited(*ENDERS, scope="sessions:write"), GET=counted(*READERS, scope="sessions:read"),
    ),
    route("advisories", Advisories.as_view(), "advisories", POST=counted(*ENDERS)),
    route("tenants/<str:slug>/trust", TenantTrust.as_view(), "tenant-trust", GET=counted(*READERS)),
    route("lost-hits", LostHits.as_view(), "lost-hits", GET=counted(*READERS)),
]  # fmt: skip
