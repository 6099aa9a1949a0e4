"""Decides what is known of a fleet before a request is: who may be used, and each worker's costs with no gap left.

What nobody knows is estimated and named, never 0: a worker without a load report has the fleet's median queue, and a
report that grows old drifts to the median where that is worse. A prepared fleet serves every request until a load, an
edge, the policy or what is learned changes; `kvcore.scoring.score` prepares one for each call, a router keeps it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from kvcore.cards import Candidate, Curve, Edge, Edges, Filtered, Learned
from kvcore.policies import Policy, defaults

USABLE = frozenset({"ready", "degraded"})
"""States of a node to which new requests go."""
READABLE = USABLE | {"cordoned", "draining"}
"""States of a node from which blocks may be fetched."""
_MAY_READ = frozenset({"", "quota", "watermark", "unknown-candidate"})
_PLAIN = (1.0,) * 7 + (0.0,) * 3
FACTORS = len(_PLAIN)
"""Numbers that are learned per class: seven factors, ms a waiting and a running request, ms on every request."""
_DEFAULTS = defaults("predicted")
TIE = (1 << 30) - 1
MIX = 668_265_263


class Row(NamedTuple):
    """One worker that may prefill, with its costs scaled by what is learned. ms; rates in ms a token.

    `at` is its place among the candidates. `own_decode` None: it does not decode itself.
    """

    at: int
    node: str
    queue: float
    base: float
    linear: float
    square: float
    own_decode: float | None
    tie: int
    router: float
    load: float
    transfer: float
    queue_d: float
    first: float
    unknown_p: tuple[str, ...]
    unknown_d: tuple[str, ...]


class Decoder(NamedTuple):
    """One worker that may decode for others."""

    ms: float
    at: int
    node: str
    queue_d: float
    first: float
    unknowns: tuple[str, ...]


class Fleet:
    """What `prepare` has made: never changed afterwards."""

    __slots__ = (
        "candidates", "decoders", "dedicated", "edge", "edges", "fastest", "filtered", "learned", "params", "place",
        "policy", "quickest", "readable", "router_ms", "rows", "tiers",
    )  # fmt: skip

    candidates: Sequence[Candidate]
    policy: Policy
    params: dict[str, float]
    learned: Learned
    edges: Edges
    edge: Edge
    """What stands for an edge that must be used and that nobody knows."""
    fastest: float
    """No edge has more bytes a ms."""
    quickest: float
    """No edge has less latency."""
    filtered: tuple[Filtered, ...]
    rows: list[Row]
    decoders: list[Decoder]
    """Who may decode for another, the quickest first."""
    dedicated: bool
    """Some only decode. Where none does, who does both decodes what it prefilled, and only others need a decoder."""
    readable: list[bool]
    tiers: dict[str, tuple[float, float]]
    """Tier → bytes a ms and latency, for workers that do not say theirs."""
    place: dict[int, int] | None
    """Candidate → its place among the rows; None where some row stands on what others of the fleet report."""
    router_ms: float

    @property
    def mean_queue(self) -> float:
        """ms, over all rows; 0 where there is none."""
        return sum(r.queue for r in self.rows) / len(self.rows) if self.rows else 0.0


class Wires(NamedTuple):
    """What is known of all edges together: their median, the most bytes a ms, the least latency. None = no edge."""

    edge: Edge | None
    fastest: float
    quickest: float


def wires_of(edges: Edges) -> Wires:
    """The edges summed up: looks at each of them, so a router keeps it while its edges stay."""
    known = [e for tos in edges.values() for e in tos.values()]
    if not known:
        return Wires(None, 0.0, 0.0)
    rates, waits = [e.bytes_per_ms for e in known], [e.latency_ms for e in known]
    edge = Edge(_median(rates), _median(waits), "unknown")
    return Wires(edge, max(rates), min(waits))


def prepare(
    candidates: Sequence[Candidate], edges: Edges, policy: Policy, learned: Learned, wires: Wires | None = None
) -> Fleet:
    """The fleet as it is now: some µs per candidate, and a tenth of one per edge where `wires` are not given."""
    out = Fleet()
    out.candidates, out.policy, out.learned, out.edges = candidates, policy, learned, edges
    out.params = params = policy.params if policy.kind == "predicted" else _DEFAULTS
    refused = [_refused(c) for c in candidates]
    if "watermark" in refused and "" not in refused:
        # everybody is full: somebody must make room, and that is not nobody
        refused = ["" if why == "watermark" else why for why in refused]
    out.readable = [c.refused in _MAY_READ and c.state in READABLE for c in candidates]
    open_ = [i for i, why in enumerate(refused) if not why]
    _edges(out, params, wires_of(edges) if wires is None else wires)
    out.tiers = _tiers(candidates)
    out.router_ms = params["unknown_router_ms"]
    workers = _workers(candidates, open_, params, learned if params["use_learned"] else None)
    _roles(out, open_, refused, workers)
    return out


def moved(fleet: Fleet, changed: Iterable[int], candidates: Sequence[Candidate]) -> Fleet | None:
    """The fleet after some candidates' queues, waiting and running requests changed, and nothing else of them.

    The same as `prepare` makes of `candidates`, in a µs or two for each that changed. None: prepare it anew, because
    what is not known of some workers is estimated from the others.
    """
    if fleet.place is None:
        return None
    out = Fleet()
    for name in Fleet.__slots__:
        setattr(out, name, getattr(fleet, name))
    out.candidates, out.rows = candidates, fleet.rows.copy()
    params, learned = fleet.params, fleet.learned
    for at in changed:
        place, c = fleet.place.get(at), candidates[at]
        if place is None:
            continue
        age = c.load_age_ms
        if c.queue_ms is None or (age is not None and age > params["fresh_ms"]):
            return None
        f = learned.factors.get(c.cls, _PLAIN) if params["use_learned"] else _PLAIN
        queue = c.queue_ms
        if f is not _PLAIN and len(f) == FACTORS:
            queue = f[1] * queue + f[7] * (c.waiting or 0) + f[8] * (c.running or 0) + f[9]
        out.rows[place] = out.rows[place]._replace(queue=queue)
    return out


def _refused(c: Candidate) -> str:
    if c.refused:
        return c.refused
    if c.state not in USABLE:
        return "health"
    if c.used_share is not None and c.used_share >= c.high:
        return "watermark"
    return ""


def _edges(out: Fleet, params: dict[str, float], wires: Wires) -> None:
    if wires.edge is not None:
        out.edge, out.fastest, out.quickest = wires.edge, wires.fastest, wires.quickest
    else:
        out.edge = Edge(params["unknown_bytes_per_ms"], params["unknown_latency_ms"], "unknown")
        out.fastest, out.quickest = out.edge.bytes_per_ms, out.edge.latency_ms


def _tiers(candidates: Sequence[Candidate]) -> dict[str, tuple[float, float]]:
    said: dict[str, list[tuple[float, float]]] = {}
    for c in candidates:
        for t in c.tiers:
            said.setdefault(t.tier, []).append((t.bytes_per_ms, t.latency_ms))
    return {t: (_median([b for b, _ in many]), _median([ms for _, ms in many])) for t, many in said.items()}


class Worker(NamedTuple):
    """A worker's estimates, before it has a role: costs scaled, with the terms that are estimated."""

    queue: float
    base: float
    linear: float
    square: float
    queue_d: float
    first: float
    factors: tuple[float, ...]
    unknown_p: tuple[str, ...]
    unknown_d: tuple[str, ...]


