"""REST of what may be reused: adapters, lineage, roll-outs, reasons of not sharing, share groups."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.services import portable
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem
from kvconsole.infra.statements import Rows
from tenants import reading, services
from tenants.api_v1 import FLEET_READERS, TENANT_READERS, model_of
from tenants.bodies_reuse import (
    AdapterIn,
    AdapterNumber,
    AdapterOut,
    ExplanationOut,
    LineageOut,
    ReasonIn,
    RolloutIn,
    RolloutOut,
    ShareGroupIn,
    ShareGroupOut,
    UseOut,
)
from tenants.constants import PLATFORM_TENANT
from tenants.models import Adapter, EpochUse, Model, ShareGroup
from tenants.selectors import tenant_slugs

ADAPTERS = Rows(
    Adapter.objects.filter,
    columns=("id", "tenant_id", "model__name", "name", "digest", "epoch", "created_at"),
    key=("created_at", "id"),
)
USES = Rows(
    EpochUse.objects.filter,
    columns=("id", "tenant_id", "epoch", "adapter_digest", "day", "first_at", "last_at"),
    key=("day", "id"),
)


DIGEST = OpenApiParameter("digest", str, description="Only those of these bytes: one of a model, of each that has it")


class Adapters(APIView):
    """Adapters, by the digest of their bytes."""

    @call("adapters_list", answer=AdapterOut, page=True, query=[DIGEST])
    def get(self, request: Request) -> Response:
        """A page of adapters: a tenant's own and the platform's, oldest first."""
        digest = request.query_params.get("digest")
        filters, name = ({}, "adapters") if digest is None else ({"digest": digest}, f"adapters.{digest}")
        return page_of(ADAPTERS, request, name=name, item=_adapter, filters=filters)

    @call("adapters_create", body=AdapterIn, answer=AdapterNumber, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """The adapter of this content: known already, or the next epoch of its name."""
        who = caller()
        found = services.adapter_register(
            model=model_of(fields["model"]),
            name=fields["name"],
            digest=fields["digest"],
            tenant_id=who.tenant_id or PLATFORM_TENANT,
            actor=who,
        )
        return Response({"adapter_epoch": found.epoch, "name": found.name, "digest": found.digest}, status=201)


class ModelLineage(APIView):
    """Where a model comes from and what was made of it."""

    @call("models_lineage", answer=LineageOut)
    def get(self, request: Request, name: str) -> Response:
        """The model's family, epochs, adapters and uses; at most 200 of each."""
        return Response(plain(reading.lineage(model_of(name))))


class ModelUses(APIView):
    """Who used which epoch when."""

    @call("models_uses", answer=UseOut, page=True)
    def get(self, request: Request, name: str) -> Response:
        """A page of uses by day, oldest first; a tenant sees its own."""
        filters, slugs = {"model_id": model_of(name).id}, dict[UUID, str]()

        def named(uses: list[Any]) -> list[Any]:
            slugs.update(tenant_slugs({use.tenant_id for use in uses}))
            return uses

        item = partial(_use, slugs)
        return page_of(USES, request, name=f"uses.{name}", item=item, views=named, filters=filters)


def _rollout(model: Model) -> Response:
    view = reading.rollout(model, now=datetime.now(UTC))
    return Response(plain(view), headers={"ETag": view.tag})


class ModelRollout(APIView):
    """Shares of new requests by epoch."""

    @call("rollout_get", answer=RolloutOut)
    def get(self, request: Request, name: str) -> Response:
        """Shares, bytes by epoch, forecast and measured course."""
        return _rollout(model_of(name))

    @call(
        "rollout_set", body=RolloutIn, answer=RolloutOut, refusals=("rollout-shares", "epoch-unknown", "epoch-retired")
    )
    def put(self, request: Request, fields: dict[str, Any], name: str) -> Response:
        """New requests are shared like this from now on."""
        model, given = model_of(name), [x.strip() for x in request.headers.get("If-Match", "").split(",")]
        services.rollout_set(
            model=model,
            shares=_shares(fields["shares"]),
            horizon_seconds=fields["horizon_seconds"],
            unless=lambda now: "*" not in given and reading.rollout_tag(model, now) not in given,
            actor=caller(),
        )
        return _rollout(model)


class ExplainReuse(APIView):
    """Why two namespaces share nothing."""

    @call(
        "reuse_explain",
        answer=ExplanationOut,
        query=[
            OpenApiParameter("a", str, required=True, description="Id or digest of a namespace"),
            OpenApiParameter("b", str, required=True, description="Id or digest of another"),
        ],
    )
    def get(self, request: Request) -> Response:
        """The fields that keep them apart. A namespace that is not the caller's is not there."""
        given = request.query_params
        found = reading.explanation(given.get("a", "")[:64], given.get("b", "")[:64])
        if found is None:
            raise Problem("not-found")
        return Response(plain(found))


