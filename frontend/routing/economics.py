"""Decides what the page of economics shows: six calculators, what stands in their fields, and their results.

Every rule is `kvcore.economics`; this module types its arguments and words its results. Values of the own fleet stand
in the fields where they are known, and say whether they were measured, declared or calculated; where nothing is known
an example stands there and is called one. The address carries all fields, so a calculation can be sent to somebody.
Called by `views`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from frontend.routing import amounts, own, sentences
from frontend.routing.amounts import Known, Quantity
from frontend.routing.results import Result, break_even, crossover, kv_size, link_budget, shed, surge
from frontend.tenancy.forms import Form
from kvconsole.infra.access import Principal

MOST = 1e15
FIELDS: dict[str, tuple[Quantity, ...]] = {
    "size": (
        Quantity("layers", "whole", "", "80", 1, 1_000),
        Quantity("kv_heads", "whole", "", "8", 1, 1_024),
        Quantity("head_dim", "whole", "", "128", 1, 4_096),
        Quantity("value_bytes", "number", "B", "1", 0.25, 8),
        Quantity("context_tokens", "whole", "tokens", "131072", 1, 1e8),
        Quantity("block_tokens", "whole", "tokens", "16", 1, 4_096),
        Quantity("sessions", "whole", "", "1000", 1, 1e9),
    ),
    "crossover": (
        Quantity("linear_us", "number", "µs/token", "9.34232", 0, 1e6),
        Quantity("square_ns", "number", "ns/token²", "0.1033468", 0, 1e6),
        Quantity("token_bytes", "bytes", "", "163840", 1, 1e9),
        Quantity("bandwidth", "number", "GB/s", "12.5", 0.001, 1e5),
        Quantity("latency_ms", "number", "ms", "0", 0, 1e6),
        Quantity("fetch_tokens", "whole", "tokens", "32768", 1, 1e8),
    ),
    "break_even": (
        Quantity("object_bytes", "bytes", "", "25 GB", 1, MOST),
        Quantity("price_gb_month", "number", "$/GB·month", "3", 0, 1e6),
        Quantity("life_s", "number", "s", "60", 0, 1e9),
        Quantity("prefill_s", "number", "s", "3", 0, 1e6),
        Quantity("gpu_hour", "number", "$/h", "2.5", 0, 1e6),
        Quantity("gpus", "whole", "", "1", 1, 1e6),
        Quantity("transfer_cost", "number", "$", "0.0003", 0, 1e6),
    ),
    "surge": (
        Quantity("hit_rate", "share", "%", "90", 0, 99.9999),
        Quantity("lost_share", "share", "%", "100", 0, 100),
        Quantity("surge_tokens", "whole", "tokens", "80000", 1, 1e8),
        Quantity("surge_linear_us", "number", "µs/token", "9.34232", 0, 1e6),
        Quantity("surge_square_ns", "number", "ns/token²", "0.1033468", 0, 1e6),
    ),
    "shed": (
        Quantity("load", "share", "%", "60", 0.01, 1_000),
        Quantity("load_surge", "number", "×", "10", 1, 1e6),
    ),
    "links": (
        Quantity("session_bytes", "bytes", "", "25 GB", 1, MOST),
        Quantity("request_rate", "number", "/s", "1000", 0, 1e9),
        Quantity("link_bandwidth", "number", "GB/s", "50", 0.001, 1e6),
    ),
}
COMPUTE: dict[str, Callable[[Mapping[str, float]], list[Result]]] = {
    "size": kv_size,
    "crossover": crossover,
    "break_even": break_even,
    "surge": surge,
    "shed": shed,
    "links": link_budget,
}


class Calculator(NamedTuple):
    """One of the panels: its fields as they are drawn, and its results; none where a field cannot be read."""

    name: str
    fields: list[dict[str, Any]]
    results: list[Result]


def page(now: datetime, data: Mapping[str, Any], principal: Principal | None) -> tuple[Form, dict[str, Any]]:
    """All calculators with what was typed, what is known and what follows."""
    models = own.models()
    known = own.known(now, data.get("model", ""), models, principal)
    form, calculators = Form(), []
    for name, fields in FIELDS.items():
        amounts.read(form, data, fields, known)
        calculators.append(calculator(form, name, known))
    return form, {
        "calculators": calculators,
        "models": models,
        "model": own.chosen(models, data.get("model", "")),
        "answer": sentences.economics({r.code: r for c in calculators for r in c.results}),
        "known": sum(1 for one in known.values() if one.origin == "measured"),
    }


def calculator(form: Form, name: str, known: Mapping[str, Known]) -> Calculator:
    """One panel. What is wrong in it hides its results alone, never those of another."""
    fields = FIELDS[name]
    read = amounts.values(form, fields)
    results = COMPUTE[name](read) if read is not None else []
    return Calculator(name, amounts.rows(form, fields, known), results)
