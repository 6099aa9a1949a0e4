"""REST of the tenants app: tenants, models, epochs, namespaces, key leases."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from django.urls import URLPattern
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.services import portable
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import call, caller, page_of
from kvconsole.infra.rest import Problem, etag
from kvconsole.infra.statements import Rows
from tenants import hot, selectors, services
from tenants.bodies import (
    EpochIn,
    EpochNumber,
    EpochOut,
    KeyLeasesIn,
    KeyLeasesOut,
    ModelIn,
    ModelOut,
    NamespaceIn,
    NamespaceOut,
    TenantIn,
    TenantOut,
    TenantPatch,
    epoch_answer,
    model_answer,
    namespace_answer,
    tenant_answer,
)
from tenants.models import Epoch, Model, Tenant

FLEET_READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor")
TENANT_READERS = (*FLEET_READERS, "tenant-admin", "tenant-member")
MODEL_REFUSALS = ("model-taken", "model-name-alike", "model-unknown-base", "config-unusable")
NAMESPACE_REFUSALS = (
    *("not-found", "tenant-closed", "unknown-model", "no-epoch", "namespace-closed", "share-group-inactive"),
    "share-group-not-separable",
)


TENANTS = Rows(
    Tenant.objects.all,
    columns=(
        *("id", "slug", "name", "residency", "isolation", "classes", "erasure_scope", "retention", "state"),
        "created_at",
    ),
    key=("slug",),
)
MODELS = Rows(
    Model.objects.all,
    columns=(
        *("id", "name", "kv_dtype", "block_tokens", "tensor_parallel", "bytes_per_token", "per_group", "base"),
        *("family", "layout"),
    ),
    key=("name", "id"),
)
EPOCHS = Rows(Epoch.objects.filter, columns=("epoch", "weights_digest", "note", "state", "created_at"), key=("epoch",))


class Tenants(APIView):
    """All tenants that the caller may see."""

    @call("tenants_list", answer=TenantOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of tenants, by slug."""
        return page_of(TENANTS, request, name="tenants", item=tenant_answer)

    @call("tenants_create", body=TenantIn, answer=TenantOut, status=201, refusals=("slug-taken", "slug-lookalike"))
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A new tenant."""
        return Response(tenant_answer(services.tenant_create(**fields, actor=caller())), status=201)


class TenantDetail(APIView):
    """One tenant. Routed by the catalog, which knows what it holds (`catalog.api_tenancy`)."""

    @call("tenants_get", answer=TenantOut)
    def get(self, request: Request, slug: str) -> Response:
        """The tenant, with its ETag."""
        tenant = selectors.tenant_by_slug(slug)
        if tenant is None:
            raise Problem("not-found")
        return Response(tenant_answer(tenant))

    @call(
        "tenants_change", body=TenantPatch, answer=TenantOut,
        refusals=("share-group-incompatible", "audit-unavailable"),
    )  # fmt: skip
    def patch(self, request: Request, fields: dict[str, Any], slug: str) -> Response:
        """The tenant with these fields changed; the rest stays."""
        given = request.headers.get("If-Match", "")
        tenant = services.tenant_change(slug=slug, changes=fields, unless=stale(given), actor=caller())
        return Response(tenant_answer(tenant))


class Models(APIView):
    """Models."""

    @call("models_list", answer=ModelOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of models, by name: a tenant's own and the platform's."""
        return page_of(MODELS, request, name="models", item=model_answer)

    @call("models_create", body=ModelIn, answer=ModelOut, status=201, refusals=MODEL_REFUSALS)
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A new model from its `config.json`."""
        return Response(model_answer(services.model_register(**fields, actor=caller())), status=201)


class ModelDetail(APIView):
    """One model."""

    @call("models_get", answer=ModelOut)
    def get(self, request: Request, name: str) -> Response:
        """The tenant's own model of this name, else the platform's."""
        return Response(model_answer(model_of(name)))


class Epochs(APIView):
    """Epochs of a model."""

    @call("epochs_list", answer=EpochOut, page=True)
    def get(self, request: Request, name: str) -> Response:
        """A page of the model's epochs, the oldest first."""
        filters = {"model_id": model_of(name).id}
        return page_of(EPOCHS, request, name=f"epochs.{name}", item=epoch_answer, filters=filters)

    @call("epochs_create", body=EpochIn, answer=EpochNumber, status=201, refusals=("epoch-twin",))
    def post(self, request: Request, fields: dict[str, Any], name: str) -> Response:
        """The model's next epoch."""
        epoch = services.epoch_create(model=model_of(name), **fields, actor=caller())
        return Response({"epoch": epoch.epoch}, status=201)


class NamespaceResolve(APIView):
    """Namespaces by what a request says."""

    @call("namespaces_resolve", body=NamespaceIn, answer=NamespaceOut, refusals=NAMESPACE_REFUSALS)
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """The namespace, made if this is its first request."""
        found = services.namespace_resolve(**fields, actor=caller())
        hot.remember(request._request, caller())
        return Response(namespace_answer(found))


class KeyLeases(APIView):
    """Key leases of nodes and gateways."""

    @call("key_leases_renew", body=KeyLeasesIn, answer=KeyLeasesOut)
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Leases from now for five minutes, and the fences behind `fence_seq`. The call acknowledges `fence_seq`."""
        answer = services.key_leases_renew(
            principal=caller(),
            held={one["namespace"]: one["generation"] for one in fields.get("held", [])},
            fence_seq=fields["fence_seq"],
            everything=fields["all"],
            now=datetime.now(UTC),
        )
        return Response(portable(msgspec.to_builtins(answer)), headers={"Cache-Control": "no-store"})


def stale(given: str) -> Any:
    """Whether a tenant is no longer what `If-Match` names; asked under its row's lock."""
    return lambda tenant: given != "*" and etag(tenant_answer(tenant)) not in [x.strip() for x in given.split(",")]


def model_of(name: str) -> Model:
    """The model that the caller means by the name."""
    found = selectors.model_by_name(name, tenant_id=caller().tenant_id)
    if found is None:
        raise Problem("not-found")
    return found


urlpatterns: list[URLPattern] = [
    route("tenants", Tenants.as_view(), "tenants", GET=counted(*TENANT_READERS), POST=audited("operator")),
    route("models", Models.as_view(), "models", GET=counted(*TENANT_READERS), POST=audited("operator")),
    route(
        "models/<path:name>/epochs",
        Epochs.as_view(),
        "epochs",
        GET=counted(*TENANT_READERS),
        POST=audited("operator"),
    ),
    route("models/<path:name>", ModelDetail.as_view(), "model", GET=counted(*TENANT_READERS)),
    route(
        "namespaces:resolve",
        NamespaceResolve.as_view(),
        "namespaces-resolve",
        POST=audited("operator", "tenant-admin", "tenant-member", "gateway"),
    ),
    route("key-leases", KeyLeases.as_view(), "key-leases", POST=audited("node", "gateway")),
]
