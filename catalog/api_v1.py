"""REST of the fleet: nodes, their enrolment, the console's key. Pictures are in `map_api`."""

from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http.request import validate_host
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import signing
from audit.services import portable
from catalog import fleet, services
from catalog.models import NODE_ROLES, Node
from catalog.node_body import NodeFacts
from catalog.selectors import NodeView, node_view, node_views
from kvconsole.infra.access import PUBLIC, audited, counted, principal_of, route, system, tenant_context
from kvconsole.infra.calls import PROOF, call, page_of
from kvconsole.infra.rest import Problem, Strict, etag
from kvconsole.infra.statements import Rows
from kvcore.blocks import TIERS
from kvcore.messages import EnrolmentQuestion, fingerprint
from kvcore.residency import PLACE

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor")


class NodeIn(Strict):
    """Body of POST /nodes."""

    name = serializers.RegexField(PLACE, max_length=63)
    region = serializers.RegexField(PLACE, max_length=63)
    zone = serializers.RegexField(PLACE, max_length=63, required=False, allow_blank=True, default="")
    rack = serializers.RegexField(PLACE, max_length=63, required=False, allow_blank=True, default="")
    role = serializers.ChoiceField(NODE_ROLES, default="mixed")
    agent_url = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")


class NodeCreated(serializers.Serializer[Any]):
    """The node's id and the token with which its agent enrols, once within 15 minutes."""

    id = serializers.UUIDField()
    enrolment_token = serializers.CharField()


class TierIn(Strict):
    """One tier as its agent declares it."""

    tier = serializers.ChoiceField(list(TIERS))
    capacity_bytes = serializers.IntegerField(min_value=1, max_value=2**62 - 1)
    emulated = serializers.BooleanField(default=False)
    encrypted = serializers.BooleanField(default=False)
    high = serializers.FloatField(min_value=0, max_value=1)
    low = serializers.FloatField(min_value=0, max_value=1)


class EnrolIn(Strict):
    """Body of POST /nodes:enrol."""

    enrolment_token = serializers.CharField(max_length=200)
    name = serializers.RegexField(
        PLACE, max_length=63, required=False, allow_blank=True, default="",
        help_text="What the agent takes itself for; another name than the token was made for is refused",
    )  # fmt: skip
    public_key = serializers.RegexField(r"^[0-9a-f]{64}$")
    agent_url = serializers.CharField(max_length=255)
    agent_version = serializers.CharField(max_length=63)
    tiers = TierIn(many=True)
    engine = serializers.DictField(default=dict)
    profile = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")


class IngestOut(serializers.Serializer[Any]):
    """Where the frames of a shard go."""

    shard = serializers.IntegerField()
    url = serializers.CharField()


class Enrolled(serializers.Serializer[Any]):
    """What an agent needs to work; the token is shown once."""

    node = serializers.UUIDField()
    name = serializers.CharField()
    role = serializers.CharField()
    node_token = serializers.CharField()
    console_public_key = serializers.CharField()
    shards = serializers.IntegerField()
    ingest = IngestOut(many=True)


class QuestionIn(Strict):
    """What a node asks before it sends its token; `console` is the host it dialled."""

    nonce = serializers.RegexField(r"^[0-9a-f]{64}$")
    public_key = serializers.RegexField(r"^[0-9a-f]{64}$")
    node = serializers.RegexField(PLACE, max_length=63)
    console = serializers.CharField(max_length=255)

    def validate_console(self, value: str) -> str:
        """A host under which this console is reached: what was asked elsewhere is not answered here."""
        if not validate_host(value, settings.ALLOWED_HOSTS):
            raise serializers.ValidationError("The console is not reached under this name.", code="foreign-host")
        return value


QUESTION = tuple(
    OpenApiParameter(name, str, description="Part of a question: all four or none")
    for name in ("nonce", "public_key", "node", "console")
)


class FleetKeyOut(serializers.Serializer[Any]):
    """The key that signs commands to nodes; `proof` is its signature under the question, where one was asked."""

    public_key = serializers.CharField()
    fingerprint = serializers.CharField()
    proof = serializers.CharField(required=False)


class TierOut(serializers.Serializer[Any]):
    """A tier: null where nothing was reported."""

    tier = serializers.CharField()
    used_bytes = serializers.IntegerField(allow_null=True)
    capacity_bytes = serializers.IntegerField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    blocks = serializers.IntegerField(allow_null=True)
    emulated = serializers.BooleanField()
    encrypted = serializers.BooleanField()
    state = serializers.CharField()
    age_ms = serializers.IntegerField(allow_null=True)
    stale = serializers.BooleanField()


class NodeOut(NodeFacts):
    """A node as it is now."""

    tiers = TierOut(many=True)
    agent_url = serializers.CharField()
    agent_version = serializers.CharField()
    enrolled_at = serializers.DateTimeField(allow_null=True)
    last_heard_at = serializers.DateTimeField(allow_null=True)


