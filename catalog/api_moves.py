"""REST of moves and pins: migrations, prefetches, drains, cordons, and what stays where it lies."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import move_bodies as forms
from catalog.api_operations import SELECTING, accepted, selector_said
from catalog.cordoning import cordon_request
from catalog.models import Pin
from catalog.move_requests import drain_request, migration_request, prefetch_request
from catalog.operation_bodies import OperationOut
from catalog.pins import pin_create, pin_remove, pin_view
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem
from kvconsole.infra.statements import Rows

MOVERS = ("operator", "destructive-operator")
KEEPERS = ("operator", "destructive-operator", "tenant-admin")
READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor", "tenant-admin", "tenant-member")
MOVING = ("nothing-selected", "no-route", "audit-unavailable")
LETTING_GO = ("recompute-too-grave", "deny-window", "reason-needed", "confirm-phrase-wrong", "forbidden")
CORDONING = ("node-draining", "node-fenced", "audit-unavailable")
NAMESPACE = OpenApiParameter("namespace", str, description="Only of this namespace: its id or digest")
DIGEST_CHARS = 64
LISTED = Rows(Pin.objects.filter, key=("id",), columns=("id",), newest=True)


class Migrations(APIView):
    """Migrations."""

    @call(
        "migrations_create", body=forms.MigrationIn, answer=OperationOut, status=202, operation=True,
        refusals=(*SELECTING, *MOVING, "all-pinned"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Blocks go from one tier to another, on their nodes or to one node; readers see the old place or the new."""
        said = {**fields, "selector": selector_said(fields["selector"])}
        return accepted(request, migration_request(**said, actor=caller(), now=datetime.now(UTC)))


class Prefetches(APIView):
    """Prefetches."""

    @call(
        "prefetches_create", body=forms.PrefetchIn, answer=OperationOut, status=202, operation=True,
        refusals=(*MOVING, "no-slack", "not-found"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A prefix is copied to where it will be needed, if there is time for it."""
        return accepted(request, prefetch_request(**fields, actor=caller(), now=datetime.now(UTC)))


class Drain(APIView):
    """The drain of a node."""

    @call(
        "nodes_drain", body=forms.DrainIn, answer=OperationOut, status=202, operation=True,
        refusals=(*MOVING, *CORDONING, *LETTING_GO, *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], node_id: UUID) -> Response:
        """Its blocks go to other nodes; what nobody has room for stays. With `recompute` it is let go, which asks
        what a deletion asks: the role, fresh proof, a reason and a phrase; never what a legal hold keeps."""
        return accepted(request, drain_request(node=str(node_id), **fields, actor=caller(), now=datetime.now(UTC)))


class Cordon(APIView):
    """A node that takes nothing new."""

    @call(
        "nodes_cordon", body=forms.CordonIn, answer=OperationOut, status=202, operation=True, refusals=CORDONING
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], node_id: UUID) -> Response:
        """Nothing new is sent to the node; what lies there is read as ever."""
        made = cordon_request(node=node_id, cordoned=True, **fields, actor=caller(), now=datetime.now(UTC))
        return accepted(request, made)


class Uncordon(APIView):
    """The end of a cordon."""

    @call(
        "nodes_uncordon", body=forms.CordonIn, answer=OperationOut, status=202, operation=True, refusals=CORDONING
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], node_id: UUID) -> Response:
        """The node takes what comes again, also one that was drained; a drain under way is stopped instead."""
        made = cordon_request(node=node_id, cordoned=False, **fields, actor=caller(), now=datetime.now(UTC))
        return accepted(request, made)


class Pins(APIView):
    """Pins."""

    @call("pins_list", answer=forms.PinOut, page=True, query=[NAMESPACE], refusals=("validation-failed",))
    def get(self, request: Request) -> Response:
        """A page of them, newest first; those whose time is over are void and may still be listed."""

        def whole(rows: list[Any]) -> list[Pin]:
            found = Pin.objects.in_bulk([row.id for row in rows])
            return [found[row.id] for row in rows if row.id in found]

        asked = request.query_params.get("namespace", "").lower()
        filters = _of_namespace(asked) if asked else {}
        return page_of(LISTED, request, name=f"pins.{asked}", filters=filters, views=whole, item=pin_view)

    @call("pins_create", body=forms.PinIn, answer=forms.PinOut, status=201, refusals=("pins-too-many", "not-found"))
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Blocks stay where they lie until a time; a fence is stronger."""
        keys = fields.pop("prefix")
        return Response(pin_view(pin_create(**fields, keys=keys, actor=caller(), now=datetime.now(UTC))), status=201)


class PinDetail(APIView):
    """One pin."""

    @call("pins_get", answer=forms.PinOut)
    def get(self, request: Request, pin_id: UUID) -> Response:
        """The pin."""
        found = Pin.objects.filter(id=pin_id).first()
        if found is None:
            raise Problem("not-found")
        return Response(pin_view(found))

    @call("pins_remove", answer=None, status=204)
    def delete(self, request: Request, pin_id: UUID) -> Response:
        """The pin is gone; its blocks may be evicted and moved."""
        pin_remove(pin_id=pin_id, actor=caller(), now=datetime.now(UTC))
        return Response(status=204)


def _of_namespace(text: str) -> dict[str, UUID | bytes]:
    try:
        return {"digest": bytes.fromhex(text)} if len(text) == DIGEST_CHARS else {"namespace": UUID(text)}
    except ValueError:
        errors = [{"pointer": "/namespace", "code": "invalid", "detail": text[:63]}]
        raise Problem("validation-failed", errors=errors) from None


PIN = audited(*KEEPERS, scope="pins:write")
urlpatterns: list[URLPattern] = [
    route("migrations", Migrations.as_view(), "migrations", POST=audited(*MOVERS)),
    route("prefetches", Prefetches.as_view(), "prefetches", POST=audited(*MOVERS)),
    route("nodes/<uuid:node_id>:drain", Drain.as_view(), "node-drain", POST=audited(*MOVERS)),
    route("nodes/<uuid:node_id>:cordon", Cordon.as_view(), "node-cordon", POST=audited(*MOVERS)),
    route("nodes/<uuid:node_id>:uncordon", Uncordon.as_view(), "node-uncordon", POST=audited(*MOVERS)),
    route("pins", Pins.as_view(), "pins", GET=counted(*READERS), POST=PIN),
    route("pins/<uuid:pin_id>", PinDetail.as_view(), "pin", GET=counted(*READERS), DELETE=PIN),
]
