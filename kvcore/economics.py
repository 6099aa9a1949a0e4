"""Decides what keeping KV is worth: sizes, where fetching beats computing, what a hit must cost, and what a loss costs.

Formulas only, each to be read beside its figure; nothing here knows a price or a speed of its own. Money is in the
unit of the prices that come in, a month is 30 days and a GB 10^9 bytes. Called by the Economics page, the advisor, the
lab, and `kvcore.topology` for what a lost node does.
"""

import math

import msgspec

from kvcore.cards import Curve

GB = 1_000_000_000
MONTH_S = 30 * 24 * 3600
HOUR_S = 3600


def token_layer_bytes(kv_heads: int, head_dim: int, bytes_per_number: float) -> float:
    """Keys and values of one token in one layer of full attention."""
    return 2 * kv_heads * head_dim * bytes_per_number


def token_bytes(layers: int, kv_heads: int, head_dim: int, bytes_per_number: float) -> float:
    """The same in all layers. Real models have `kvcore.sizes`; this is the calculator's."""
    return layers * token_layer_bytes(kv_heads, head_dim, bytes_per_number)


def curve_through(first: tuple[int, float], second: tuple[int, float]) -> Curve:
    """The curve without a base that passes two measured points (tokens, ms).

    Raises:
        ValueError: the points are at one length, or at none.
    """
    (n1, t1), (n2, t2) = first, second
    if n1 <= 0 or n2 <= 0 or n1 == n2:
        raise ValueError("two lengths are needed, both above 0")
    square = (t2 / n2 - t1 / n1) / (n2 - n1)
    return Curve(t1 / n1 - square * n1, square, 0.0, "declared")


def prefill_flops(active_params: float, layers: int, query_heads: int, head_dim: int) -> Curve:
    """Work of prefill as a curve in FLOP: two for every active parameter and token, and attention's square."""
    return Curve(2.0 * active_params, 2.0 * layers * query_heads * head_dim, 0.0, "declared")


def load_ms(size_bytes: float, bytes_per_ms: float, latency_ms: float = 0.0) -> float:
    """What moving so many bytes takes."""
    return latency_ms + size_bytes / bytes_per_ms


def exposed_ms(prefill_ms: float, transfer_ms: float, layers: int) -> float:
    """What is left of a transfer after prefill is over, when each layer leaves as soon as it is computed."""
    compute, send = prefill_ms / layers, transfer_ms / layers
    return send if send <= compute else compute + transfer_ms - prefill_ms


def crossover_tokens(curve: Curve, token_size: float, bytes_per_ms: float, latency_ms: float = 0.0) -> float | None:
    """From which length on fetching a whole prompt beats computing it; 0 = always, None = at no length."""
    slope = curve.linear_ms - token_size / bytes_per_ms
    gain = curve.base_ms - latency_ms
    if curve.square_ms <= 0:
        if slope > 0:
            return max(0.0, -gain / slope)
        return 0.0 if slope == 0 and gain > 0 else None
    root = slope * slope - 4 * curve.square_ms * gain
    if root < 0:
        return 0.0
    return max(0.0, (-slope + math.sqrt(root)) / (2 * curve.square_ms))


def crossover_bytes_per_ms(curve: Curve, token_size: float, tokens: int) -> float:
    """Above which bandwidth fetching a prompt of this length beats computing it."""
    return token_size * tokens / curve.suffix_ms(0, tokens)


class Saved(msgspec.Struct, frozen=True):
    """One hit in the three units: tokens, bytes, and ms of prefill that were not spent."""

    tokens: int
    size_bytes: float
    ms: float


def saved(curve: Curve, token_size: float, cached: int, prompt: int) -> Saved:
    """What finding `cached` tokens of a prompt saved, loading not counted."""
    return Saved(cached, cached * token_size, curve.suffix_ms(0, prompt) - curve.suffix_ms(cached, prompt))


def recompute_cost(seconds: float, gpu_hour_price: float, gpus: int = 1) -> float:
    """R: what computing it again costs. A prefill instance may be several GPUs."""
    return seconds * gpu_hour_price * gpus / HOUR_S


