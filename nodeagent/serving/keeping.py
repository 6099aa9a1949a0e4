"""Decides what becomes of the blocks of a request that ended: kept where they are, brought one tier down, or dropped.

By what they are worth where they lie, as every other run: a share of the namespace's blocks is asked for again, and
what is not expected to pay for its place goes when there is no room for it. One record a request says what and why.
"""

from collections import Counter

import msgspec

from kvcore.blocks import BlockState
from kvcore.keys import KEY_BYTES
from nodeagent.demotion import Relief
from nodeagent.pool import Pool
from nodeagent.runs import Run
from nodeagent.serving.computing import Prompt
from nodeagent.watermarks import REUSE_FLOOR

KEEP, DEMOTE, DROP = "keep", "demote", "drop"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request's blocks. `terms`: the share that is used again, the tier's fill and its high mark."""

    blocks: dict[str, int]
    reasons: dict[str, int]
    terms: dict[str, float]


def settle(pool: Pool, relief: Relief, prompt: Prompt, blocks: int, now: float) -> Verdict:
    """The blocks of the request's chain up to `blocks` have their verdict, and it was carried out."""
    with pool.lock:
        top = pool.order[0]
        store, config = pool.tiers[top], pool.configs[top]
        fill = store.used_bytes / max(store.capacity_bytes, 1)
        counts, reasons = Counter[str](), Counter[str]()
        for run in _runs(pool, prompt, blocks):
            verdict, reason = _verdict(pool, run, fill > config.high)
            if verdict is not KEEP:
                copy = run.copies[top]
                relief.evict(top, [(run, copy)], now, reason="watermark")
                if not run.copies:
                    verdict, reason = DROP, "value"
                elif top in run.copies:
                    verdict, reason = KEEP, "in-use"
            counts[verdict] += run.blocks
            reasons[reason] += run.blocks
        pool.teller.flush()
        terms = {"reuse": round(prompt.space.share, 4), "fill": round(fill, 4), "high": config.high}
        return Verdict(blocks=dict(counts), reasons=dict(reasons), terms=terms)


def _runs(pool: Pool, prompt: Prompt, blocks: int) -> list[Run]:
    out: list[Run] = []
    for at in range(min(blocks, prompt.blocks)):
        run = pool.index.get(prompt.chain[at * KEY_BYTES : (at + 1) * KEY_BYTES])
        if run is not None and (not out or out[-1] is not run):
            out.append(run)
    return out


def _verdict(pool: Pool, run: Run, pressed: bool) -> tuple[str, str]:
    top = pool.order[0]
    copy = run.copies.get(top)
    if run.space.fenced:
        return (DROP, "fenced") if copy is not None and copy.state is BlockState.COMMITTED else (KEEP, "in-use")
    if copy is None:
        return KEEP, "lower-tier"
    if copy.state is not BlockState.COMMITTED:
        return KEEP, "in-use"
    if pool.budget.pinned(run):
        return KEEP, "pinned"
    if not pressed:
        return KEEP, "room"
    reuse = max(run.space.share, run.hits / (run.hits + 1.0))
    return (KEEP, "reuse") if reuse >= max(REUSE_FLOOR, 0.5) else (DEMOTE, "pressed")
