"""Decides how results of `kvcore.economics` read: the figure to the digit, its unit, and the formula it comes from.

Each function takes the typed fields of one calculator, in the units that stand beside them, and gives its results in
the order of the panel. What has no value is said to have none, with the reason; it is never 0. Called by `economics`.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from frontend import formats
from kvcore import economics
from kvcore.cards import Curve

BYTES_PER_MS = 1e6
"""Of one GB/s."""
US_PER_MS, NS_PER_MS = 1e3, 1e6
Fields = Mapping[str, float]


class Result(NamedTuple):
    """One line. `value` is the figure itself, None where there is none; `text` what is shown."""

    code: str
    value: float | None
    text: Any
    unit: str
    formula: str


def exact_bytes(code: str, value: float, formula: str) -> Result:
    """Bytes to the last one, and in a unit that can be read."""
    whole = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return Result(code, value, f"{whole} B" if value < 1024 else f"{whole} B = {formats.size(value)}", "", formula)


def money(code: str, value: float, formula: str) -> Result:
    """Money with as many digits as prices of single requests need."""
    return Result(code, value, f"${value:,.8f}" if value < 1 else f"${value:,.4f}", "", formula)


def span(code: str, milliseconds: float, formula: str) -> Result:
    """A duration, in the unit that says enough."""
    text = f"{milliseconds / 1000:,.3f} s" if milliseconds >= 1000 else f"{milliseconds:,.2f} ms"
    return Result(code, milliseconds, text, "", formula)


def times(code: str, value: float | None, formula: str) -> Result:
    """A factor."""
    return Result(code, value, formats.unknown() if value is None else f"{value:,.3f} ×", "", formula)


def share(code: str, value: float | None, formula: str) -> Result:
    """A fraction as percent; None = it never pays."""
    return Result(code, value, never() if value is None else f"{100 * value:.3f} %", "", formula)


def never() -> str:
    """Where no figure can be reached."""
    return pgettext("result", "never")


# --- the calculators --------------------------------------------------------------------------------------------------


def kv_size(of: Fields) -> list[Result]:
    """Bytes of a token in a layer, a token, a block, a context, all sessions."""
    heads, dim, size = int(of["kv_heads"]), int(of["head_dim"]), of["value_bytes"]
    token = economics.token_bytes(int(of["layers"]), heads, dim, size)
    context = token * of["context_tokens"]
    return [
        exact_bytes("layer_token", economics.token_layer_bytes(heads, dim, size), "2 · h · d · s"),
        exact_bytes("token", token, "L · 2 · h · d · s"),
        exact_bytes("block", token * of["block_tokens"], "L · 2 · h · d · s · b"),
        exact_bytes("context", context, "L · 2 · h · d · s · n"),
        exact_bytes("all_sessions", context * of["sessions"], "L · 2 · h · d · s · n · N"),
    ]


def curve_of(linear_us: float, square_ns: float) -> Curve:
    """The prefill curve as it was typed."""
    return Curve(linear_us / US_PER_MS, square_ns / NS_PER_MS, 0.0, "declared")


def crossover(of: Fields) -> list[Result]:
    """From which length on a link beats the prefill, and both times for one length."""
    curve, rate = curve_of(of["linear_us"], of["square_ns"]), of["bandwidth"] * BYTES_PER_MS
    size, tokens = of["token_bytes"], int(of["fetch_tokens"])
    found = economics.crossover_tokens(curve, size, rate, of["latency_ms"])
    compute = curve.suffix_ms(0, tokens)
    even = economics.crossover_bytes_per_ms(curve, size, tokens) / BYTES_PER_MS if compute else None
    at = never() if found is None else _("every length") if found == 0 else f"{found:,.0f}"
    return [
        Result("crossover_tokens", found, at, "tokens" if found else "", "a·n + b·n² = l + n·B/r"),
        span("fetch_ms", economics.load_ms(size * tokens, rate, of["latency_ms"]), "l + n·B/r"),
        span("compute_ms", compute, "a·n + b·n²"),
        Result("even_bandwidth", even, never() if even is None else f"{even:,.2f} GB/s", "", "n·B / (a·n + b·n²)"),
    ]


def break_even(of: Fields) -> list[Result]:
    """What a hit must be worth, and how soon it must come."""
    recompute = economics.recompute_cost(of["prefill_s"], of["gpu_hour"], int(of["gpus"]))
    storage = economics.storage_cost(of["object_bytes"], of["price_gb_month"], of["life_s"])
    rate = economics.break_even_hit_rate(storage, recompute, of["transfer_cost"])
    interval = economics.break_even_interval_s(
        recompute, of["transfer_cost"], of["object_bytes"], of["price_gb_month"]
    )  # fmt: skip
    return [
        money("recompute", recompute, "R = t · p · g / 3600"),
        money("storage", storage, "S = B · P · T / 30 d"),
        money("transfer", of["transfer_cost"], "T"),
        share("hit_share", rate, "h* = S / (S + R − T)"),
        Result("interval", interval, _interval(interval), "", "t* = (R − T) / (B · P)"),
    ]


def _interval(seconds: float | None) -> str:
    if seconds is None:
        return never()
    if math.isinf(seconds):
        return _("any, keeping costs nothing")
    return f"{seconds:,.3f} s" if seconds < 1_000 else f"{seconds / 60:,.3f} min"


def surge(of: Fields) -> list[Result]:
    """Both bounds, and the model's own."""
    curve = curve_of(of["surge_linear_us"], of["surge_square_ns"])
    tokens = int(of["surge_tokens"])
    known = curve if curve.suffix_ms(0, tokens) > 0 else None
    found = economics.surge(of["hit_rate"], curve=known, tokens=tokens, lost=of["lost_share"])
    return [
        times("surge_linear", found.linear, "1 + f · (1 / (1 − h) − 1)"),
        times("surge_square", found.quadratic, "1 + f · (1 / (1 − h²) − 1)"),
        times("surge_model", found.model, "1 + f · (F(0, n) / F(h·n, n) − 1)"),
    ]


def shed(of: Fields) -> list[Result]:
    """What no longer fits."""
    after = economics.load_after(of["load"], of["load_surge"])
    away = economics.shed_share(of["load"], of["load_surge"])
    return [
        Result("load_after", after, f"{100 * after:,.1f} %", "", "ρ = ρ₀ · s"),
        Result("shed_share", away, f"{100 * away:.2f} %", "", "1 − 1 / ρ"),
    ]


def link_budget(of: Fields) -> list[Result]:
    """What the sessions ask of links."""
    found = economics.link_budget(of["session_bytes"], of["request_rate"], of["link_bandwidth"] * economics.GB)
    return [
        Result("demand", found.bytes_per_s, f"{found.bytes_per_s / economics.GB:,.1f} GB/s", "", "B · λ"),
        Result("link_count", found.links, f"{found.links:,.1f}", "links", "B · λ / r"),
    ]
