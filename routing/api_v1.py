"""REST of the routing app: `POST /prefixes:lookup`."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.selectors import node_names
from kvconsole.infra.access import counted, principal_of, route
from kvconsole.infra.rest import Strict
from routing.replica import Found
from routing.services import KEYS_MAX, prefix_lookup
from routing.view import Who

ROLES = (
    "viewer",
    "operator",
    "destructive-operator",
    "approver",
    "auditor",
    "tenant-admin",
    "tenant-member",
    "gateway",
)


class LookupBody(Strict):
    """A chain of block keys in one namespace."""

    namespace = serializers.RegexField(r"^[0-9a-f]{64}\Z", help_text="digest of the namespace, hex")
    generation = serializers.IntegerField(min_value=0, max_value=2**63 - 1, required=False, allow_null=True)
    group = serializers.IntegerField(min_value=0, max_value=32_767, default=0)
    keys = serializers.ListField(child=serializers.RegexField(r"^[0-9a-f]{64}\Z"), max_length=KEYS_MAX)


def answer(found: Found) -> dict[str, Any]:
    """The answer's JSON; nodes by name."""
    names = {i: n for n, i in node_names(ids={who.node for _, run in found.runs for who in run}).items()}

    def owner(who: Who) -> dict[str, Any]:
        node = str(who.node)
        return {"node": names.get(node, node), "source": who.source, "dp_rank": who.dp_rank, "tier": who.tier}

    return {
        "runs": [{"depth": depth, "owners": [owner(w) for w in run]} for depth, run in found.runs],
        "index": {"seq": found.seq, "age_ms": found.age_ms, "mode": found.mode},
    }


class PrefixLookup(APIView):
    """Who holds how much of a prefix, from the in-memory index. Fenced, foreign and unknown namespaces answer alike."""

    @extend_schema(request=LookupBody, responses={200: dict})
    def post(self, request: Request) -> Response:
        """Runs of (depth, owners)."""
        body = LookupBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked, principal = body.validated_data, principal_of(request)
        assert principal is not None
        found = prefix_lookup(
            principal=principal,
            digest=bytes.fromhex(asked["namespace"]),
            generation=asked.get("generation"),
            group=asked["group"],
            keys=bytes.fromhex("".join(asked["keys"])),
        )
        return Response(answer(found))


urlpatterns = [route("prefixes:lookup", PrefixLookup.as_view(), "prefixes-lookup", POST=counted(*ROLES))]
