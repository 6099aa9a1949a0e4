"""REST of the pictures: `GET /map/tiles`, `/map/heat.bin`, `/watermarks`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import heat as pictures
from catalog.live import FLEET_ROLES, tiles_view
from catalog.node_body import NodeFacts
from catalog.selectors import HeatMatrix, fleet_view, heat, watermark_history
from catalog.selectors.heatmap import ROWS_DEFAULT, ROWS_MAX
from kvconsole.infra.access import counted, route
from kvconsole.infra.calls import call
from kvconsole.infra.rest import Strict, etag
from kvcore.blocks import TIERS

_HOUR = 3_600
WINDOW = [
    OpenApiParameter("from", str, description="Seconds since 1970 or RFC 3339; an hour before `to` by default"),
    OpenApiParameter("to", str, description="Seconds since 1970 or RFC 3339; now by default"),
]
QUERY_REFUSALS = ("validation-failed", "out-of-range", "unstorable-text")


@extend_schema_field(OpenApiTypes.STR)
class When(serializers.Field[datetime, Any, str, Any]):
    """Seconds since 1970 or RFC 3339."""

    def to_internal_value(self, data: Any) -> datetime:
        """The time, aware."""
        try:
            at = datetime.fromtimestamp(float(data), UTC) if _number(data) else datetime.fromisoformat(str(data))
        except (ValueError, OverflowError, OSError):
            raise serializers.ValidationError("A time: seconds since 1970, or RFC 3339.") from None
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    def to_representation(self, value: datetime) -> str:
        """RFC 3339."""
        return value.isoformat()


def _number(data: Any) -> bool:
    return str(data).replace(".", "", 1).isdecimal() and str(data).isascii()


class WindowQuery(Strict):
    """A time window; the last hour by default."""

    until = When(required=False)
    since = When(required=False)

    def to_internal_value(self, data: Any) -> Any:
        """`from` and `to` of the query, checked."""
        renamed = {{"from": "since", "to": "until"}.get(k, k): data[k] for k in data}
        values = super().to_internal_value(renamed)
        now = datetime.now(UTC)
        until = min(values.get("until", now), now)
        since = values.get("since", until - timedelta(seconds=_HOUR))
        if since >= until:
            raise serializers.ValidationError({"from": "Must be before `to`."})
        return {**values, "since": since, "until": until, "now": now}


class HeatQuery(WindowQuery):
    """Which map."""

    metric = serializers.ChoiceField(choices=list(pictures.UNITS), default="hits")
    layer = serializers.ChoiceField(choices=["auto"], default="auto")
    rows = serializers.IntegerField(min_value=1, max_value=ROWS_MAX, default=ROWS_DEFAULT)


class MarksQuery(WindowQuery):
    """Which tier's history."""

    node = serializers.CharField(max_length=63)
    tier = serializers.ChoiceField(choices=[str(t) for t in TIERS])


