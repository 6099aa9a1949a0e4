"""REST of the log: its events, its checkpoint, proofs, and how it stands.

Whoever reads events leaves one: which events were asked for, and how many came.
"""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import selectors, signing
from audit.bodies import QUERY, CheckpointOut, EventOut, EventQuery, StateOut, event_answer, filter_of
from audit.downloads import AsItIs
from audit.epochs import log_at
from audit.export import bundle
from audit.proving import checkpoint_now, consistency_of, proof_of
from audit.services import portable
from audit.standing import hindrance
from audit.tree import log_state
from audit.wishes import searched
from kvconsole.infra.access import ANY, audited, counted, route
from kvconsole.infra.calls import call, caller, page_of
from kvconsole.infra.rest import Problem

READERS = ("auditor", "operator", "tenant-admin", "tenant-member")
STATE_READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor")
OLD = OpenApiParameter("old", int, required=True, description="Size of the checkpoint that was kept")
NEW = OpenApiParameter("new", int, description="Size of the newer one; default: the newest signed one")
EPOCH = OpenApiParameter("epoch", int, description="Number of the log; default: the present one")
REFUSALS = ("validation-failed", "out-of-range", "unstorable-text", "unknown-field")


class Events(APIView):
    """The log."""

    @call("audit_events_list", answer=EventOut, page=True, query=QUERY, refusals=REFUSALS)
    def get(self, request: Request) -> Response:
        """A page of events, newest first; a tenant's people see the tenant's own."""
        asked = _query(request)
        actor, rows = caller(), selectors.event_rows(filter_of(asked))

        def views(found: list[Any]) -> list[Any]:
            return selectors.event_views(found, reader=actor)

        answer = page_of(rows, request, name="audit.events", item=event_answer, views=views)
        searched(asked, len(answer.data["items"]), actor=actor)
        return answer


class EventDetail(APIView):
    """One event of the log."""

    @call("audit_events_get", answer=EventOut)
    def get(self, request: Request, event_id: UUID) -> Response:
        """The event, with its place in the log."""
        actor, found = caller(), selectors.event(event_id)
        if found is None:
            raise Problem("not-found")
        (view,) = selectors.event_views([found], reader=actor)
        searched({"event": str(event_id)}, 1, actor=actor)
        return Response(event_answer(view))


class Checkpoint(APIView):
    """The signed size of the log."""

    @call("audit_checkpoint_get", answer=CheckpointOut, query=[EPOCH], refusals=("not-signed", "validation-failed"))
    def get(self, request: Request) -> Response:
        """The newest checkpoint of the present log, or of one that ended, and the public keys to check it with."""
        log = log_at(_number(request, "epoch"))
        newest, keys = checkpoint_now(log), bundle.keys(log)
        named = keys.text.splitlines()[:2] if isinstance(keys, bundle.Keys) else None
        return Response(dict(portable(newest._asdict() | {"keys": named})))


class Proof(APIView):
    """That an event is in the log."""

    content_negotiation_class = AsItIs

    @call("audit_proofs_get", answer=str, media="text/plain", refusals=("not-sequenced", "not-signed", "log-torn"))
    def get(self, request: Request, event_id: UUID) -> HttpResponse:
        """A proof file (`tlog-proof@v1`), to be checked offline with the event's body."""
        found = selectors.event(event_id)
        if found is None:
            raise Problem("not-found")
        return HttpResponse(proof_of(found.id, found.time_us), content_type="text/plain; charset=utf-8")


class Consistency(APIView):
    """That the log only grew."""

    content_negotiation_class = AsItIs

    @call(
        "audit_consistency_get", answer=str, media="text/plain", query=[OLD, NEW, EPOCH],
        refusals=("not-signed", "validation-failed", "log-torn"),
    )  # fmt: skip
    def get(self, request: Request) -> HttpResponse:
        """What shows that the newer checkpoint begins with the older one: `consistency.txt`, to be checked offline."""
        old, new = _number(request, "old", needed=True), _number(request, "new")
        text = consistency_of(old or 0, new, log_at(_number(request, "epoch")))
        return HttpResponse(text, content_type="text/plain; charset=utf-8")


class State(APIView):
    """How the log stands."""

    @call("audit_state_get", answer=StateOut)
    def get(self, request: Request) -> Response:
        """Sizes, what waits, signer, witness, findings, and what is to be doubted."""
        return Response(dict(portable(log_state()._asdict() | {"doubts": signing.doubts(), "closed": hindrance()})))


def _number(request: Request, name: str, *, needed: bool = False) -> int | None:
    given = request.query_params.get(name)
    if given is None and not needed:
        return None
    if given is None or not (given.isascii() and given.isdecimal() and len(given) < 16):
        errors = [{"pointer": f"/{name}", "code": "invalid", "detail": "A number."}]
        raise Problem("validation-failed", errors=errors)
    return int(given)


def _query(request: Request) -> dict[str, Any]:
    given = {name: value for name, value in request.query_params.items() if name not in ("limit", "cursor")}
    found = EventQuery(data=given)
    found.is_valid(raise_exception=True)
    return dict(found.validated_data)


urlpatterns: list[URLPattern] = [
    route("audit/events", Events.as_view(), "audit-events", GET=audited(*READERS)),
    route("audit/events/<uuid:event_id>", EventDetail.as_view(), "audit-event", GET=audited(*READERS)),
    route("audit/checkpoint", Checkpoint.as_view(), "audit-checkpoint", GET=counted(ANY)),
    route("audit/consistency", Consistency.as_view(), "audit-consistency", GET=counted(ANY)),
    route("audit/proofs/<uuid:event_id>", Proof.as_view(), "audit-proof", GET=counted(*READERS)),
    route("audit/state", State.as_view(), "audit-state", GET=counted(*STATE_READERS)),
]
