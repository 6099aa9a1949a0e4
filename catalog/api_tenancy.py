"""REST of what tenants may hold and what they used: quotas, class rules, nodes of their own, usage, and their end."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.services import portable
from catalog import classes, dedication, quotas, usage
from catalog.api_operations import SAID, SELECTING, STARTING, accepted, at_once
from catalog.closing import tenant_delete
from catalog.operation_bodies import OperationOut
from kvconsole.infra.access import audited, counted, principal_of, route
from kvconsole.infra.calls import PROOF, call, caller, require_proof
from kvconsole.infra.rest import Problem, Strict, etag, require_match
from kvcore.blocks import TIERS
from kvcore.quotas import BYTES_MAX, RATE_MAX
from kvcore.residency import PLACE, PROTECTIONS, Rule
from tenants import api_v1 as tenants_api
from tenants.placing import TenantPlace, tenant_place

FLEET_READERS, TENANT_READERS = tenants_api.FLEET_READERS, tenants_api.TENANT_READERS
EVICTS = "tenants:destroy"
"""The scope that a token must name for `evict`: bytes that leave do not come back."""
UNDELETABLE = ("tenant-holds-bytes", "tenant-bytes-unknown", "deletions-quota-exceeded")


class TierQuotaIn(Strict):
    """Bytes a tenant may hold on a tier (null = unlimited, 0 = none), and bytes others may not evict."""

    limit_bytes = serializers.IntegerField(min_value=0, max_value=BYTES_MAX, allow_null=True, default=None)
    guaranteed_bytes = serializers.IntegerField(min_value=0, max_value=BYTES_MAX, default=0)


class TiersIn(Strict):
    """Quotas by tier; a tier that is left out is unlimited."""

    hbm = TierQuotaIn(required=False)
    pinned = TierQuotaIn(required=False)
    dram = TierQuotaIn(required=False)
    ssd = TierQuotaIn(required=False)
    remote = TierQuotaIn(required=False)


class QuotasIn(Strict):
    """Body of PUT /tenants/{slug}/quotas. `evict`: a limit below present use is meant."""

    tiers = TiersIn(required=False)
    requests_per_second = serializers.IntegerField(min_value=0, max_value=RATE_MAX, allow_null=True, default=None)
    deletions_per_hour = serializers.IntegerField(min_value=0, max_value=RATE_MAX, allow_null=True, default=None)
    evict = serializers.BooleanField(default=False)


class TierQuotaOut(serializers.Serializer[Any]):
    """One tier. `in_force`: no node may still allow more than the limit; null = not told to tenants."""

    limit_bytes = serializers.IntegerField(allow_null=True)
    guaranteed_bytes = serializers.IntegerField()
    effective_guaranteed_bytes = serializers.IntegerField()
    used_bytes = serializers.IntegerField(allow_null=True)
    in_force = serializers.BooleanField(allow_null=True)


class QuotasOut(serializers.Serializer[Any]):
    """A tenant's quotas, what they are worth and what is used of them."""

    tiers = serializers.DictField(child=TierQuotaOut())
    requests_per_second = serializers.IntegerField(allow_null=True)
    deletions_per_hour = serializers.IntegerField(allow_null=True)
    as_of = serializers.DateTimeField(allow_null=True)


class RuleIn(Strict):
    """Where blocks of a class may be; null = anywhere."""

    tiers = serializers.ListField(child=serializers.ChoiceField(list(TIERS)), allow_null=True, default=None)
    regions = serializers.ListField(
        child=serializers.RegexField(PLACE, max_length=63), allow_null=True, default=None, max_length=64
    )
    min_protection = serializers.ChoiceField(PROTECTIONS, default="plain")


class ClassesIn(Strict):
    """Body of PUT /tenants/{slug}/classes."""

    rules = serializers.DictField(child=RuleIn(), allow_empty=True)


class RuleOut(serializers.Serializer[Any]):
    """The rule of a class. `built_in`: the tenant has said nothing about it."""

    tiers = serializers.ListField(child=serializers.CharField(), allow_null=True)
    regions = serializers.ListField(child=serializers.CharField(), allow_null=True)
    min_protection = serializers.CharField()
    built_in = serializers.BooleanField()


class ClassesOut(serializers.Serializer[Any]):
    """The rules of a tenant's data classes."""

    rules = serializers.DictField(child=RuleOut())


class NodesIn(Strict):
    """Body of PUT /tenants/{slug}/nodes. `evict`: blocks of others on these nodes are meant to leave."""

    nodes = serializers.ListField(child=serializers.RegexField(PLACE, max_length=63), max_length=1000)
    evict = serializers.BooleanField(default=False)


