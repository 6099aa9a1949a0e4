"""Workers, asks and the curve that the figures of the reference are made with."""

from typing import Any

from kvcore.cards import Ask, Candidate, Curve, TierLoad
from kvcore.economics import curve_through

CURVE = curve_through((4096, 40.0), (131_072, 3000.0))
"""4K tokens in 40 ms, 128K in 3 s."""
TOKEN = 163_840
"""Bytes of a token: 80 layers, 8 heads of 128, fp8."""
BLOCK = 16


def worker(node: str, queue_ms: float | None = 0.0, **more: Any) -> Candidate:
    given: dict[str, Any] = {
        "node": node, "source": "engine", "cls": "a", "curve": CURVE, "queue_ms": queue_ms, "decode_queue_ms": 0.0,
        "first_decode_ms": 10.0, "load_age_ms": 100.0, "waiting": 0, "running": 0, "used_share": 0.1,
        "tiers": (TierLoad("dram", 25e6, 0.2),),
    }  # fmt: skip
    return Candidate(**{**given, **more})


def asking(tokens: int, **more: Any) -> Ask:
    given: dict[str, Any] = {
        "prompt_tokens": tokens, "block_tokens": BLOCK, "block_bytes": TOKEN * BLOCK, "blocks": tokens // BLOCK,
        "router_ms": 1.0,
    }  # fmt: skip
    return Ask(**{**given, **more})


UNKNOWN = Curve(0.0, 0.0, 0.0, "unknown")