def _workers(
    candidates: Sequence[Candidate], open_: list[int], params: dict[str, float], learned: Learned | None
) -> dict[int, Worker]:
    fresh, lost = params["fresh_ms"], params["lost_ms"]
    usual = _Usual([candidates[i] for i in open_], params)
    out: dict[int, Worker] = {}
    for i in open_:
        c = candidates[i]
        lost_p: tuple[str, ...] = ()
        lost_d: tuple[str, ...] = ()
        queue, queue_d, first, curve, age = c.queue_ms, c.decode_queue_ms, c.first_decode_ms, c.curve, c.load_age_ms
        old = 0.0 if age is None or age <= fresh else min(1.0, (age - fresh) / max(lost - fresh, 1e-9))
        if queue is None:
            queue, lost_p = usual.queue(), ("queue_p",)
        elif old:
            queue, lost_p = queue + old * max(0.0, usual.queue() - queue), ("queue_p",)
        if curve.source == "unknown":
            curve, lost_p = usual.curve(c.cls), (*lost_p, "prefill")
        if c.role != "prefill":
            if queue_d is None:
                queue_d, lost_d = usual.decode_queue(), ("queue_d",)
            elif old:
                queue_d, lost_d = queue_d + old * max(0.0, usual.decode_queue() - queue_d), ("queue_d",)
            if first is None:
                first, lost_d = usual.first(), (*lost_d, "first_decode")
        f = _PLAIN if learned is None else learned.factors.get(c.cls, _PLAIN)
        if f is _PLAIN or len(f) != FACTORS:
            out[i] = Worker(
                queue, curve.base_ms, curve.linear_ms, curve.square_ms, queue_d or 0.0, first or 0.0, _PLAIN, lost_p,
                lost_d,
            )  # fmt: skip
            continue
        queue = f[1] * queue + f[7] * (c.waiting or 0) + f[8] * (c.running or 0) + f[9]
        out[i] = Worker(
            queue, f[3] * curve.base_ms, f[3] * curve.linear_ms, f[3] * curve.square_ms, f[5] * (queue_d or 0.0),
            f[6] * (first or 0.0), f, lost_p, lost_d,
        )  # fmt: skip
    return out


