"""Decides what a router's question, what it knows of workers, and its answer look like; `kvcore.scoring` fills them.

Every value is plain and packs with msgspec, so a decision can be recorded and scored again. None is "nobody knows":
it is never read as 0. There are no token ids, keys or salts in any of them. Times are ms, sizes bytes.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

Role = Literal["both", "prefill", "decode"]
Origin = Literal["measured", "declared", "unknown"]
Reason = Literal[
    "rights", "residency", "class", "generation", "fence", "health", "quota", "watermark", "unknown-candidate",
    "role", "no-decode",
]  # fmt: skip
"""Why a candidate was not scored for prefill. `role`: it only decodes (and may do so for another); `no-decode`: it only
prefills and nobody is left to decode."""
REASONS: tuple[Reason, ...] = get_args(Reason)
LOCAL, REMOTE, COMPUTE = "local", "remote", "compute"
HOLE = ""
"""Tier of a run that the candidate does not hold."""


class Curve(msgspec.Struct, frozen=True):
    """What prefill costs on a worker: `base_ms` a request, and linear·n + square·n² from the first token on."""

    linear_ms: float
    square_ms: float
    base_ms: float = 0.0
    source: Origin = "measured"

    def suffix_ms(self, cached: int, prompt: int) -> float:
        """Prefill of the tokens from `cached` to `prompt`: they attend to what is cached, so it is f(prompt)-f(cached).

        The base is paid once where anything is computed; f itself has none.
        """
        new = prompt - cached
        if new <= 0:
            return 0.0
        return self.base_ms + self.linear_ms * new + self.square_ms * new * (prompt + cached)


class Edge(msgspec.Struct, frozen=True):
    """What moving bytes from one node to another costs."""

    bytes_per_ms: float
    latency_ms: float
    source: Origin = "measured"


Edges = Mapping[str, Mapping[str, Edge]]
"""From node → to node → edge. What is missing is unknown, not fast."""


class TierLoad(msgspec.Struct, frozen=True):
    """What bringing blocks of one of a worker's tiers to where it computes costs."""

    tier: str
    bytes_per_ms: float
    latency_ms: float


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the router knows it when it is asked.

    `name` is what people see; (node, source, dp_rank) what the answer says. `cls` is its class: equal hardware and
    model. `state` is the node's (`catalog.Node.state`). `refused` is the first reason that the caller knows why this
    tenant's request may not go there, "" if none; health and watermark are seen here. `used_share` counts only what
    cannot make room at once (in use, pinned), and `high` is the mark that it may not pass. `waiting` and `running` are
    requests; `prefill_tokens` those queued or being computed, `decode_blocks` those of sequences that decode.
    """

    node: str
    source: str
    dp_rank: int = 0
    name: str = ""
    cls: str = ""
    role: Role = "both"
    state: str = "ready"
    curve: Curve = Curve(0.0, 0.0, 0.0, "unknown")
    queue_ms: float | None = None
    decode_queue_ms: float | None = None
    first_decode_ms: float | None = None
    load_age_ms: float | None = None
    waiting: int | None = None
    running: int | None = None
    prefill_tokens: int | None = None
    decode_blocks: int | None = None
    used_share: float | None = None
    high: float = 1.0
    tiers: tuple[TierLoad, ...] = ()
    domain: str = ""
    refused: str = ""


class Held(msgspec.Struct, frozen=True):
    """What one candidate holds of the chain: runs (depth_blocks, tier) by growing depth.

    A run reaches from the depth of the one before it (0 for the first) to its own, and its tier is the fastest that
    has those blocks; `HOLE` where nothing of it has. A candidate that holds nothing has no entry, or no runs.
    """

    candidate: int
    runs: tuple[tuple[int, str], ...]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    `blocks` = whole blocks of the prompt that could be held; `block_bytes` = bytes of one, all cache groups together.
    `session_floor_blocks` = what the session wrote last time: its next turn reads no less where somebody can give it.
    `hot_share` = part of the recent requests that begin with the same `hot_blocks` blocks (`kvcore.heat`).
    `affinity` = a number that is equal for equal prompts and tells nothing of them; it decides ties. `seed` is made of
    the decision's id and is the only chance there is; `turn` counts the router's decisions. `router_ms` = what the
    router itself takes, as it measured.
    """

    prompt_tokens: int
    block_tokens: int
    block_bytes: int
    blocks: int
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    session_node: str | None = None
    session_floor_blocks: int = 0
    hot_share: float = 0.0
    hot_blocks: int = 0
    affinity: int = 0
    seed: int = 0
    turn: int = 0
    router_ms: float | None = None


class Terms(msgspec.Struct, frozen=True):
    """The time to first token in its seven parts, in ms. None is negative."""

    router: float
    queue_p: float
    cache_load: float
    prefill: float
    transfer: float
    queue_d: float
    first_decode: float

    @property
    def total_ms(self) -> float:
        """Their sum, left to right."""
        return (
            self.router + self.queue_p + self.cache_load + self.prefill
            + self.transfer + self.queue_d + self.first_decode
        )  # fmt: skip


class Range(msgspec.Struct, frozen=True):
    """One range of blocks of the plan: from where it comes.

    `source`: local (the worker's own `tier`), remote (fetched from `candidate`, which has it in `tier`), compute.
    `to_block` of the last range counts the block that the prompt ends in, full or not.
    """

    from_block: int
    to_block: int
    source: Literal["local", "remote", "compute"]
    candidate: int
    tier: str


class Card(msgspec.Struct, frozen=True):
    """One candidate with what it would take.

    `overlap_blocks` are loaded, by the plan; the rest of the prompt is computed. `decode` is the candidate that would
    decode (its number, the same one where it decodes itself), None where nobody may. `score` is what the policy
    compares, lowest wins: `total_ms` under `predicted`. `unknowns` names the terms that stand on an estimate.
    """

    candidate: int
    total_ms: float
    terms: Terms
    overlap_blocks: int
    plan: tuple[Range, ...]
    decode: int | None
    score: float
    unknowns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else weighed: over-cap, below-floor, session."""


class Filtered(msgspec.Struct, frozen=True):
    """A candidate that was not scored, and why."""

    candidate: int
    filtered_by: str


class Replicate(msgspec.Struct, frozen=True):
    """The prompt's head is so hot that more workers should hold it."""

    blocks: int
    copies: int
    wanted: int
    target: int | None
    """Who should hold it next; None = who was picked will."""


class Choice(msgspec.Struct, frozen=True):
    """The answer. `prefill` is None where no candidate was left; `why` is a code.

    `cards` are the best 8 in the order of the policy, the picked one first; `filtered` all that were not scored.
    """

    prefill: Card | None
    decode: Candidate | None
    cards: tuple[Card, ...]
    filtered: tuple[Filtered, ...]
    policy: str
    version: int
    why: str
    replicate: Replicate | None = None


class Learned(msgspec.Struct, frozen=True):
    """What outcomes have taught of the terms, per worker class: factors of the seven, then ms a waiting and a running
    request cost on top, then ms on every request. A class that is missing is served by the terms as they are.

    Source: `routing.predictor`, which fits them.
    """

    factors: dict[str, tuple[float, ...]] = {}
    version: int = 0


NOTHING_LEARNED = Learned()