class NodesOut(serializers.Serializer[Any]):
    """The nodes that serve the tenant alone."""

    isolation = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())


class HeldOut(serializers.Serializer[Any]):
    """What is held of a tier now; null = not known. `quota_bytes` null = unlimited."""

    used_bytes = serializers.IntegerField(allow_null=True)
    blocks = serializers.IntegerField(allow_null=True)
    quota_bytes = serializers.IntegerField(allow_null=True)


class HitsOut(serializers.Serializer[Any]):
    """What requests saved, in three units."""

    tokens = serializers.IntegerField()
    bytes = serializers.IntegerField()
    saved_prefill_ms = serializers.FloatField()
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    measured_requests = serializers.IntegerField()


class UsageLineOut(serializers.Serializer[Any]):
    """One day (UTC) and tier; tier "" has the totals."""

    day = serializers.DateField()
    tier = serializers.CharField(allow_blank=True)
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    hit_tokens = serializers.IntegerField()
    hit_bytes = serializers.IntegerField()
    saved_prefill_ms = serializers.FloatField()


_Usage = type(
    "_Usage",
    (serializers.Serializer,),
    {"from": serializers.DateTimeField(), "__doc__": "A word that Python keeps for itself."},
)


class UsageOut(_Usage):  # type: ignore[misc,valid-type]
    """A tenant's statement. `incomplete`: why requests or figures may be missing; `hits` null = nothing was counted."""

    to = serializers.DateTimeField()
    as_of = serializers.DateTimeField(allow_null=True)
    complete = serializers.BooleanField()
    incomplete = serializers.ListField(child=serializers.CharField())
    tiers = serializers.DictField(child=HeldOut())
    hits = HitsOut(allow_null=True)
    days = UsageLineOut(many=True)


class TenantDetail(tenants_api.TenantDetail):
    """One tenant. It is answered here because whether it may go depends on what it holds."""

    @call(
        "tenants_close", status=204, query=SAID, also={202: OperationOut},
        refusals=(*UNDELETABLE, *STARTING, *SELECTING, "plan-needed"),
    )  # fmt: skip
    def delete(self, request: Request, slug: str) -> Response:
        """The tenant is closed, if it holds nothing (204). With the phrase all that it holds is deleted first, where
        the risk allows that in one call (202): when the operation is over, it can be closed."""
        if request.query_params.get("confirm_phrase"):
            return accepted(request, at_once({"tenant": slug}, caller(), request.query_params))
        tenant_delete(tenant=_tenant(slug), actor=principal_of(request), now=datetime.now(UTC))
        return Response(status=204)


class Quotas(APIView):
    """Quotas of a tenant."""

    @call("quotas_get", answer=QuotasOut)
    def get(self, request: Request, slug: str) -> Response:
        """What the tenant may hold and how often it may ask."""
        return _quotas(quotas.quota_view(tenant=_tenant(slug).id, now=datetime.now(UTC)))

    @call("quotas_set", body=QuotasIn, answer=QuotasOut, refusals=("quota-below-use", "audit-unavailable", *PROOF))
    def put(self, request: Request, fields: dict[str, Any], slug: str) -> Response:
        """These quotas instead of the present ones. Tiers that are left out are unlimited. `evict` needs a proof."""
        if fields["evict"]:
            require_proof(request, EVICTS)
        tenant, now = _tenant(slug), datetime.now(UTC)
        quotas.quotas_lock()
        require_match(request, etag(quotas.quota_view(tenant=tenant.id, now=now).intent()))
        fields = {"tiers": {}, **fields}
        return _quotas(quotas.quota_set(tenant=tenant.id, **fields, actor=principal_of(request), now=now))


class Classes(APIView):
    """Rules of a tenant's data classes."""

    @call("classes_get", answer=ClassesOut)
    def get(self, request: Request, slug: str) -> Response:
        """Where blocks of each data class may be."""
        return Response({"rules": msgspec.to_builtins(classes.class_rules_view(tenant=_tenant(slug)))})

    @call("classes_set", body=ClassesIn, answer=ClassesOut, refusals=("audit-unavailable",))
    def put(self, request: Request, fields: dict[str, Any], slug: str) -> Response:
        """These rules instead of the present ones. Classes that are left out have the built-in ones."""
        tenant = _tenant(slug)
        quotas.quotas_lock()
        _unchanged(request, lambda: {"rules": msgspec.to_builtins(classes.class_rules_view(tenant=tenant))})
        rules = {name: msgspec.convert(dict(rule), Rule) for name, rule in fields["rules"].items()}
        view = classes.class_rules_set(tenant=tenant, rules=rules, actor=principal_of(request))
        return Response({"rules": msgspec.to_builtins(view)})


