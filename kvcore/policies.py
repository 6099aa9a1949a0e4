"""Decides what a routing policy is: a name, a version, a kind and its parameters, read from a document.

A document is `{name, version, model?, kind, params?}`. What is missing gets the documented default of its kind; what is
unknown, no number or out of bounds is refused with its place, so a typing error is never a policy. Called by
`routing.policies` (PUT and its dry run) and by the recorder, which keeps name and version beside every decision.

Defaults of others' rules are facts: Dynamo 1.6.1 (router guide), Ray Serve LLM 2.60 (prefix cache affinity router),
llm-d (default scheduling profile: prefix 3, queue 2, utilization 2; tiers of the KV-cache indexer).
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

Kind = Literal["predicted", "linear", "tree_p2c", "tier_weighted", "least_loaded", "round_robin", "random"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")


class Bounds(NamedTuple):
    """A parameter: its default, its least and most, whether it is 0 or 1, and whether null (no limit) may be said."""

    default: float
    low: float = 0.0
    high: float = 1e9
    flag: bool = False
    endless: bool = False


PARAMS: dict[Kind, dict[str, Bounds]] = {
    "predicted": {
        "stickiness_cap": Bounds(1.25, 0.0, 1000.0),
        "cap_slack_ms": Bounds(5.0),
        "session_slack": Bounds(0.1, 0.0, 10.0),
        "fresh_ms": Bounds(2_000.0),
        "lost_ms": Bounds(10_000.0),
        "transfer_exposed": Bounds(1.0, 0.0, 1.0),
        "use_learned": Bounds(1.0, flag=True, high=1.0),
        "unknown_queue_ms": Bounds(200.0),
        "unknown_first_decode_ms": Bounds(50.0),
        "unknown_prefill_ms_per_token": Bounds(0.02, 0.0, 1e6),
        "unknown_bytes_per_ms": Bounds(1_250_000.0, 1.0, 1e15),
        "unknown_latency_ms": Bounds(2.0),
        "unknown_router_ms": Bounds(1.0),
    },
    "linear": {
        "overlap_score_credit": Bounds(1.0),
        "credit_decay": Bounds(0.0, 0.0, 1.0),
        "prefill_load_scale": Bounds(1.0),
        "host_cache_hit_weight": Bounds(0.75, 0.0, 1.0),
        "disk_cache_hit_weight": Bounds(0.25, 0.0, 1.0),
        "shared_cache_multiplier": Bounds(0.5, 0.0, 1.0),
        "router_temperature": Bounds(0.0),
        "decode_active_request_weight": Bounds(0.0),
        "product": Bounds(0.0, flag=True, high=1.0),
    },
    "tree_p2c": {
        "imbalanced_threshold": Bounds(math.inf, endless=True),
        "match_rate_threshold": Bounds(0.1, 0.0, 1.0),
    },
    "tier_weighted": {
        "hbm": Bounds(1.0),
        "pinned": Bounds(0.8),
        "dram": Bounds(0.8),
        "ssd": Bounds(1.0),
        "remote": Bounds(1.0),
        "prefix_weight": Bounds(3.0),
        "queue_weight": Bounds(2.0),
        "utilization_weight": Bounds(2.0),
    },
    "least_loaded": {},
    "round_robin": {},
    "random": {},
}
"""Every parameter of every kind. `stickiness_cap` 0 = no cap; the `unknown_…` of `predicted` serve every kind."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. `model` None: of all models that have none of their own. `params` has every parameter of the kind."""

    name: str
    version: int
    model: str | None
    kind: Kind
    params: dict[str, float]

    def document(self) -> dict[str, Any]:
        """The policy as a document that reads back as itself; endless is null."""
        params = {k: None if math.isinf(v) else v for k, v in self.params.items()}
        return {"name": self.name, "version": self.version, "model": self.model, "kind": self.kind, "params": params}


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a document: where, a stable code, and a sentence."""

    field: str
    code: str
    words: str


def defaults(kind: Kind) -> dict[str, float]:
    """Every parameter of the kind at its default."""
    return {name: bounds.default for name, bounds in PARAMS[kind].items()}


def built_in(kind: Kind = "predicted") -> Policy:
    """The policy of the kind that is there before anybody writes one: its version is 0."""
    return Policy(name=kind, version=0, model=None, kind=kind, params=defaults(kind))


def policy_of(document: Mapping[str, Any]) -> Policy | list[Problem]:
    """The policy that the document says, or all that is wrong with it; never both and never half of one."""
    if not isinstance(document, Mapping):
        return [Problem("", "not-an-object", "A policy is an object.")]
    problems = [
        Problem(_printable(field), "unknown-field", "A policy has name, version, model, kind and params.")
        for field in document
        if field not in ("name", "version", "model", "kind", "params")
    ]
    name, version, model, kind = (document.get(k) for k in ("name", "version", "model", "kind"))
    if not isinstance(name, str) or not _NAME.match(name):
        problems.append(Problem("name", "bad-name", "1 to 63 of a-z, 0-9, dot, dash, underscore; no mark first."))
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**31:
        problems.append(Problem("version", "bad-version", "A version is a whole number from 0."))
    if model is not None and not (isinstance(model, str) and 0 < len(model) <= 255 and model.isprintable()):
        problems.append(Problem("model", "bad-model", "The name of a model, or nothing for all of them."))
    if kind not in KINDS:
        problems.append(Problem("kind", "unknown-kind", f"One of {', '.join(KINDS)}."))
        return problems
    given = document.get("params", {})
    params = _params(cast(Kind, kind), given, problems)
    if problems:
        return problems
    return Policy(name=cast(str, name), version=cast(int, version), model=model, kind=cast(Kind, kind), params=params)


def _params(kind: Kind, given: object, problems: list[Problem]) -> dict[str, float]:
    out = defaults(kind)
    if not isinstance(given, Mapping):
        problems.append(Problem("params", "not-an-object", "Parameters are an object of numbers."))
        return out
    for name, value in given.items():
        bounds = PARAMS[kind].get(name) if isinstance(name, str) else None
        if bounds is None:
            known = ", ".join(PARAMS[kind]) or "none"
            problems.append(
                Problem(f"params.{_printable(name)}", "unknown-parameter", f"{kind} has these parameters: {known}.")
            )
        elif value is None and bounds.endless:
            out[name] = math.inf
        elif (code := _wrong(value, bounds)) is not None:
            problems.append(Problem(f"params.{name}", *code))
        else:
            out[name] = float(value)
    if kind == "predicted":
        if 0 < out["stickiness_cap"] < 1:
            problems.append(Problem("params.stickiness_cap", "out-of-bounds", "0 for no cap, else at least 1."))
        if out["lost_ms"] < out["fresh_ms"]:
            problems.append(Problem("params.lost_ms", "out-of-bounds", "Not less than fresh_ms."))
    return out


def _wrong(value: object, bounds: Bounds) -> tuple[str, str] | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not-a-number", "A parameter is a number."
    # whole numbers of any length compare exactly; only floats can be none at all
    if isinstance(value, float) and not math.isfinite(value):
        return "not-finite", "A parameter is a finite number."
    if bounds.flag and value not in (0, 1):
        return "out-of-bounds", "0 or 1."
    if value < 0:
        return "negative", "No parameter is negative."
    if not bounds.low <= value <= bounds.high:
        return "out-of-bounds", f"From {bounds.low:g} to {bounds.high:g}."
    return None


def _printable(name: object) -> str:
    text = str(name)[:64]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
