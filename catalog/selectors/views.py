"""The values that pages, sockets and the REST API show: what is known, how old it is, and what is missing.

None means unknown and is never shown as zero. `stale` marks a last known value; `age_ms` says how old it is.
Sentences and alerts are data (code and params): the pages word them in each language.
"""

from datetime import datetime
from typing import Any

import msgspec

Params = dict[str, Any]


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One computed statement, e.g. code `nodes-reporting`, params `{reporting: 5, nodes: 6}`."""

    code: str
    params: Params = {}


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator should look at.

    Codes: `node-silent`, `node-lost`, `source-recovering`, `source-degraded`, `source-unlisted` (cannot list after a
    loss), `tier-high`, `tier-full`, `refused`, `writer-away`. `severity`: critical | warning | info.
    """

    code: str
    severity: str
    since: datetime | None
    node: str | None = None
    params: Params = {}


class TierView(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of one node. `blocks` is exact at every commit; bytes are what the node last said.

    `state`: ok | high (above the high mark) | full (>= 99.5 %) | unknown (never reported, or stale).
    """

    tier: str
    used_bytes: int | None
    capacity_bytes: int | None
    high: float | None
    low: float | None
    blocks: int | None
    emulated: bool
    encrypted: bool
    state: str
    age_ms: int | None
    stale: bool
    peak: float | None = None
    """Highest fill of the last minute, 0 to 1: a tier that works at its mark crosses it many times in one."""

    @property
    def share(self) -> float | None:
        """Used of capacity, 0 to 1; None where either is unknown."""
        if self.used_bytes is None or not self.capacity_bytes:
            return None
        return self.used_bytes / self.capacity_bytes


class RefusalView(msgspec.Struct, frozen=True, kw_only=True):
    """How often a source's items or frames were refused for one reason."""

    code: str
    count: int
    last_at: datetime
    detail: str


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """One source of events. `state`: exact | recovering | degraded | lost, with the reason's code.

    `lag_ms` is the time from the agent's clock at sending to the commit, of the last frame.
    """

    id: int
    name: str
    dp_rank: int
    state: str
    reason: str
    since: datetime | None
    boot: str
    stream: str
    seq: int
    can_list: bool
    gaps: int
    last_verified_at: datetime | None
    last_frame_at: datetime | None
    age_ms: int | None
    lag_ms: int | None
    queue_ms: float | None
    running: int | None
    refusals: list[RefusalView] = []

    @property
    def refused(self) -> int:
        """Refusals of all codes."""
        return sum(r.count for r in self.refusals)


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `state`: joining | ready | degraded | silent | cordoned | draining | fenced | lost.

    `source_state` is the worst of its sources', None if it has none. `stale`: not heard for over 10 s, or lost; then
    every number is the last known one. `age_ms`: since it was last heard.
    """

    id: str
    name: str
    region: str
    zone: str
    rack: str
    role: str
    state: str
    source_state: str | None
    reason: str
    age_ms: int | None
    lag_ms: int | None
    blocks: int | None
    stale: bool
    tiers: list[TierView]
    sources: list[SourceView]
    agent_url: str = ""
    agent_version: str = ""
    engine: Params = {}
    enrolled_at: datetime | None = None
    last_heard_at: datetime | None = None

    def tier(self, name: str) -> TierView | None:
        """The node's tier of that name."""
        return next((t for t in self.tiers if t.tier == name), None)


class LadderStep(msgspec.Struct, frozen=True, kw_only=True):
    """One tier over all nodes. `used_bytes` sums what reports now; what is stale is in `last_known_bytes` alone.

    `complete` is False where a node with this tier did not report: `used_bytes` is then a lower bound.
    """

    tier: str
    used_bytes: int | None
    last_known_bytes: int
    capacity_bytes: int | None
    low: float | None
    high: float | None
    blocks: int
    reporting: int
    nodes: int
    emulated: bool
    complete: bool


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """Fleet figures over the last 10 s; None while the writer is away. `hit_ratio` is by tokens, None without any."""

    requests_per_s: float | None
    hit_ratio: float | None
    saved_ms_per_s: float | None
    events_per_s: float | None
    evictions_per_s: float | None
    blocks: int
    complete: bool
    as_of: datetime | None


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the Overview, the tiles and the node list show."""

    nodes: list[NodeView]
    ladder: list[LadderStep]
    numbers: Numbers
    alerts: list[Alert]
    answer: list[Sentence]
    complete: bool
    as_of: datetime


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Fill of a tier at one time. A time without a report has a sample of None: a gap, not a zero."""

    t: datetime
    used_bytes: int | None
    peak_bytes: int | None
    capacity_bytes: int | None
    high: float | None
    low: float | None


class FillRow(msgspec.Struct, frozen=True, kw_only=True):
    """How full a tier was over all nodes at one time: used of capacity, 0 to 1, of those that reported; None = nobody.

    `complete` is False where a source that reported the tier within the window did not at this time.
    """

    t: datetime
    share: float | None
    complete: bool


class EvictionRow(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks evicted from one time on for `step_seconds`, by reason; `reasons` None = not reported."""

    t: datetime
    step_seconds: int
    reasons: dict[str, int] | None


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens from one time on for `step_seconds`: hits by tier and what was computed; None = not reported."""

    t: datetime
    step_seconds: int
    requests: int | None
    prompt_tokens: int | None
    hit_tokens: dict[str, int] | None
    saved_ms: float | None


class FamilyView(msgspec.Struct, frozen=True, kw_only=True):
    """One prefix family: all chains that begin with the same block. Rates are means over the last hour."""

    id: str
    tenant: str
    model: str
    namespace: str
    family: str
    label: str
    resident_blocks: int | None
    hit_tokens_per_s: float | None
    saved_ms_per_s: float | None


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the heat map. `kind`: family | other (merged, `merged` families) | new (prompts that hit nothing)."""

    id: str
    kind: str
    tenant: str
    model: str
    namespace: str
    family: str
    label: str
    merged: int = 0


class HeatMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """The heat map's figures: `levels` is rows x columns of u8, row-major; 0 = zero, 1..254, 255 = unknown."""

    metric: str
    unit: str
    layer: int
    step_seconds: int
    axis: int
    rows: list[HeatRow]
    columns: list[int]
    levels: bytes
    scale_max: float
    scale_linear: float
    honesty: list[Sentence]
    as_of: datetime
    row_means: list[float | None] = []
    row_now: list[float | None] = []
