"""REST of the tenants app: tenants, models, epochs, namespaces, key leases."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.idempotency import once
from audit.services import portable
from kvconsole.infra.access import Principal, audited, counted, current_principal, route
from kvconsole.infra.rest import Problem, Strict, etag, paginate
from tenants import selectors, services
from tenants.models import Model, Namespace, Tenant

FLEET_READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor")
TENANT_READERS = (*FLEET_READERS, "tenant-admin", "tenant-member")
LIST = [
    OpenApiParameter("limit", int, description="1 to 500, default 50"),
    OpenApiParameter("cursor", str, description="Opaque: `next` or `prev` of a page of this list"),
]
KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)
REHEARSAL = OpenApiParameter("validate_only", bool, description="The whole check, no effect")


class TenantIn(Strict):
    """Body of POST /tenants."""

    slug = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=200)
    residency = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")
    isolation = serializers.ChoiceField(["shared", "arena", "node"], default="shared")
    classes = serializers.ListField(child=serializers.CharField(max_length=63), required=False, max_length=64)
    erasure_scope = serializers.ChoiceField(["tenant", "class", "label", "subject", "session"], default="label")
    retention = serializers.DictField(child=serializers.IntegerField(min_value=1, max_value=2**31 - 1), required=False)


class TenantOut(serializers.Serializer[Any]):
    """A tenant."""

    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    residency = serializers.CharField()
    isolation = serializers.CharField()
    classes = serializers.ListField(child=serializers.CharField())
    erasure_scope = serializers.CharField()
    retention = serializers.DictField(child=serializers.IntegerField())
    state = serializers.CharField()
    created_at = serializers.DateTimeField()


class TenantPage(serializers.Serializer[Any]):
    """A page of tenants."""

    items = TenantOut(many=True)
    next = serializers.CharField(allow_null=True)
    prev = serializers.CharField(allow_null=True)


class ModelIn(Strict):
    """Body of POST /models."""

    name = serializers.CharField(max_length=200)
    config = serializers.DictField()
    kv_dtype = serializers.CharField(max_length=32, default="auto")
    block_tokens = serializers.IntegerField(min_value=1, max_value=1024, default=16)
    tensor_parallel = serializers.IntegerField(min_value=1, max_value=1024, default=1)


class ModelOut(serializers.Serializer[Any]):
    """What a token of the model's KV takes on one rank."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kv_dtype = serializers.CharField()
    block_tokens = serializers.IntegerField()
    tensor_parallel = serializers.IntegerField()
    bytes_per_token = serializers.IntegerField()
    per_group = serializers.ListField(child=serializers.DictField())


class EpochIn(Strict):
    """Body of POST /models/{name}/epochs."""

    weights_digest = serializers.CharField(max_length=128)
    note = serializers.CharField(max_length=2000, required=False, allow_blank=True, default="")


class EpochOut(serializers.Serializer[Any]):
    """The number of a set of weights."""

    epoch = serializers.IntegerField()


class NamespaceIn(Strict):
    """Body of POST /namespaces:resolve."""

    tenant = serializers.CharField(max_length=63)
    model = serializers.CharField(max_length=200)
    adapter = serializers.CharField(max_length=128, required=False, allow_blank=True)
    data_class = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")
    share_group = serializers.CharField(max_length=63, required=False, allow_blank=True)
    label = serializers.CharField(  # type: ignore[assignment]
        max_length=200, required=False, allow_blank=True, default=""
    )
    subject = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    session = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")


class NamespaceOut(serializers.Serializer[Any]):
    """The namespace that such requests share."""

    namespace = serializers.UUIDField()
    digest = serializers.CharField()
    model_epoch = serializers.IntegerField()
    generation = serializers.IntegerField()
    state = serializers.CharField()


class HeldIn(Strict):
    """One namespace generation a holder has keys of."""

    namespace = serializers.RegexField(r"^[0-9a-f]{64}$")
    generation = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class KeyLeasesIn(Strict):
    """Body of POST /key-leases."""

    held = HeldIn(many=True, required=False)
    fence_seq = serializers.IntegerField(min_value=0, max_value=2**63 - 1, default=0)
    all = serializers.BooleanField(default=False)


class LeaseOut(serializers.Serializer[Any]):
    """Subkeys of one namespace generation, in hex; `salt_tag` for nodes only."""

    namespace = serializers.CharField()
    generation = serializers.IntegerField()
    block_tokens = serializers.IntegerField()
    subkeys = serializers.DictField(child=serializers.CharField())
    salt_tag = serializers.CharField(required=False)
    until = serializers.DateTimeField()


class FenceOut(serializers.Serializer[Any]):
    """A fence; `min_gen` is a string where it is above 2^53."""

    namespace = serializers.CharField()
    min_gen = serializers.IntegerField()


class KeyLeasesOut(serializers.Serializer[Any]):
    """Answer of POST /key-leases."""

    leases = LeaseOut(many=True)
    ticket_key = serializers.CharField()
    fence_seq = serializers.IntegerField()
    fences_after = FenceOut(many=True)


