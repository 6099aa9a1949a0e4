"""Keeps decisions: what is kept of them is decided at once, packing and writing is a thread's, in batches.

Up to `FULL_RATE` decisions a second are all kept, beyond that one in `ONE_IN`, and every refusal, fallback, outlier.
What does not fit into the queue is dropped and counted: a router never waits for its record. Outcomes are taken once,
from the gateway that got the answer. Called by `deciding` and `hot`; read through `selectors`.
"""

import collections
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from kvconsole.infra import nudge, sql
from kvcore.cards import Ask, Candidate, Choice, Edge, Held, Learned
from kvcore.lost_hits import Short
from kvcore.policies import Policy
from routing.lost_hits import short_fits
from routing.packing import FORM, Inputs, pack
from routing.selectors import slot_of

DECISIONS = "decisions"
"""Topic of the wake-ups."""
FULL_RATE, ONE_IN = 200, 16
QUEUE_MOST, RECENT_MOST, INPUTS_MOST = 8_192, 65_536, 4_096
BATCH_SECONDS, BATCH_MOST = 0.25, 500
KEEP_HOURS, SWEEP_SECONDS = 72, 600.0
OUTLIER_SHARE, OUTLIER_MS = 0.5, 50.0
"""Measured further from what was predicted than this share and these ms: an outlier."""
_log = logging.getLogger(__name__)

COLUMNS = (
    "id", "slot", "tenant_id", "at", "origin", "router", "gateway", "model", "namespace", "generation", "answer",
    "code", "mode", "index_age_ms", "kept", "stands_for", "node", "source", "dp_rank", "decode_node", "policy",
    "policy_version", "prompt_tokens", "overlap_tokens", "predicted_ms", "inputs", "measured_at", "measured",
    "measured_ms", "hit_tokens", "regret_ms",
)  # fmt: skip
_INSERT = (
    f"INSERT INTO routing_decision ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"  # noqa: S608
    " ON CONFLICT DO NOTHING"
)
_OUTCOME = """
UPDATE routing_decision SET measured_at = %s, measured = %s, measured_ms = %s, hit_tokens = %s, regret_ms = %s
WHERE slot = %s AND id = %s AND measured_at IS NULL"""
_TALLY = """
INSERT INTO routing_tally (router, at, made, recorded, sampled_out, dropped, refused, fallback, outcomes)
VALUES (%s, now(), %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (router) DO UPDATE SET at = excluded.at,
    made = excluded.made, recorded = excluded.recorded, sampled_out = excluded.sampled_out,
    dropped = excluded.dropped, refused = excluded.refused, fallback = excluded.fallback,
    outcomes = excluded.outcomes"""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One decision with all that it was made from. No token ids, no keys, no salts."""

    id: UUID
    at: datetime
    tenant_id: UUID
    model: str
    namespace: bytes
    generation: int
    holder: str
    ask: Ask
    candidates: Sequence[Candidate]
    held: Sequence[Held]
    edges: Mapping[str, Mapping[str, Edge]]
    policy: Policy
    learned: Learned
    choice: Choice
    mode: str
    index_age_ms: int
    origin: str = "router"
    trusted: bool = False
    """Its outcome is learned from."""
    chosen: int | None = None
    """Of a foreign decision: the candidate that was chosen; ours is in `choice`."""
    regret_ms: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What a gateway measured, clamped."""

    at: datetime
    ttft_ms: float
    terms: dict[str, float]
    hit_tokens: int | None
    short: tuple[Short, ...] = ()
    """Why tokens of the plan did not come, as the node said that served."""

    @property
    def measured(self) -> dict[str, Any]:
        """As the record keeps it: terms by name and, where something fell short, `short`."""
        said = [{"cause": one.cause, "tokens": one.tokens} for one in self.short]
        return self.terms | ({"short": said} if said else {})


class Sent(msgspec.Struct):
    """What is remembered of a decision until its outcome. `best_other_ms`: what the next best was expected to take."""

    holder: str
    predicted_ms: float
    best_other_ms: float | None
    prompt_tokens: int
    kept: bool
    made: Recorded | None
    known: bool = False