def _roles(out: Fleet, open_: list[int], refused: list[str], workers: dict[int, Worker]) -> None:
    candidates = out.candidates
    decode = [i for i in open_ if candidates[i].role == "decode"]
    decode = decode or [i for i in open_ if candidates[i].role == "both"]
    out.dedicated = any(candidates[i].role == "decode" for i in open_)
    out.decoders = sorted(
        Decoder(w.queue_d + w.first, i, candidates[i].node, w.queue_d, w.first, w.unknown_d)
        for i in decode
        if (w := workers[i])
    )
    filtered = [Filtered(i, why) for i, why in enumerate(refused) if why]
    out.rows = []
    for i in open_:
        c, w = candidates[i], workers[i]
        if c.role == "decode" or (c.role == "prefill" and not out.decoders):
            filtered.append(Filtered(i, "role" if c.role == "decode" else "no-decode"))
            continue
        own = w.queue_d + w.first if c.role == "both" else None
        f = w.factors
        out.rows.append(
            Row(
                i, c.node, w.queue, w.base, w.linear, w.square, own, _tie(c), f[0], f[2], f[4], w.queue_d, w.first,
                w.unknown_p, w.unknown_d,
            )
        )  # fmt: skip
    out.filtered = tuple(filtered)
    alone = not any(r.unknown_p or r.unknown_d for r in out.rows)
    out.place = {r.at: n for n, r in enumerate(out.rows)} if alone else None


class _Usual:
    """The fleet's medians, each made when it is first needed."""

    def __init__(self, among: Sequence[Candidate], params: dict[str, float]) -> None:
        self.among, self.params = among, params
        self.made: dict[str, float] = {}
        self.curves: dict[str, Curve] = {}

    def _of(self, name: str, value: Callable[[Candidate], float | None], otherwise: str) -> float:
        found = self.made.get(name)
        if found is None:
            known = [v for c in self.among if (v := value(c)) is not None]
            found = self.made[name] = _median(known) if known else self.params[otherwise]
        return found

    def queue(self) -> float:
        """Median of the queues of those who may prefill."""
        return self._of("p", lambda c: None if c.role == "decode" else c.queue_ms, "unknown_queue_ms")

    def decode_queue(self) -> float:
        """Median of the queues of those who may decode."""
        return self._of("d", lambda c: None if c.role == "prefill" else c.decode_queue_ms, "unknown_queue_ms")

    def first(self) -> float:
        """Median of first decode steps."""
        return self._of("f", lambda c: None if c.role == "prefill" else c.first_decode_ms, "unknown_first_decode_ms")

    def curve(self, cls: str) -> Curve:
        """Median curve of the class, else of the fleet, else what the policy says."""
        if cls not in self.curves:
            known = [c.curve for c in self.among if c.curve.source != "unknown"]
            alike = [c.curve for c in self.among if c.curve.source != "unknown" and c.cls == cls] or known
            if alike:
                parts = [_median([part(c) for c in alike]) for part in (_linear, _square, _base)]
                self.curves[cls] = Curve(parts[0], parts[1], parts[2], "unknown")
            else:
                self.curves[cls] = Curve(self.params["unknown_prefill_ms_per_token"], 0.0, 0.0, "unknown")
        return self.curves[cls]


def _linear(curve: Curve) -> float:
    return curve.linear_ms


def _square(curve: Curve) -> float:
    return curve.square_ms


def _base(curve: Curve) -> float:
    return curve.base_ms


def _median(values: Iterable[float]) -> float:
    line = sorted(values)
    half = len(line) // 2
    return line[half] if len(line) % 2 else (line[half - 1] + line[half]) / 2


def rendezvous(tie: int, affinity: int) -> int:
    """What decides between equals: the lowest wins. Equal prompts meet at the same worker, whoever else is there."""
    return ((tie ^ (affinity & TIE)) * MIX) & TIE


def _tie(c: Candidate) -> int:
    """A number of the worker by which ties are decided, the same in every router and after every restart."""
    return crc32(f"{c.node}\0{c.source}\0{c.dp_rank}".encode()) & TIE
