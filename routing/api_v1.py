"""REST of the routing app: look-ups of prefixes, and hints about sessions."""

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.rules.sessions import session_end
from catalog.selectors import node_names
from kvconsole.infra.access import audited, counted, principal_of, route
from kvconsole.infra.calls import call, caller
from kvconsole.infra.rest import Problem, Strict
from kvcore.residency import PLACE
from routing.api_decisions import urlpatterns as decisions_urls
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


class HintIn(Strict):
    """Body of POST /sessions/{id}/hints. `tenant`: whose session it is; a tenant's own callers may leave it out."""

    event = serializers.ChoiceField(["end"], help_text="end: nobody comes back to it; what is cached of it goes")
    tenant = serializers.RegexField(PLACE, max_length=63, required=False)


class HintOut(serializers.Serializer[Any]):
    """What came of a hint. `operation`: that takes away what was cached; null = nothing of the session was cached."""

    operation = serializers.UUIDField(allow_null=True)


class SessionHints(APIView):
    """Hints about a session."""

    @call(
        "session_hints_create", body=HintIn, answer=HintOut, status=202,
        refusals=("not-found", "not-separable", "audit-unavailable", "validation-failed"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], session: str) -> Response:
        """The session has ended: what was cached of it is fenced and erased, once, however often it is said."""
        who = caller()
        tenant = fields.get("tenant") or who.tenant_slug
        if not tenant:
            errors = [{"pointer": "/tenant", "code": "required", "detail": "Say whose session it is."}]
            raise Problem("validation-failed", errors=errors)
        if who.tenant_slug not in ("", tenant):
            raise Problem("not-found")
        made = session_end(tenant=tenant, session=session, actor=who, now=datetime.now(UTC))
        return Response({"operation": str(made.id) if made else None}, status=202)


ENDERS = ("operator", "destructive-operator", "tenant-admin", "gateway")
urlpatterns = [
    *decisions_urls,
    route("prefixes:lookup", PrefixLookup.as_view(), "prefixes-lookup", POST=counted(*ROLES)),
    route("sessions/<str:session>/hints", SessionHints.as_view(), "session-hints",
          POST=audited(*ENDERS, scope="sessions:write")),
]  # fmt: skip
