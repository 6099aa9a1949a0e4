"""A policy is read from a document whole, or refused with all that is wrong."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.policies import KINDS, PARAMS, Policy, built_in, defaults, policy_of

GOOD: dict[str, Any] = {"name": "mine", "version": 3, "kind": "predicted"}


def codes(document: Any) -> list[tuple[str, str]]:
    found = policy_of(document)
    assert isinstance(found, list)
    return [(p.field, p.code) for p in found]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_has_its_default(kind: Any) -> None:
    found = policy_of({**GOOD, "kind": kind})
    assert found == Policy(name="mine", version=3, model=None, kind=kind, params=defaults(kind))
    assert built_in(kind).params == defaults(kind)
    assert built_in(kind).version == 0
    for name, bounds in PARAMS[kind].items():
        assert bounds.low <= bounds.default <= bounds.high or math.isinf(bounds.default), name


def test_documented_defaults() -> None:
    linear, ray, llmd = defaults("linear"), defaults("tree_p2c"), defaults("tier_weighted")
    assert (linear["overlap_score_credit"], linear["prefill_load_scale"], linear["router_temperature"]) == (1, 1, 0)
    assert (linear["host_cache_hit_weight"], linear["disk_cache_hit_weight"]) == (0.75, 0.25)
    assert (linear["shared_cache_multiplier"], linear["credit_decay"]) == (0.5, 0)
    assert ray == {"imbalanced_threshold": math.inf, "match_rate_threshold": 0.1}
    assert (llmd["hbm"], llmd["dram"], llmd["ssd"]) == (1.0, 0.8, 1.0)
    assert (llmd["prefix_weight"], llmd["queue_weight"], llmd["utilization_weight"]) == (3, 2, 2)


def test_reads_back() -> None:
    for kind in KINDS:
        policy = built_in(kind)
        assert policy_of(json.loads(json.dumps(policy.document()))) == policy


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"stickiness_cap": math.nan}, "not-finite"),
        ({"stickiness_cap": math.inf}, "not-finite"),
        ({"fresh_ms": -1}, "negative"),
        ({"fresh_ms": -0.5}, "negative"),
        ({"fresh_ms": "10"}, "not-a-number"),
        ({"fresh_ms": True}, "not-a-number"),
        ({"fresh_ms": None}, "not-a-number"),
        ({"fresh_ms": 10**400}, "out-of-bounds"),
        ({"use_learned": 0.5}, "out-of-bounds"),
        ({"transfer_exposed": 1.01}, "out-of-bounds"),
        ({"stickiness_cap": 0.5}, "out-of-bounds"),
        ({"unknown_bytes_per_ms": 0}, "out-of-bounds"),
        ({"overlap": 1}, "unknown-parameter"),
        ({3: 1}, "unknown-parameter"),
    ],
)
def test_parameters_are_refused(params: dict[Any, Any], code: str) -> None:
    assert codes({**GOOD, "params": params}) == [(f"params.{next(iter(params))}", code)]


def test_all_is_said_at_once() -> None:
    found = codes({"name": "Übel", "version": -1, "kind": "predicted", "model": "", "colour": 1, "params": {"x": 1}})
    assert found == [
        ("colour", "unknown-field"), ("name", "bad-name"), ("version", "bad-version"), ("model", "bad-model"),
        ("params.x", "unknown-parameter"),
    ]  # fmt: skip
    assert codes({**GOOD, "kind": "best"}) == [("kind", "unknown-kind")]
    assert codes({**GOOD, "kind": []}) == [("kind", "unknown-kind")]
    assert codes({**GOOD, "params": [1]}) == [("params", "not-an-object")]
    assert codes([]) == [("", "not-an-object")]
    assert codes({**GOOD, "version": True}) == [("version", "bad-version")]
    assert codes({**GOOD, "params": {"lost_ms": 1.0}}) == [("params.lost_ms", "out-of-bounds")]
    assert codes({**GOOD, "params": {"a\nb": 1}})[0][0] == "params.a\N{REPLACEMENT CHARACTER}b"


def test_no_limit_is_null_where_it_may_be() -> None:
    found = policy_of({**GOOD, "kind": "tree_p2c", "params": {"imbalanced_threshold": None}})
    assert isinstance(found, Policy)
    assert found.params["imbalanced_threshold"] == math.inf
    assert found.document()["params"]["imbalanced_threshold"] is None


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8,
), st.sampled_from([*KINDS, "other"]), st.sampled_from(["params", "name", "version", "model", "kind"]))  # fmt: skip
def test_any_document_is_a_policy_or_a_list_of_problems(value: Any, kind: str, field: str) -> None:
    found = policy_of({**GOOD, "kind": kind, field: value})
    assert isinstance(found, Policy) or (found and all(p.words and p.code for p in found))
    if isinstance(found, Policy):
        assert all(v >= 0 for v in found.params.values())
        assert set(found.params) == set(PARAMS[found.kind])
