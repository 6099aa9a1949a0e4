"""REST of deny windows: times in which nothing destructive starts."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.services import portable
from catalog.models import FROM_RISKS, DenyWindow
from catalog.windows import denied, window_create, window_remove
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, Strict
from kvconsole.infra.statements import Rows
from kvcore.residency import PLACE
from kvcore.windows import MOST_MINUTES
from tenants.placing import TenantPlace, tenant_place

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor", "tenant-admin", "tenant-member")
MAKERS = ("destructive-operator", "tenant-admin")
LISTED = Rows(DenyWindow.objects.filter, key=("id",), columns=("id",), newest=True)
RISKS = [str(one) for one in FROM_RISKS]


class WindowIn(Strict):
    """Body of POST /deny-windows. `tenant`: whose matter it holds back; left out by the fleet's people: everybody's."""

    tenant = serializers.RegexField(PLACE, max_length=63, required=False)
    cron = serializers.CharField(max_length=100, help_text="Five fields, UTC: when it begins")
    minutes = serializers.IntegerField(min_value=1, max_value=MOST_MINUTES)
    from_risk = serializers.ChoiceField(RISKS, default=RISKS[0])
    reason = serializers.CharField(max_length=500)


class WindowOut(serializers.Serializer[Any]):
    """A deny window. `open_until`: when that ends which is open now, null = none is."""

    id = serializers.UUIDField()
    tenant_id = serializers.UUIDField()
    cron = serializers.CharField()
    minutes = serializers.IntegerField()
    from_risk = serializers.ChoiceField(RISKS)
    reason = serializers.CharField()
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    open_until = serializers.DateTimeField(allow_null=True)


def window_view(window: DenyWindow) -> dict[str, Any]:
    """A window as it is shown."""
    names = ("id", "tenant_id", "cron", "minutes", "from_risk", "reason", "requested_by", "created_at")
    return dict(portable({name: getattr(window, name) for name in names} | {"open_until": _open_until(window)}))


def _open_until(window: DenyWindow) -> datetime | None:
    return denied(window.tenant_id, window.from_risk, datetime.now(UTC), only=[window])


class Windows(APIView):
    """Deny windows."""

    @call("deny_windows_list", answer=WindowOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of them, newest first."""

        def whole(rows: list[Any]) -> list[DenyWindow]:
            found = DenyWindow.objects.in_bulk([row.id for row in rows], field_name="id")
            return [found[row.id] for row in rows if row.id in found]

        return page_of(LISTED, request, name="deny-windows", filters={}, views=whole, item=window_view)

    @call("deny_windows_create", body=WindowIn, answer=WindowOut, status=201, refusals=("not-found",))
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Nothing of this risk starts in the window from now on; what runs goes on."""
        whose = window_tenant(fields.pop("tenant", ""))
        made = window_create(**fields, tenant=whose, actor=caller(), now=datetime.now(UTC))
        return Response(window_view(made), status=201)


class WindowDetail(APIView):
    """One deny window."""

    @call("deny_windows_get", answer=WindowOut)
    def get(self, request: Request, window_id: UUID) -> Response:
        """The window."""
        found = DenyWindow.objects.filter(id=window_id).first()
        if found is None:
            raise Problem("not-found")
        return Response(window_view(found))

    @call("deny_windows_remove", answer=None, status=204, refusals=("audit-unavailable", *PROOF))
    def delete(self, request: Request, window_id: UUID) -> Response:
        """The window is gone: what it held back may start."""
        window_remove(window_id=window_id, actor=caller())
        return Response(status=204)


def window_tenant(slug: str) -> TenantPlace | None:
    """The tenant that is meant; a tenant's own people mean their own.

    Raises:
        Problem: not-found.
    """
    own = caller().tenant_slug
    if own and slug not in ("", own):
        raise Problem("not-found")
    if not (own or slug):
        return None
    found = tenant_place(own or slug)
    if found is None:
        raise Problem("not-found")
    return found


urlpatterns: list[URLPattern] = [
    route("deny-windows", Windows.as_view(), "deny-windows",
          GET=counted(*READERS), POST=audited(*MAKERS, scope="deny-windows:write")),
    route("deny-windows/<uuid:window_id>", WindowDetail.as_view(), "deny-window",
          GET=counted(*READERS), DELETE=audited(*MAKERS, step_up=True)),
]  # fmt: skip
