"""Decides what a gateway may say of a decision afterwards: what it measured, once, and only who got the answer.

Figures are clamped: a clock that ran wild moves no average beyond an hour. What is said to have fallen short is no more
than could have been reused and was not. Called by `hot`.
"""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from kvconsole.infra import sql
from kvcore.cards import Terms
from kvcore.lost_hits import CAUSES, Short
from routing.asks import JSON, MSGPACK
from routing.codes import Refusal
from routing.lost_hits import short_fits
from routing.packing import unpack
from routing.recorder import Outcome, Recorder
from routing.selectors import slot_of

MS_MOST, TOKENS_MOST, SHORT_MOST = 3_600_000.0, 2**20, 16
TERMS = Terms.__struct_fields__
CAUSE_NAMES = tuple(cause.value for cause in CAUSES)
ASK_SECONDS = 2.0
_TAKE = """
UPDATE routing_decision SET measured_at = %(at)s, measured = %(terms)s, measured_ms = %(ms)s,
    hit_tokens = CASE WHEN %(hit)s::int IS NOT NULL THEN least(%(hit)s::int, prompt_tokens) END
WHERE slot = %(slot)s AND id = %(id)s AND gateway = %(holder)s AND measured_at IS NULL AND origin = 'router'
RETURNING 1"""
_MADE = """
SELECT answer, prompt_tokens, inputs FROM routing_decision
WHERE slot = %s AND id = %s AND gateway = %s AND measured_at IS NULL AND origin = 'router'"""
_KNOWN = "SELECT 1 FROM routing_decision WHERE slot = %s AND id = %s AND gateway = %s AND origin = 'router'"


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured. `ttft_ms`: time to first token; without it the sum of the terms. Terms by their names.
    What was not measured is left out: it is unknown, and not 0. `short`: tokens of the plan that did not come, with the
    cause (`kvcore.lost_hits.Cause`); goes with `hit_tokens`."""

    ttft_ms: float | None = None
    terms: dict[str, float] = {}
    hit_tokens: int | None = None
    short: list[Short] = []


_json, _packed = msgspec.json.Decoder(Body), msgspec.msgpack.Decoder(Body)


def outcome_of(body: bytes, kind: bytes, *, now: datetime) -> Outcome:
    """The outcome, clamped.

    Raises:
        Refusal: outcome-invalid, bad-request, unknown-field, validation-failed or unsupported-media-type.
    """
    if kind not in (JSON, MSGPACK):
        raise Refusal("unsupported-media-type", "application/json or application/msgpack")
    try:
        found = _json.decode(body) if kind == JSON else _packed.decode(body)
    except msgspec.ValidationError as e:
        code = "unknown-field" if "unknown field" in str(e) else "outcome-invalid"
        raise Refusal(code, str(e).partition(" - at")[0][:200]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal("bad-request", "The body is not what its Content-Type says.") from None
    if strange := sorted(set(found.terms) - set(TERMS)):
        raise Refusal("outcome-invalid", f"Terms are {', '.join(TERMS)}.", pointer=f"/terms/{strange[0][:60]}")
    if found.ttft_ms is None and not found.terms:
        raise Refusal("outcome-invalid", "Say ttft_ms or terms.", pointer="/ttft_ms")
    terms = {name: _clamped(value, f"/terms/{name}") for name, value in found.terms.items()}
    ttft = sum(terms.values()) if found.ttft_ms is None else found.ttft_ms
    hit = found.hit_tokens
    if hit is not None and hit < 0:
        raise Refusal("outcome-invalid", "Not below 0.", pointer="/hit_tokens")
    most = None if hit is None else min(hit, TOKENS_MOST)
    return Outcome(now, _clamped(ttft, "/ttft_ms"), terms, most, _short(found))


def _short(found: Body) -> tuple[Short, ...]:
    if not found.short:
        return ()
    if found.hit_tokens is None:
        raise Refusal("outcome-invalid", "What fell short is said with what did not.", pointer="/hit_tokens")
    if len(found.short) > SHORT_MOST:
        raise Refusal("outcome-invalid", f"At most {SHORT_MOST}.", pointer="/short")
    for i, one in enumerate(found.short):
        if one.cause not in CAUSE_NAMES:
            raise Refusal("outcome-invalid", f"One of {', '.join(CAUSE_NAMES)}.", pointer=f"/short/{i}/cause")
        if not 0 < one.tokens <= TOKENS_MOST:
            raise Refusal("outcome-invalid", f"From 1 to {TOKENS_MOST}.", pointer=f"/short/{i}/tokens")
    return tuple(found.short)


def _clamped(value: float, pointer: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise Refusal("outcome-invalid", "A number of milliseconds, not below 0.", pointer=pointer)
    return min(value, MS_MOST)


class Outcomes:
    """Takes outcomes: of decisions made here from memory, of another router's, or a former life's, from the table."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._pool = ThreadPoolExecutor(1, "outcomes")

    def close(self) -> None:
        """No look-up runs."""
        self._pool.shutdown()

    async def take(self, decision: UUID, holder: str, told: Outcome) -> None:
        """The outcome is taken.

        Raises:
            Refusal: not-found (also where it is another's), outcome-known, or unavailable.
        """
        code = self.recorder.outcome(decision, holder, told)
        if code == "not-found" and decision not in self.recorder.recent:
            try:
                run = asyncio.get_running_loop().run_in_executor
                code = await asyncio.wait_for(run(self._pool, self._written, decision, holder, told), ASK_SECONDS)
            except (psycopg.Error, OSError, TimeoutError):
                raise Refusal("unavailable", "The decision cannot be looked up now.", retry=1) from None
        if code == "outcome-invalid":
            raise Refusal(code, "More than could have been reused and was not.", pointer="/short")
        if code:
            raise Refusal(code)

    def _written(self, decision: UUID, holder: str, told: Outcome) -> str:
        values: dict[str, Any] = {
            "at": told.at, "terms": Jsonb(told.measured), "ms": told.ttft_ms, "hit": told.hit_tokens,
            "slot": slot_of(decision), "id": decision, "holder": holder,
        }  # fmt: skip
        with sql.connect(self.recorder.role) as cx:
            if told.short:
                row = cx.execute(_MADE, (slot_of(decision), decision, holder)).fetchone()
                if row is not None and not _fits(told, *row):
                    return "outcome-invalid"
            if cx.execute(_TAKE, values).fetchone():
                return ""
            known = cx.execute(_KNOWN, (slot_of(decision), decision, holder)).fetchone()
        return "outcome-known" if known else "not-found"


def _fits(told: Outcome, answer: str, prompt_tokens: int, blob: bytes | None) -> bool:
    hit = min(told.hit_tokens or 0, prompt_tokens)
    inputs = unpack(bytes(blob)) if blob is not None else None
    if inputs is None:
        return hit + sum(one.tokens for one in told.short) <= prompt_tokens
    return short_fits(inputs, answer=answer, hit_tokens=hit, short=told.short)