class Tallies(msgspec.Struct):
    """Counters of this process; see `routing.models.Tally`."""

    made: int = 0
    recorded: int = 0
    sampled_out: int = 0
    dropped: int = 0
    refused: int = 0
    fallback: int = 0
    outcomes: int = 0


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was refused before anything was scored."""

    id: UUID
    at: datetime
    tenant_id: UUID
    model: str
    holder: str
    code: str
    mode: str
    prompt_tokens: int


class Kept(msgspec.Struct, frozen=True):
    """A decision on its way to the table."""

    made: Recorded
    kept: str
    code: str = ""
    stands_for: int = 1
    told: Outcome | None = None
    regret_ms: float | None = None


class Later(msgspec.Struct, frozen=True):
    """The outcome of a decision that is in the table, or on its way there."""

    decision: UUID
    told: Outcome
    regret_ms: float | None


Item = Kept | Later | Refused


class Recorder:
    """The queue, the thread behind it, and what is remembered for outcomes."""

    def __init__(self, router: str, *, role: str = "router") -> None:
        self.router, self.role = router, role
        self.tallies = Tallies()
        self.recent: OrderedDict[UUID, Sent] = OrderedDict()
        self._whole: collections.deque[Sent] = collections.deque()
        self._queue: collections.deque[Item] = collections.deque()
        self._second, self._in_second, self._beyond = 0, 0, 0
        self.learn: Callable[[Recorded, float], None] | None = None
        """Hears of each trusted outcome, in the event loop."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._told = Tallies()
        self._swept = time.monotonic()

    # ---------------------------------------------------------------- the event loop
    def add(self, made: Recorded, *, code: str = "") -> None:
        """The decision is counted, remembered for its outcome, and kept if it is its turn."""
        self.tallies.made += 1
        fallback = made.mode == "recompute"
        self.tallies.refused += bool(code)
        self.tallies.fallback += fallback
        kept, stands_for = "refusal" if code else "fallback" if fallback else "", 1
        if made.origin != "router":
            kept = "foreign"
        if not kept:
            kept, stands_for = self._turn()
        queued = bool(kept) and self._put(Kept(made, kept, code, stands_for, regret_ms=made.regret_ms))
        if not kept:
            self.tallies.sampled_out += 1
        if not code and made.origin == "router" and made.choice.prefill is not None:
            self._remember(made, queued)

    def refuse(self, item: Refused) -> None:
        """A request that was refused before anything was scored is counted and kept."""
        self.tallies.made += 1
        self.tallies.refused += 1
        self._put(item)

    def _turn(self) -> tuple[str, int]:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second <= FULL_RATE:
            return "all", 1
        self._beyond += 1
        return ("sample", ONE_IN) if self._beyond % ONE_IN == 0 else ("", 0)

    def _put(self, item: Item) -> bool:
        if len(self._queue) >= QUEUE_MOST:
            self.tallies.dropped += 1
            return False
        self._queue.append(item)
        if len(self._queue) >= BATCH_MOST:
            self._wake.set()
        return True

    def _remember(self, made: Recorded, kept: bool) -> None:
        cards = made.choice.cards
        other = min((c.total_ms for c in cards[1:]), default=None)
        sent = Sent(made.holder, cards[0].total_ms, other, made.ask.prompt_tokens, kept, made)
        self.recent[made.id] = sent
        self._whole.append(sent)
        if len(self._whole) > INPUTS_MOST:
            self._whole.popleft().made = None
        if len(self.recent) > RECENT_MOST:
            self.recent.popitem(last=False)

    def outcome(self, decision: UUID, holder: str, told: Outcome) -> str:
        """The outcome is taken if this process made the decision for this holder and heard none yet.

        Returns:
            "" = taken; not-found: it is not known here, or another's; outcome-known; outcome-invalid: more fell short
            than could have been reused and was not.
        """
        sent = self.recent.get(decision)
        if sent is None or sent.holder != holder:
            return "not-found"
        if sent.known:
            return "outcome-known"
        if not _fits(sent, told):
            return "outcome-invalid"
        sent.known = True
        self.tallies.outcomes += 1
        if told.hit_tokens is not None:
            told = msgspec.structs.replace(told, hit_tokens=min(told.hit_tokens, sent.prompt_tokens))
        if self.learn is not None and sent.made is not None and sent.made.trusted:
            self.learn(sent.made, told.ttft_ms)
        far = abs(told.ttft_ms - sent.predicted_ms)
        if sent.kept:
            self._put(Later(decision, told, regret(told.ttft_ms, sent.best_other_ms)))
        elif sent.made is not None and far > max(OUTLIER_MS, OUTLIER_SHARE * sent.predicted_ms):
            self._put(Kept(sent.made, "outlier", told=told, regret_ms=regret(told.ttft_ms, sent.best_other_ms)))
        return ""

    # ---------------------------------------------------------------- the thread
    def start(self) -> None:
        """The thread runs."""
        self._thread = threading.Thread(target=self._run, name="routing-recorder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What is in the queue is written, if PostgreSQL takes it now."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with sql.connect(self.role) as cx:
                    while not self._stop.is_set():
                        self._wake.wait(BATCH_SECONDS)
                        self._wake.clear()
                        self.write(cx)
                    self.write(cx)
            except (psycopg.Error, OSError):
                _log.warning("PostgreSQL is away; decisions wait in memory", exc_info=True)
                self._stop.wait(1.0)

    def write(self, cx: psycopg.Connection[Any]) -> None:
        """One batch is in the database, and who watches is woken.

        Raises:
            psycopg.Error: nothing of it is; it is in the queue again.
        """
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MOST))]
        rows = [self._row(item) for item in batch if isinstance(item, Kept)]
        rows += [self._refused(item) for item in batch if isinstance(item, Refused)]
        outcomes = [_outcome_values(item) for item in batch if isinstance(item, Later)]
        try:
            with cx.transaction(), cx.cursor() as cursor:
                if rows:
                    cursor.executemany(_INSERT, rows)
                if outcomes:
                    cursor.executemany(_OUTCOME, outcomes)
                counted = msgspec.structs.replace(self.tallies, recorded=self.tallies.recorded + len(rows))
                if counted != self._told:
                    cursor.execute(_TALLY, (self.router, *msgspec.structs.astuple(counted)))
        except psycopg.Error:
            self._queue.extendleft(reversed(batch))
            raise
        self.tallies.recorded += len(rows)
        self._told = counted
        if batch:
            nudge.wake(DECISIONS, self.tallies.made)
        if time.monotonic() - self._swept > SWEEP_SECONDS:
            self._swept = time.monotonic()
            cx.execute("SELECT routing_decisions_clear(%s)", (KEEP_HOURS,))
            cx.execute("DELETE FROM routing_tally WHERE at < now() - interval '3 days'")

    def _refused(self, item: Refused) -> tuple[Any, ...]:
        return (
            item.id, slot_of(item.id), item.tenant_id, item.at, "router", self.router, item.holder, item.model, None,
            None, "refused", item.code, item.mode, None, "refusal", 1, "", "", 0, "", "", 0, item.prompt_tokens, 0,
            None, None, None, None, None, None, None,
        )  # fmt: skip

    def _row(self, item: Kept) -> tuple[Any, ...]:
        made, told = item.made, item.told
        card, decode = made.choice.prefill, made.choice.decode
        inputs = Inputs(FORM, made.ask, tuple(made.candidates), tuple(made.held), made.edges, made.policy,
                        made.learned, made.choice)  # fmt: skip
        at = made.chosen if made.chosen is not None else card.candidate if card else None
        worker = None if at is None else made.candidates[at]
        overlap = min(made.ask.prompt_tokens, card.overlap_blocks * made.ask.block_tokens) if card else 0
        late: tuple[Any, ...] = (None, None, None, None)
        if told is not None:
            late = (told.at, Jsonb(told.measured), told.ttft_ms, told.hit_tokens)
        namespace = (made.namespace, made.generation) if made.namespace else (None, None)
        answer = answer_of(made, item.code)
        return (
            made.id, slot_of(made.id), made.tenant_id, made.at, made.origin, self.router, made.holder, made.model,
            *namespace, answer, item.code, made.mode, made.index_age_ms, item.kept, item.stands_for,
            worker.name if worker else "", worker.source if worker else "", worker.dp_rank if worker else 0,
            decode.name if decode else "", made.policy.name, made.policy.version, made.ask.prompt_tokens, overlap,
            card.total_ms if card else None, pack(inputs), *late, item.regret_ms,
        )  # fmt: skip


