"""REST of legal holds."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.services import portable
from catalog import holds
from catalog import operation_bodies as forms
from catalog.api_operations import SELECTING, selector_said
from catalog.models import Hold
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem
from kvconsole.infra.statements import Rows

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor", "tenant-admin")
LISTED = Rows(Hold.objects.filter, key=("id",), columns=("id",), newest=True)


class Holds(APIView):
    """Legal holds."""

    @call("holds_list", answer=forms.HoldOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of them, newest first."""

        def whole(rows: list[Any]) -> list[Hold]:
            found = Hold.objects.in_bulk([row.id for row in rows])
            return [found[row.id] for row in rows if row.id in found]

        return page_of(
            LISTED, request, name="holds", filters={}, views=whole, item=lambda one: portable(holds.hold_view(one))
        )

    @call(
        "holds_create", body=forms.HoldIn, answer=forms.HoldOut, status=201,
        refusals=(*SELECTING, "person-needed", *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A hold is asked for; a second person places it."""
        said = {**fields, "selector": selector_said(fields["selector"])}
        return Response(portable(holds.hold_view(holds.hold_request(**said, actor=caller(), now=datetime.now(UTC)))),
                        status=201)  # fmt: skip


class HoldDetail(APIView):
    """One hold."""

    @call("holds_get", answer=forms.HoldOut)
    def get(self, request: Request, hold_id: UUID) -> Response:
        """The hold."""
        found = Hold.objects.filter(id=hold_id).first()
        if found is None:
            raise Problem("not-found")
        return Response(portable(holds.hold_view(found)))


class HoldRelease(APIView):
    """The end of a hold."""

    @call(
        "holds_release", body=forms.ReleaseIn, answer=forms.HoldOut,
        refusals=("hold-over", "person-needed", "audit-unavailable", *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], hold_id: UUID) -> Response:
        """Its release is asked for; a second person releases it, and what waited is erased."""
        found = holds.hold_release_request(
            hold_id=hold_id, reason=fields["reason"], actor=caller(), now=datetime.now(UTC)
        )
        return Response(portable(holds.hold_view(found)))


ASK = audited("destructive-operator", step_up=True, person=True)
urlpatterns: list[URLPattern] = [
    route("holds", Holds.as_view(), "holds", GET=counted(*READERS), POST=ASK),
    route("holds/<uuid:hold_id>", HoldDetail.as_view(), "hold", GET=counted(*READERS)),
    route("holds/<uuid:hold_id>:release", HoldRelease.as_view(), "hold-release", POST=ASK),
]