def storage_cost(size_bytes: float, gb_month_price: float, seconds: float) -> float:
    """S: what keeping it so long costs."""
    return size_bytes / GB * gb_month_price / MONTH_S * seconds


def break_even_hit_rate(storage: float, recompute: float, transfer: float) -> float | None:
    """h*: the hit rate at which keeping costs what it saves; None where a hit costs as much as computing again."""
    gain = recompute - transfer
    return storage / (storage + gain) if gain > 0 else None


def break_even_interval_s(recompute: float, transfer: float, size_bytes: float, gb_month_price: float) -> float | None:
    """t*: the longest time between two uses for which keeping pays; inf where storage is free, None where never."""
    gain = recompute - transfer
    if gain <= 0:
        return None
    price = size_bytes / GB * gb_month_price / MONTH_S
    return gain / price if price > 0 else math.inf


def expected_value(hit_chance: float, recompute: float, transfer: float, storage: float) -> float:
    """What keeping an object is expected to bring: its hits less what it costs to keep."""
    return hit_chance * (recompute - transfer) - storage


class Surge(msgspec.Struct, frozen=True):
    """By how much prefill grows where hits are lost: both bounds, and what the model's own curve says."""

    linear: float
    quadratic: float
    model: float | None


def surge(hit_rate: float, *, curve: Curve | None = None, tokens: int = 0, lost: float = 1.0) -> Surge:
    """The factor by which prefill work grows when a part of the hits is lost.

    Args:
        hit_rate: part of a prompt's tokens that was found, below 1.
        curve: of the model; None = only the bounds.
        tokens: of the prompt, for the curve.
        lost: part of the requests whose hits are gone.

    Raises:
        ValueError: a part is not one, or nothing was computed before, so there is no factor.
    """
    if not (0 <= hit_rate < 1 and 0 <= lost <= 1):
        raise ValueError("hit rate in [0, 1), lost part in [0, 1]")
    linear, quadratic = 1 / (1 - hit_rate), 1 / (1 - hit_rate * hit_rate)
    model = None
    if curve is not None and tokens > 0:
        left = tokens * (1 - hit_rate)
        rest = curve.base_ms + left * (curve.linear_ms + curve.square_ms * tokens * (1 + hit_rate))
        model = 1 + lost * (curve.suffix_ms(0, tokens) / rest - 1)
    return Surge(1 + lost * (linear - 1), 1 + lost * (quadratic - 1), model)


def load_after(load: float, factor: float) -> float:
    """Utilisation of prefill after a surge; above 1 it cannot be served."""
    return load * factor


def shed_share(load: float, factor: float) -> float:
    """Part of the requests that must be refused so that the rest can be served."""
    after = load_after(load, factor)
    return 1 - 1 / after if after > 1 else 0.0


class Budget(msgspec.Struct, frozen=True):
    """What moving KV asks of links: bytes a second, as so many links, and the headroom of those that are there."""

    bytes_per_s: float
    links: float
    headroom: float | None
    """1 = idle, 0 = full, negative = cannot; None = it was not said how many there are."""


def link_budget(size_bytes: float, per_second: float, link_bytes_per_s: float, links: int | None = None) -> Budget:
    """Demand against links."""
    demand = size_bytes * per_second
    needed = demand / link_bytes_per_s
    return Budget(demand, needed, None if links is None else (1 - needed / links if links else -math.inf))


def decode_read(size_bytes: float, step_s: float, sessions: int = 1) -> float:
    """Bytes a second that decoding reads: all of a session's KV in every step."""
    return size_bytes / step_s * sessions


def held_byte_seconds(size_bytes: float, seconds: float) -> float:
    """What keeping KV through a wait occupies."""
    return size_bytes * seconds


def usable_after_loss(nodes: int, blocks: int) -> float:
    """Expected leading blocks that stay usable when one of `nodes` is lost and blocks lie on them by chance.

    A chain ends at its first missing block: one lost node takes nearly all of a long prompt that is scattered.
    """
    return (nodes - 1) * (1 - (1 - 1 / nodes) ** blocks)