NODE_FIELDS, TIER_FIELDS = tuple(NodeOut().fields), tuple(TierOut().fields)
_of_node, _of_tier = attrgetter(*NODE_FIELDS), attrgetter(*TIER_FIELDS)
LISTED = Rows(
    Node.objects.all,
    columns=(
        *("id", "name", "region", "zone", "rack", "role", "state", "agent_url", "agent_version", "engine"),
        *("enrolled_at", "last_heard_at"),
    ),
    key=("name",),
)


class Nodes(APIView):
    """The fleet."""

    @call("nodes_list", answer=NodeOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of nodes, by name."""
        views = partial(node_views, now=datetime.now(UTC))
        return page_of(LISTED, request, name="nodes", item=_node, views=views)

    @call(
        "nodes_create",
        body=NodeIn,
        answer=NodeCreated,
        status=201,
        refusals=("node-name-taken", "agent-url-refused", "signer-unavailable", *PROOF),
    )
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A new node, and the token with which its agent enrols."""
        node, token = services.node_create(**fields, actor=principal_of(request))
        return Response({"id": str(node.id), "enrolment_token": token}, status=201)


class NodeDetail(APIView):
    """One node."""

    @call("nodes_get", answer=NodeOut)
    def get(self, request: Request, node_id: UUID) -> Response:
        """The node as it is now; its ETag covers what does not move by itself."""
        node = fleet.node_or_none(node_id)
        view = node_view(name=node.name, now=datetime.now(UTC)) if node else None
        if view is None:
            raise Problem("not-found")
        data = _node(view)
        fixed = {name: data[name] for name in ("id", "name", "region", "zone", "rack", "role", "agent_url", "state")}
        return Response(data, headers={"ETag": etag(fixed)})


class NodeEnrol(APIView):
    """Where an agent becomes a node's."""

    @call(
        "nodes_enrol",
        body=EnrolIn,
        answer=Enrolled,
        public=True,
        refusals=("enrolment-token-invalid", "agent-url-refused", "agent-url-mismatch", "node-name-mismatch",
                  "public-key-invalid", "signer-unavailable"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """The node's own token, for its enrolment token."""
        with tenant_context(system("enrolment")):  # what is recorded is one event
            answer = services.node_enrol(
                token=fields.pop("enrolment_token"), public_key=bytes.fromhex(fields.pop("public_key")), **fields
            )
        return Response(answer, headers={"Cache-Control": "no-store"})


class FleetKey(APIView):
    """The console's command key."""

    @call(
        "fleet_key_get",
        answer=FleetKeyOut,
        public=True,
        query=QUESTION,
        refusals=("validation-failed", "out-of-range", "unstorable-text", "signer-unavailable"),
    )
    def get(self, request: Request) -> Response:
        """The public key; an agent compares its fingerprint with the one in its enrolment token.

        With a nonce, also the proof that the console has the private half.
        """
        if "nonce" in request.query_params:
            return Response(_proven(request), headers={"Cache-Control": "no-store"})
        key = signing.command_key()
        if key is None:
            raise Problem("signer-unavailable", retry_after_seconds=5)
        return Response({"public_key": key.hex(), "fingerprint": fingerprint(key)})


def _proven(request: Request) -> dict[str, str]:
    question = QuestionIn(data=request.query_params.dict())
    question.is_valid(raise_exception=True)
    proof = signing.prove(EnrolmentQuestion(**question.validated_data))
    if isinstance(proof, signing.NotAnswered):
        raise Problem("signer-unavailable", retry_after_seconds=5)
    named = fingerprint(bytes.fromhex(proof.public_key))
    return {"public_key": proof.public_key, "fingerprint": named, "proof": proof.signature}


def _node(view: NodeView) -> dict[str, Any]:
    data = dict(zip(NODE_FIELDS, _of_node(view), strict=True))
    data["tiers"] = [dict(zip(TIER_FIELDS, _of_tier(tier), strict=True)) for tier in view.tiers]
    found: dict[str, Any] = portable(data)
    return found


_MAKE = audited("operator", step_up=True, scope="nodes:manage")
"""As for tokens: whoever makes a node makes a token with which somebody becomes one of the fleet."""
urlpatterns: list[URLPattern] = [
    route("nodes", Nodes.as_view(), "nodes-api", GET=counted(*READERS), POST=_MAKE),
    route("nodes:enrol", NodeEnrol.as_view(), "nodes-enrol", POST=audited(PUBLIC)),
    route("nodes/<uuid:node_id>", NodeDetail.as_view(), "node-api", GET=counted(*READERS)),
    route("fleet-key", FleetKey.as_view(), "fleet-key", GET=counted(PUBLIC)),
]
