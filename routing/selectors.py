"""Reads of the routing app: fences that hold, decisions with their figures, policies. On the current plane."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import QuerySet

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import Rows, fetch
from kvcore.cards import Choice
from kvcore.policies import Policy as Rule
from routing.models import SLOT_SECONDS, SLOTS, Decision, IndexLease, Policy, Tally
from routing.packing import Inputs, again, unpack

COLUMNS = (
    "id", "at", "tenant_id", "origin", "router", "model", "answer", "code", "mode", "index_age_ms", "kept",
    "stands_for", "node", "source", "dp_rank", "decode_node", "policy", "policy_version", "prompt_tokens",
    "overlap_tokens", "predicted_ms", "measured_ms", "hit_tokens", "regret_ms",
)  # fmt: skip
"""What a row of the list has. `predicted_ms`, `measured_ms`: time to first token. None = not known, never 0."""
ANSWERS = ("hit", "fetch", "compute", "recompute", "refused")
KEPT = ("all", "sample", "refusal", "fallback", "outlier", "foreign")


class DecisionView(msgspec.Struct, frozen=True):
    """One decision with what it was made from. `reproducible`: None = its inputs were not kept or cannot be read."""

    row: dict[str, Any]
    inputs: Inputs | None
    again: Choice | None
    reproducible: bool | None
    measured: dict[str, float] | None
    measured_at: datetime | None


class Mix(msgspec.Struct, frozen=True):
    """Decisions of a time, each counted as often as it stands for: how many by answer, and regret in ms."""

    made: int
    answers: dict[str, int]
    measured: int
    regret_p50_ms: float | None
    regret_p95_ms: float | None
    regret_mean_ms: float | None
    error_p50_ms: float | None
    """Median of |measured - predicted|."""


class PolicyView(msgspec.Struct, frozen=True):
    """One version of a policy."""

    name: str
    version: int
    model: str
    kind: str
    document: dict[str, Any]
    at: datetime | None
    by: str
    in_force: bool


class Compared(msgspec.Struct, frozen=True):
    """What one policy does with the same recorded requests.

    `changed`: sent elsewhere than they were. `predicted_ms`: mean expected time to first token of what it picks, and
    `overlap_tokens` what of the prompts it would load. All by the terms as they were recorded.
    """

    policy: str
    version: int
    kind: str
    requests: int
    changed: int
    unanswered: int
    predicted_ms: float | None
    predicted_p95_ms: float | None
    overlap_tokens: int
    prompt_tokens: int


def fence_in_force(*, seq: int, now: datetime) -> bool:
    """Whether no process answers look-ups any more without the fence at `seq`: acknowledged, or its lease is over."""
    return not IndexLease.objects.filter(until__gt=now, fence_seq__lt=seq).exists()


def routers_behind(*, seq: int, now: datetime) -> int:
    """How many processes may still answer look-ups without the fence at `seq`. Named in settings for the catalog."""
    return IndexLease.objects.using(FLEET_PLANE).filter(until__gt=now, fence_seq__lt=seq).count()


# --- decisions ------------------------------------------------------------------------


def slot_of(decision: UUID) -> int:
    """The partition of a decision: its id (UUIDv7) begins with its time."""
    return (decision.int >> 80) // 1000 // SLOT_SECONDS % SLOTS


def _decisions(
    *, model: Any = None, answer: Any = None, node: Any = None, policy: Any = None, origin: Any = None,
    kept: Any = None, tenant: Any = None,
) -> QuerySet[Decision]:  # fmt: skip
    given = {"model": model, "answer": answer, "node": node, "policy": policy, "origin": origin, "kept": kept,
             "tenant_id": tenant}  # fmt: skip
    return Decision.objects.filter(**{name: value for name, value in given.items() if value})


DECISIONS = Rows(_decisions, columns=COLUMNS, key=("id",), newest=True)
"""For `lists.paginate` and `calls.page_of`; filters: model, answer, node, policy, origin, kept, tenant (id)."""


def decision_view(decision: UUID) -> DecisionView | None:
    """One decision, scored again; None: there is none that the current plane shows."""
    found = Decision.objects.filter(slot=slot_of(decision), id=decision).first()
    if found is None:
        return None
    inputs = unpack(bytes(found.inputs)) if found.inputs is not None else None
    told = None if inputs is None or inputs.choice is None else again(inputs)
    row = {name: getattr(found, name) for name in COLUMNS}
    same = None if inputs is None or told is None else told == inputs.choice
    return DecisionView(row, inputs, told, same, _terms(found.measured), found.measured_at)


def _terms(measured: Any) -> dict[str, float] | None:
    """The measured terms, without what else is kept beside them."""
    return None if measured is None else {name: ms for name, ms in measured.items() if name != "short"}


def decisions_newest(*, limit: int, since: UUID | None = None) -> list[dict[str, Any]]:
    """The newest rows of the list, newest first."""
    rows = Decision.objects.order_by("-id")
    rows = rows.filter(id__gt=since) if since else rows
    return list(rows.values(*COLUMNS)[:limit])


def decisions_mix(*, since: datetime, until: datetime, model: str = "") -> Mix:
    """What was decided in a time, at most a few seconds of work: figures over what was recorded, weighted."""
    ((answers, measured, p50, p95, mean, error),) = fetch(
        named("routing")["decisions_mix"], [since, until, model, model]
    )
    found = {name: int(n) for name, n in (answers or {}).items()}
    return Mix(sum(found.values()), found, measured, p50, p95, mean, error)


def tallies(*, now: datetime) -> dict[str, int]:
    """What all routers counted since each of them began."""
    names = ("made", "recorded", "sampled_out", "dropped", "refused", "fallback", "outcomes")
    rows = list(Tally.objects.using(FLEET_PLANE).values_list(*names))
    return {name: sum(row[i] for row in rows) for i, name in enumerate(names)}


# --- policies -------------------------------------------------------------------------


def policies() -> list[PolicyView]:
    """The version in force of every policy, by name."""
    rows = Policy.objects.using(FLEET_PLANE).order_by("name", "-version").distinct("name")
    return [_policy(row, True) for row in rows]


def policy_versions(name: str) -> list[PolicyView]:
    """All versions of a policy, newest first."""
    rows = Policy.objects.using(FLEET_PLANE).filter(name=name).order_by("-version")
    return [_policy(row, i == 0) for i, row in enumerate(rows)]


def _policy(row: Policy, in_force: bool) -> PolicyView:
    return PolicyView(row.name, row.version, row.model, row.kind, row.document, row.at, row.by, in_force)


def recorded(*, limit: int, model: str = "", tenant: UUID | None = None) -> list[Inputs]:
    """The inputs of the newest decisions that the scorer answered, as far as they can be read."""
    rows = Decision.objects.filter(inputs__isnull=False, origin="router").order_by("-id")
    rows = rows.filter(model=model) if model else rows
    rows = rows.filter(tenant_id=tenant) if tenant else rows
    found = (unpack(bytes(blob)) for blob in rows.values_list("inputs", flat=True)[:limit] if blob is not None)
    return [inputs for inputs in found if inputs is not None and inputs.choice is not None]


def policies_compared(rules: Sequence[Rule], inputs: Iterable[Inputs]) -> list[Compared]:
    """What each policy does with the same recorded requests, in the order of the policies."""
    asked = list(inputs)
    return [_compared(rule, asked) for rule in rules]


def _compared(rule: Rule, asked: Sequence[Inputs]) -> Compared:
    changed = unanswered = overlap = 0
    totals: list[float] = []
    for one in asked:
        now, was = again(one, rule), one.choice
        if now.prefill is None:
            unanswered += 1
            continue
        before = was.prefill.candidate if was and was.prefill else None
        changed += now.prefill.candidate != before
        totals.append(now.prefill.total_ms)
        overlap += min(one.ask.prompt_tokens, now.prefill.overlap_blocks * one.ask.block_tokens)
    totals.sort()
    mean = sum(totals) / len(totals) if totals else None
    tail = totals[min(len(totals) - 1, int(len(totals) * 0.95))] if totals else None
    prompt = sum(one.ask.prompt_tokens for one in asked)
    return Compared(rule.name, rule.version, rule.kind, len(asked), changed, unanswered, mean, tail, overlap, prompt)
