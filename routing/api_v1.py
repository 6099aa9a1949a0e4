"""REST of the routing app: look-ups of prefixes; `api_hints` has what is announced and what was lost."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.selectors import node_names
from kvconsole.infra.access import counted, principal_of, route
from kvconsole.infra.calls import call
from kvconsole.infra.rest import Strict
from routing import codes as codes  # what routing refuses has its words before routes name it
from routing.api_decisions import urlpatterns as decisions_urls
from routing.api_hints import urlpatterns as hint_patterns
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
        "index": {"seq": found.seq, "age_ms": found.age_ms, "mode": found.mode, "form": found.form},
    }


class OwnerOut(serializers.Serializer[Any]):
    """Who holds it."""

    node = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]
    dp_rank = serializers.IntegerField()
    tier = serializers.CharField()


class RunOut(serializers.Serializer[Any]):
    """So many blocks of the prefix, counted from its beginning, are with these owners."""

    depth = serializers.IntegerField()
    owners = OwnerOut(many=True)


class IndexOut(serializers.Serializer[Any]):
    """How fresh the index is that answered."""

    seq = serializers.IntegerField()
    age_ms = serializers.IntegerField(allow_null=True)
    mode = serializers.CharField()
    form = serializers.CharField(help_text="packed | dict (no numba, or a process that does without); empty: none yet")


class LookupOut(serializers.Serializer[Any]):
    """Answer of POST /prefixes:lookup."""

    runs = RunOut(many=True)
    index = IndexOut()


class PrefixLookup(APIView):
    """Who holds how much of a prefix, from the in-memory index. Fenced, foreign and unknown namespaces answer alike."""

    @call("prefixes_lookup", body=LookupBody, answer=LookupOut)
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Runs of (depth, owners)."""
        asked, principal = fields, principal_of(request)
        assert principal is not None
        found = prefix_lookup(
            principal=principal,
            digest=bytes.fromhex(asked["namespace"]),
            generation=asked.get("generation"),
            group=asked["group"],
            keys=bytes.fromhex("".join(asked["keys"])),
        )
        return Response(answer(found))


urlpatterns = [
    *decisions_urls,
    route("prefixes:lookup", PrefixLookup.as_view(), "prefixes-lookup", POST=counted(*ROLES)),
    *hint_patterns,
]  # fmt: skip