class ShareGroups(APIView):
    """Tenants that share a cache."""

    @call("share_groups_list", answer=ShareGroupOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of share groups, oldest first: a tenant sees those it owns or is in."""
        views = partial(reading.group_views, now=datetime.now(UTC))
        return page_of(reading.group_rows(), request, name="share-groups", item=plain, views=views)

    @call(
        "share_groups_request",
        body=ShareGroupIn,
        answer=ShareGroupOut,
        status=201,
        refusals=(
            *("audience-unknown", "expiry-range", "share-group-incompatible", "share-group-taken", "person-needed"),
        ),
    )
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A share group that waits for its second person."""
        owner = fields.pop("owner_tenant")
        return Response(_group(services.share_group_request(owner=owner, **fields, actor=caller())), status=201)


class ShareGroupDetail(APIView):
    """One share group."""

    @call("share_groups_get", answer=ShareGroupOut)
    def get(self, request: Request, group_id: UUID) -> Response:
        """The share group."""
        found = ShareGroup.objects.filter(id=group_id).first()
        if found is None:
            raise Problem("not-found")
        return Response(_group(found))


class ShareGroupApprove(APIView):
    """The second person agrees."""

    @call(
        "share_groups_approve",
        answer=ShareGroupOut,
        refusals=(
            *("person-needed", "approval-own", "approval-decided", "approval-expired", "share-group-inactive"),
            *("share-group-incompatible", "audit-unavailable"),
            *PROOF,
        ),
    )
    def post(self, request: Request, group_id: UUID) -> Response:
        """Its members may share from now on."""
        return Response(_group(services.share_group_approve(group_id=group_id, actor=caller())))


class ShareGroupRevoke(APIView):
    """The end of a share group."""

    @call("share_groups_revoke", body=ReasonIn, answer=ShareGroupOut, refusals=("share-group-inactive", *PROOF))
    def post(self, request: Request, fields: dict[str, Any], group_id: UUID) -> Response:
        """Nobody shares through it any more, and what it cached is fenced."""
        group = ShareGroup.objects.filter(id=group_id).first()
        if group is None or caller().tenant_id not in (None, group.tenant_id):
            raise Problem("not-found")
        return Response(_group(services.share_group_revoke(group_id=group_id, reason=fields["reason"], actor=caller())))


def plain(value: Any) -> Any:
    """A struct as JSON takes it."""
    return portable(msgspec.to_builtins(value, builtin_types=(datetime,)))


def _shares(given: dict[str, int]) -> dict[int, int]:
    """Epochs as numbers; a key that is none is an epoch that does not exist."""
    wrong = sorted(e for e in given if not (e.isascii() and e.isdecimal() and len(e) < 10 and str(int(e)) == e))
    if wrong:
        said = f"{wrong[0][:40]!r} is no epoch."
        raise Problem("epoch-unknown", said, errors=[{"pointer": "/shares", "code": "epoch-unknown", "detail": said}])
    return {int(e): share for e, share in given.items()}


def _group(group: ShareGroup) -> dict[str, Any]:
    found: dict[str, Any] = plain(reading.group_view(group, now=datetime.now(UTC)))
    return found


def _adapter(adapter: Any) -> dict[str, Any]:
    """Of a row of `ADAPTERS`."""
    return {
        "model": adapter.model__name,
        "name": adapter.name,
        "digest": adapter.digest,
        "adapter_epoch": adapter.epoch,
        "shared": adapter.tenant_id == PLATFORM_TENANT,
        "created_at": portable(adapter.created_at),
    }


def _use(slugs: Mapping[UUID, str], use: Any) -> dict[str, Any]:
    return {
        "tenant": slugs.get(use.tenant_id, ""),
        "epoch": use.epoch,
        "adapter": use.adapter_digest,
        "day": use.day.isoformat(),
        "first_at": portable(use.first_at),
        "last_at": portable(use.last_at),
    }


_READ = counted(*TENANT_READERS)
urlpatterns: list[URLPattern] = [
    route("adapters", Adapters.as_view(), "adapters", GET=_READ, POST=audited("operator", "tenant-admin")),
    route("models/<path:name>/lineage", ModelLineage.as_view(), "model-lineage", GET=_READ),
    route("models/<path:name>/uses", ModelUses.as_view(), "model-uses", GET=_READ),
    route(
        "models/<path:name>/rollout",
        ModelRollout.as_view(),
        "model-rollout",
        GET=counted(*FLEET_READERS),
        PUT=audited("operator"),
    ),
    route("explain-reuse", ExplainReuse.as_view(), "explain-reuse", GET=_READ),
    route("share-groups", ShareGroups.as_view(), "share-groups", GET=_READ, POST=audited("operator")),
    route("share-groups/<uuid:group_id>", ShareGroupDetail.as_view(), "share-group", GET=_READ),
    route(
        "share-groups/<uuid:group_id>:approve",
        ShareGroupApprove.as_view(),
        "share-group-approve",
        POST=audited("approver", step_up=True, person=True),
    ),
    route(
        "share-groups/<uuid:group_id>:revoke",
        ShareGroupRevoke.as_view(),
        "share-group-revoke",
        POST=audited("operator", "approver", "tenant-admin", step_up=True),
    ),
]