class Tenants(APIView):
    """All tenants that the caller may see."""

    @extend_schema(operation_id="tenants_list", parameters=LIST, responses=TenantPage)
    def get(self, request: Request) -> Response:
        """A page of tenants, by slug."""
        page = paginate(Tenant.objects.all(), request, key=("slug",), name="tenants")
        items = [TenantOut(tenant).data for tenant in page.items]
        return Response({"items": items, "next": page.next, "prev": page.prev})

    @extend_schema(
        operation_id="tenants_create", parameters=[KEY, REHEARSAL], request=TenantIn, responses={201: TenantOut}
    )
    def post(self, request: Request) -> Response:
        """A new tenant."""
        fields = _valid(TenantIn, request)

        def respond() -> Response:
            tenant = services.tenant_create(**fields, actor=_actor())
            return Response(TenantOut(tenant).data, status=201)

        return once(request, respond)


class TenantDetail(APIView):
    """One tenant."""

    @extend_schema(operation_id="tenants_get", responses=TenantOut)
    def get(self, request: Request, slug: str) -> Response:
        """The tenant, with its ETag."""
        tenant = selectors.tenant_by_slug(slug)
        if tenant is None:
            raise Problem("not-found")
        data = TenantOut(tenant).data
        return Response(data, headers={"ETag": etag(data)})


class Models(APIView):
    """Models."""

    @extend_schema(
        operation_id="models_create", parameters=[KEY, REHEARSAL], request=ModelIn, responses={201: ModelOut}
    )
    def post(self, request: Request) -> Response:
        """A new model from its `config.json`."""
        fields = _valid(ModelIn, request)

        def respond() -> Response:
            return Response(_model(services.model_register(**fields, actor=_actor())), status=201)

        return once(request, respond)


class Epochs(APIView):
    """Epochs of a model."""

    @extend_schema(
        operation_id="epochs_create", parameters=[KEY, REHEARSAL], request=EpochIn, responses={201: EpochOut}
    )
    def post(self, request: Request, name: str) -> Response:
        """The model's next epoch."""
        fields = _valid(EpochIn, request)

        def respond() -> Response:
            model = selectors.model_by_name(name)
            if model is None:
                raise Problem("not-found")
            epoch = services.epoch_create(model=model, **fields, actor=_actor())
            return Response({"epoch": epoch.epoch}, status=201)

        return once(request, respond)


class NamespaceResolve(APIView):
    """Namespaces by what a request says."""

    @extend_schema(operation_id="namespaces_resolve", parameters=[KEY], request=NamespaceIn, responses=NamespaceOut)
    def post(self, request: Request) -> Response:
        """The namespace, made if this is its first request."""
        fields = _valid(NamespaceIn, request)

        def respond() -> Response:
            return Response(_namespace(services.namespace_resolve(**fields, actor=_actor())))

        return once(request, respond)


class KeyLeases(APIView):
    """Key leases of nodes and gateways."""

    @extend_schema(operation_id="key_leases", request=KeyLeasesIn, responses=KeyLeasesOut)
    def post(self, request: Request) -> Response:
        """Leases from now for five minutes, and the fences behind `fence_seq`. The call acknowledges `fence_seq`."""
        fields = _valid(KeyLeasesIn, request)
        held = {one["namespace"]: one["generation"] for one in fields.get("held", [])}
        principal = _actor()
        answer = services.key_leases_renew(
            principal=principal,
            held=held,
            fence_seq=fields["fence_seq"],
            everything=fields["all"],
            now=datetime.now(UTC),
        )
        return Response(portable(msgspec.to_builtins(answer)), headers={"Cache-Control": "no-store"})


def _valid(serializer: type[Strict], request: Request) -> dict[str, Any]:
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def _actor() -> Principal:
    principal = current_principal()
    if principal is None:
        raise Problem("not-authenticated")
    return principal


def _model(model: Model) -> dict[str, Any]:
    return dict(ModelOut(model).data)


def _namespace(found: Namespace) -> dict[str, Any]:
    return {
        "namespace": str(found.id),
        "digest": bytes(found.digest).hex(),
        "model_epoch": found.model_epoch,
        "generation": found.generation,
        "state": found.state,
    }


urlpatterns: list[URLPattern] = [
    route("tenants", Tenants.as_view(), "tenants", GET=counted(*TENANT_READERS), POST=audited("operator")),
    route("tenants/<str:slug>", TenantDetail.as_view(), "tenant", GET=counted(*TENANT_READERS)),
    route("models", Models.as_view(), "models", POST=audited("operator")),
    route("models/<str:name>/epochs", Epochs.as_view(), "epochs", POST=audited("operator")),
    route(
        "namespaces:resolve",
        NamespaceResolve.as_view(),
        "namespaces-resolve",
        POST=audited("operator", "tenant-admin", "tenant-member", "gateway"),
    ),
    route("key-leases", KeyLeases.as_view(), "key-leases", POST=audited("node", "gateway")),
]