class OwnNodes(APIView):
    """Nodes that serve one tenant alone."""

    @call("tenant_nodes_get", answer=NodesOut)
    def get(self, request: Request, slug: str) -> Response:
        """The tenant's own nodes."""
        return Response(_nodes(_tenant(slug)))

    @call(
        "tenant_nodes_set", body=NodesIn, answer=NodesOut,
        refusals=("tenant-not-node-isolated", "node-dedicated", "node-holds-others", "audit-unavailable", *PROOF),
    )  # fmt: skip
    def put(self, request: Request, fields: dict[str, Any], slug: str) -> Response:
        """These nodes instead of the present ones; others are everybody's again. `evict` needs a fresh proof."""
        if fields["evict"]:
            require_proof(request, EVICTS)
        tenant = _tenant(slug)
        quotas.quotas_lock()
        _unchanged(request, lambda: _nodes(tenant))
        dedication.nodes_dedicate(
            tenant=tenant, names=fields["nodes"], evict=fields["evict"], actor=principal_of(request)
        )
        return Response(_nodes(tenant))


class Usage(APIView):
    """Usage of a tenant."""

    @call(
        "usage_get", answer=UsageOut,
        query=[
            OpenApiParameter("from", str, description="RFC 3339; default: the beginning of today, UTC"),
            OpenApiParameter("to", str, description="RFC 3339; default: now. Days it touches are given whole"),
        ],
        refusals=("validation-failed",),
    )  # fmt: skip
    def get(self, request: Request, slug: str) -> Response:
        """What the tenant holds now, and what its requests saved in the days of the time that is asked for."""
        tenant, now = _tenant(slug), datetime.now(UTC)
        since, until = _time(request, "from", now.replace(hour=0, minute=0, second=0, microsecond=0)), now
        until = _time(request, "to", max(now, since + timedelta(microseconds=1)))
        if not timedelta(0) < until - since <= timedelta(days=usage.DAYS_MOST):
            raise _wrong("to", f"After `from`, by at most {usage.DAYS_MOST} days.")
        view = usage.usage_view(tenant=tenant.id, since=since, until=until, now=now)
        data = msgspec.to_builtins(view, builtin_types=(datetime,))
        return Response(portable({"from": data.pop("since"), "to": data.pop("until"), **data}))


def _tenant(slug: str) -> TenantPlace:
    """The tenant, where the caller may see it; a foreign one is as absent as one that never was."""
    found = tenant_place(slug)
    if found is None:
        raise Problem("not-found")
    return found


def _quotas(view: quotas.QuotaView) -> Response:
    """The answer; its ETag is of what a PUT replaces, not of what moves by itself."""
    data = portable(msgspec.to_builtins(view, builtin_types=(datetime,)))
    return Response(data, headers={"ETag": etag(view.intent())})


def _unchanged(request: Request, shown: Callable[[], dict[str, Any]]) -> None:
    require_match(request, etag(shown()))


def _nodes(tenant: TenantPlace) -> dict[str, Any]:
    return {"isolation": tenant.isolation, "nodes": dedication.nodes_dedicated(tenant=tenant.id)}


def _time(request: Request, name: str, default: datetime) -> datetime:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        found = datetime.fromisoformat(text)
        at = found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):
        at = None
    if at is None or not 2000 <= at.year <= 9000:
        raise _wrong(name, "A time of RFC 3339 with its offset, from the year 2000 on.")
    return at


def _wrong(name: str, detail: str) -> Problem:
    return Problem("validation-failed", errors=[{"pointer": f"/{name}", "code": "invalid", "detail": detail}])


urlpatterns: list[URLPattern] = [
    route(
        "tenants/<str:slug>", TenantDetail.as_view(), "tenant",
        GET=counted(*TENANT_READERS), PATCH=audited("operator"), DELETE=audited("destructive-operator", step_up=True),
    ),
    route(
        "tenants/<str:slug>/quotas", Quotas.as_view(), "quotas", GET=counted(*TENANT_READERS), PUT=audited("operator")
    ),
    route(
        "tenants/<str:slug>/classes", Classes.as_view(), "classes",
        GET=counted(*TENANT_READERS), PUT=audited("operator"),
    ),
    route(
        "tenants/<str:slug>/nodes", OwnNodes.as_view(), "tenant-nodes",
        GET=counted(*FLEET_READERS), PUT=audited("operator"),
    ),
    route("tenants/<str:slug>/usage", Usage.as_view(), "usage", GET=counted(*TENANT_READERS)),
]  # fmt: skip