def answer_of(made: Recorded, code: str = "") -> str:
    """Which kind of answer it was; see `routing.models.Decision`."""
    card = made.choice.prefill
    if code or card is None:
        return "refused"
    if made.mode == "recompute":
        return "recompute"
    sources = {r.source for r in card.plan}
    return "fetch" if "remote" in sources else "hit" if "local" in sources else "compute"


def _fits(sent: Sent, told: Outcome) -> bool:
    """Whether what fell short fits to the decision, as far as it is remembered."""
    if not told.short:
        return True
    hit = min(told.hit_tokens or 0, sent.prompt_tokens)
    if sent.made is None:
        return hit + sum(one.tokens for one in told.short) <= sent.prompt_tokens
    return short_fits(sent.made, answer=answer_of(sent.made), hit_tokens=hit, short=told.short)


def regret(measured_ms: float, best_other_ms: float | None) -> float | None:
    """By how much the next best was expected to be quicker than what was measured; None: there was no other."""
    return None if best_other_ms is None else max(0.0, measured_ms - best_other_ms)


def _outcome_values(item: Later) -> tuple[Any, ...]:
    told = item.told
    return (told.at, Jsonb(told.measured), told.ttft_ms, told.hit_tokens, item.regret_ms, slot_of(item.decision),
            item.decision)  # fmt: skip