def _query(request: Request, form: type[WindowQuery]) -> dict[str, Any]:
    query = form(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    values: dict[str, Any] = query.validated_data
    return values


def header_of(matrix: HeatMatrix) -> dict[str, Any]:
    """The header of `heat.bin`."""
    return {
        "axis": matrix.axis,
        "rows": [
            {
                "id": r.id,
                "kind": r.kind,
                "tenant": r.tenant,
                "model": r.model,
                "namespace": r.namespace,
                "family": r.family,
                "tier": None,
                "label": r.label,
                "merged": r.merged,
            }
            for r in matrix.rows
        ],
        "columns": matrix.columns,
        "step_seconds": matrix.step_seconds,
        "metric": matrix.metric,
        "unit": matrix.unit,
        "scale": {"kind": "symlog", "max": matrix.scale_max, "linear": matrix.scale_linear},
        "layer": matrix.layer,
        "honesty": msgspec.to_builtins(matrix.honesty),
        "as_of": matrix.as_of,
    }


class TierTileOut(serializers.Serializer[Any]):
    """A tier of a node in bytes; null where nothing was reported."""

    used = serializers.IntegerField(allow_null=True)
    capacity = serializers.IntegerField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    blocks = serializers.IntegerField(allow_null=True)
    emulated = serializers.BooleanField()
    state = serializers.ChoiceField(["ok", "high", "full", "unknown"])
    stale = serializers.BooleanField()


class NodeTileOut(NodeFacts):
    """A node; its tiers by name. Ages and lags are rounded."""

    tiers = serializers.DictField(child=TierTileOut())


class LadderStepOut(serializers.Serializer[Any]):
    """A tier over all nodes in bytes; `complete` is false where a node with it did not report."""

    used = serializers.IntegerField(allow_null=True)
    last_known = serializers.IntegerField()
    capacity = serializers.IntegerField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    blocks = serializers.IntegerField()
    reporting = serializers.IntegerField()
    nodes = serializers.IntegerField()
    emulated = serializers.BooleanField()
    complete = serializers.BooleanField()


class NumbersOut(serializers.Serializer[Any]):
    """Figures of the fleet over the last 10 s; null while they are not known."""

    requests_per_s = serializers.FloatField(allow_null=True)
    hit_ratio = serializers.FloatField(allow_null=True)
    saved_ms_per_s = serializers.FloatField(allow_null=True)
    events_per_s = serializers.FloatField(allow_null=True)
    evictions_per_s = serializers.FloatField(allow_null=True)
    blocks = serializers.IntegerField()
    complete = serializers.BooleanField()
    as_of = serializers.DateTimeField(allow_null=True)


class FleetTileOut(serializers.Serializer[Any]):
    """The fleet: its tiers by name, and its figures."""

    ladder = serializers.DictField(child=LadderStepOut())
    numbers = NumbersOut()


class TilesOut(serializers.Serializer[Any]):
    """Nodes by name, and the fleet."""

    nodes = serializers.DictField(child=NodeTileOut())
    fleet = FleetTileOut()


class SampleOut(serializers.Serializer[Any]):
    """How full a tier was at a time; null where nothing was reported."""

    t = serializers.DateTimeField()
    used_bytes = serializers.IntegerField(allow_null=True)
    peak_bytes = serializers.IntegerField(allow_null=True)
    capacity_bytes = serializers.IntegerField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)


class WatermarksOut(serializers.Serializer[Any]):
    """Samples of a window, oldest first."""

    items = SampleOut(many=True)
    as_of = serializers.DateTimeField()


class Tiles(APIView):
    """Nodes, tiers and numbers as the live topic `tiles` has them."""

    @call("map_tiles_get", answer=TilesOut)
    def get(self, request: Request) -> Response:
        """The tiles now."""
        return Response(msgspec.to_builtins(tiles_view(fleet_view(now=datetime.now(UTC)))))


class Heat(APIView):
    """The heat map as a file: header, then one byte a cell."""

    @call(
        "map_heat_get",
        answer=OpenApiTypes.BINARY,
        media="application/octet-stream",
        query=[
            OpenApiParameter("metric", str, enum=list(pictures.UNITS)),
            OpenApiParameter("layer", str, enum=["auto"]),
            OpenApiParameter("rows", int, description=f"1 to {ROWS_MAX}, default {ROWS_DEFAULT}"),
            *WINDOW,
        ],
        refusals=QUERY_REFUSALS,
        also={304: OpenApiResponse(description="The caller has it")},
    )
    def get(self, request: Request) -> HttpResponse:
        """The map of a window; 304 where the caller has it."""
        asked = _query(request, HeatQuery)
        named = {name: asked[name] for name in ("metric", "since", "until", "rows", "now")}
        matrix = heat(**named)
        tag = etag([matrix.axis, matrix.columns, matrix.levels, msgspec.to_builtins(matrix.honesty)])
        if tag in request.headers.get("If-None-Match", ""):
            response = HttpResponse(status=304)
        else:
            response = HttpResponse(pictures.file(header_of(matrix), matrix.levels), "application/octet-stream")
        response["ETag"], response["Cache-Control"] = tag, "private, no-cache"
        return response


class Watermarks(APIView):
    """How full a tier of a node was."""

    @call(
        "watermarks_list",
        answer=WatermarksOut,
        query=[
            OpenApiParameter("node", str, required=True),
            OpenApiParameter("tier", str, required=True, enum=[str(t) for t in TIERS]),
            *WINDOW,
        ],
        refusals=QUERY_REFUSALS,
    )
    def get(self, request: Request) -> Response:
        """Samples of a window; null where nothing was reported."""
        asked = _query(request, MarksQuery)
        named = {name: asked[name] for name in ("node", "tier", "since", "until", "now")}
        return Response({"items": msgspec.to_builtins(watermark_history(**named)), "as_of": asked["now"]})


_fleet = counted(*FLEET_ROLES)
urlpatterns = [
    route("map/tiles", Tiles.as_view(), "map-tiles", GET=_fleet),
    route("map/heat.bin", Heat.as_view(), "map-heat", GET=_fleet),
    route("watermarks", Watermarks.as_view(), "watermarks", GET=_fleet),
]
