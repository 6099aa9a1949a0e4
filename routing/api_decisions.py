"""REST of decisions and policies. Decisions are made by the processes `router`; here they are read."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kvconsole.infra.access import audited, counted, principal_of, route
from kvconsole.infra.calls import call, caller, page_of
from kvconsole.infra.rest import Problem, Strict, etag, require_match, validate_only
from kvcore.cards import Candidate, Card, Choice
from routing import policies
from routing.selectors import ANSWERS, COLUMNS, DECISIONS, KEPT, DecisionView, PolicyView, decision_view
from tenants.selectors import tenant_id_of, tenant_slugs

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor", "tenant-admin", "tenant-member")
FLEET = ("viewer", "operator", "destructive-operator", "approver", "auditor")
SHOWN = tuple(name for name in COLUMNS if name != "tenant_id")
FILTERS = ("model", "answer", "node", "policy", "origin", "kept")
QUERY = [
    *(OpenApiParameter(name, str, description=f"Only decisions of this {name}") for name in FILTERS),
    OpenApiParameter("tenant", str, description="Slug; the fleet's readers only"),
]


class DecisionOut(serializers.Serializer[Any]):
    """One decision. null = not known, never 0. Times to first token in ms."""

    id = serializers.UUIDField()
    at = serializers.DateTimeField()
    tenant = serializers.CharField()
    origin = serializers.CharField(help_text="router, or the foreign one that reported it")
    router = serializers.CharField()
    model = serializers.CharField()
    answer = serializers.ChoiceField(ANSWERS)
    code = serializers.CharField()
    mode = serializers.CharField()
    index_age_ms = serializers.IntegerField(allow_null=True)
    kept = serializers.ChoiceField(KEPT)
    stands_for = serializers.IntegerField()
    node = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]
    dp_rank = serializers.IntegerField()
    decode_node = serializers.CharField()
    policy = serializers.CharField()
    policy_version = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    overlap_tokens = serializers.IntegerField()
    predicted_ms = serializers.FloatField(allow_null=True)
    measured_ms = serializers.FloatField(allow_null=True)
    hit_tokens = serializers.IntegerField(allow_null=True)
    regret_ms = serializers.FloatField(allow_null=True)


class DecisionDetailOut(DecisionOut):
    """One decision, scored again. `reproducible`: null where its inputs were not kept."""

    reproducible = serializers.BooleanField(allow_null=True)
    why = serializers.CharField(allow_null=True)
    cards = serializers.ListField(child=serializers.DictField())
    plan = serializers.ListField(child=serializers.DictField())
    measured = serializers.DictField(child=serializers.FloatField(), allow_null=True)
    measured_at = serializers.DateTimeField(allow_null=True)
    inputs = serializers.DictField(allow_null=True, help_text="What it was made from; for the fleet's readers")


class Decisions(APIView):
    """Decisions."""

    @call("decisions_list", answer=DecisionOut, page=True, query=QUERY, refusals=("validation-failed",))
    def get(self, request: Request) -> Response:
        """A page of them, newest first; a tenant sees its own."""
        given = {name: request.query_params.get(name, "")[:200] for name in FILTERS}
        _known("answer", given["answer"], ANSWERS)
        _known("kept", given["kept"], KEPT)
        slug = request.query_params.get("tenant", "")
        given["tenant"] = str(_tenant(slug)) if slug else ""
        return page_of(DECISIONS, request, name="decisions", filters=given, views=_rows, item=dict)


class DecisionDetail(APIView):
    """One decision."""

    @call("decisions_get", answer=DecisionDetailOut)
    def get(self, request: Request, decision_id: UUID) -> Response:
        """The decision with its cards, scored again on what it was made from."""
        found = decision_view(decision_id)
        if found is None:
            raise Problem("not-found")
        principal = principal_of(request)
        return Response(decision_body(found, whole=principal is not None and principal.tenant_id is None))


def decision_body(view: DecisionView, *, whole: bool) -> dict[str, Any]:
    """The JSON of one decision; `whole` with its inputs."""
    row = {name: view.row[name] for name in SHOWN}
    row["tenant"] = tenant_slugs([view.row["tenant_id"]]).get(view.row["tenant_id"], "")
    inputs, choice = view.inputs, view.inputs.choice if view.inputs else None
    shown = msgspec.to_builtins(inputs.ask) if inputs else {}
    for name in ("affinity", "seed"):
        shown.pop(name, None)
    edges = msgspec.to_builtins(inputs.edges) if inputs else None
    return {
        **row,
        "reproducible": view.reproducible,
        "why": choice.why if choice else None,
        "cards": _cards(choice, inputs.candidates) if inputs and choice else [],
        "plan": _plan(choice.prefill, inputs.candidates) if inputs and choice else [],
        "measured": view.measured,
        "measured_at": view.measured_at,
        "inputs": {"ask": shown, "candidates": msgspec.to_builtins(inputs.candidates), "edges": edges,
                   "held": msgspec.to_builtins(inputs.held), "policy": inputs.policy.document()}
        if inputs and whole else None,
    }  # fmt: skip


def _cards(choice: Choice, candidates: tuple[Candidate, ...]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"node": candidates[c.candidate].name, "source": candidates[c.candidate].source, "total_ms": c.total_ms,
         "terms": msgspec.to_builtins(c.terms), "overlap_blocks": c.overlap_blocks, "unknowns": list(c.unknowns),
         "notes": list(c.notes), "filtered_by": ""}
        for c in choice.cards
    ]  # fmt: skip
    return out + [
        {"node": candidates[f.candidate].name, "source": candidates[f.candidate].source, "total_ms": None,
         "terms": None, "overlap_blocks": None, "unknowns": [], "notes": [], "filtered_by": f.filtered_by}
        for f in choice.filtered
    ]  # fmt: skip


def _plan(card: Card | None, candidates: tuple[Candidate, ...]) -> list[dict[str, Any]]:
    parts = card.plan if card else ()
    return [{"from_block": r.from_block, "to_block": r.to_block, "source": r.source,
             "node": candidates[r.candidate].name, "tier": r.tier or None} for r in parts]  # fmt: skip


def _rows(rows: list[Any]) -> list[dict[str, Any]]:
    slugs = tenant_slugs({row.tenant_id for row in rows})
    return [
        {**{name: getattr(row, name) for name in SHOWN}, "tenant": slugs.get(row.tenant_id, "")} for row in rows
    ]  # fmt: skip


def _tenant(slug: str) -> UUID:
    """A tenant that cannot be seen is one that never was; its list is empty."""
    return tenant_id_of(slug) or UUID(int=0)


def _known(name: str, value: str, among: tuple[str, ...]) -> None:
    if value and value not in among:
        detail = f"One of {', '.join(among)}."
        raise Problem("validation-failed", errors=[{"pointer": f"/{name}", "code": "invalid", "detail": detail}])


# --- policies -------------------------------------------------------------------------


class PolicyIn(Strict):
    """A policy: kind and parameters; `model` null = of all models that have none of their own."""

    model = serializers.CharField(max_length=200, required=False, allow_null=True)
    kind = serializers.CharField(max_length=32)
    params = serializers.DictField(required=False)


class RehearsedOut(serializers.Serializer[Any]):
    """What one policy does with the same recorded requests."""

    policy = serializers.CharField()
    version = serializers.IntegerField()
    kind = serializers.CharField()
    requests = serializers.IntegerField()
    changed = serializers.IntegerField(help_text="sent elsewhere than they were")
    unanswered = serializers.IntegerField()
    predicted_ms = serializers.FloatField(allow_null=True)
    predicted_p95_ms = serializers.FloatField(allow_null=True)
    overlap_tokens = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()


class PolicyOut(serializers.Serializer[Any]):
    """The version in force. `dry_run`: of a rehearsal, the present policy and then the new one."""

    name = serializers.CharField()
    version = serializers.IntegerField()
    model = serializers.CharField(allow_null=True)
    kind = serializers.CharField()
    params = serializers.DictField()
    at = serializers.DateTimeField(allow_null=True)
    by = serializers.CharField(allow_blank=True)
    dry_run = RehearsedOut(many=True, required=False)


class PolicyDetail(APIView):
    """One policy by its name."""

    @call("policies_get", answer=PolicyOut)
    def get(self, request: Request, name: str) -> Response:
        """The version in force; kinds that nobody wrote a policy for have a built-in version 0."""
        return _policy(_found(name))

    @call("policies_set", body=PolicyIn, answer=PolicyOut, refusals=("policy-invalid", "policy-model-taken"))
    def put(self, request: Request, fields: dict[str, Any], name: str) -> Response:
        """Its next version. A rehearsal also says what it would have changed of the recorded decisions."""
        before = policies.policy_find(name)
        require_match(request, _tag(before) if before else "")
        run = policies.dry_run(name=name, document=fields) if validate_only(request) else None
        made = policies.policy_put(name=name, document=fields, actor=caller(), now=datetime.now(UTC))
        return _policy(made, run)


def _found(name: str) -> PolicyView:
    found = policies.policy_find(name)
    if found is None:
        raise Problem("not-found")
    return found


def _body(view: PolicyView) -> dict[str, Any]:
    return {"name": view.name, "version": view.version, "model": view.model or None, "kind": view.kind,
            "params": view.document["params"], "at": view.at, "by": view.by}  # fmt: skip


def _tag(view: PolicyView) -> str:
    return etag({"name": view.name, "version": view.version})


def _policy(view: PolicyView, run: list[Any] | None = None) -> Response:
    more = {} if run is None else {"dry_run": msgspec.to_builtins(run)}
    return Response({**_body(view), **more}, headers={"ETag": _tag(view)})


urlpatterns = [
    route("decisions", Decisions.as_view(), "decisions-api", GET=counted(*READERS)),
    route("decisions/<uuid:decision_id>", DecisionDetail.as_view(), "decision-api", GET=counted(*READERS)),
    route("policies/<str:name>", PolicyDetail.as_view(), "policy-api", GET=counted(*FLEET),
          PUT=audited("operator", scope="policies:write")),
]  # fmt: skip
