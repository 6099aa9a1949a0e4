"""Decides what a foreign router may report: what it chose for which request; we score it in hindsight.

Dynamo, llm-d, SGLang, Ray and the vLLM stack decide in their own ways; what they chose is recorded beside what our
policy would have, with by how much that was expected to be quicker. Called by `hot`.
"""

from typing import Any

import msgspec

from routing.answers import CardOut, Place
from routing.asks import JSON, Wanted, wanted
from routing.codes import Refusal

ORIGINS = ("dynamo", "llm-d", "sglang", "ray", "vllm")


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker that was chosen; `source` "" = whichever the node has."""

    node: str
    source: str = ""
    dp_rank: int = 0


class Told(msgspec.Struct, frozen=True):
    """What was reported beside the request."""

    origin: str
    chosen: Chosen


class Hindsight(msgspec.Struct, frozen=True):
    """Our view of a foreign decision. `regret_ms`: by how much our pick was expected to be quicker, null where the
    chosen worker could not be scored; `chosen` then says why."""

    decision_id: str
    chosen: CardOut
    ours: Place
    ours_ms: float
    regret_ms: float | None


def report(body: bytes, kind: bytes) -> tuple[Told, Wanted]:
    """The report and its request. Fields of `/route` without token ids, and `origin` and `chosen`.

    Raises:
        Refusal: with the code of what is wrong first.
    """
    try:
        found = msgspec.json.decode(body) if kind == JSON else msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        raise Refusal("bad-request", "The body is not what its Content-Type says.") from None
    if not isinstance(found, dict):
        raise Refusal("validation-failed", "An object.", pointer="/")
    told = _told(found.pop("origin", None), found.pop("chosen", None))
    rest: Any = msgspec.json.encode(found) if kind == JSON else msgspec.msgpack.encode(found)
    return told, wanted(rest, kind, gateway=False)


def _told(origin: Any, chosen: Any) -> Told:
    if origin not in ORIGINS:
        raise Refusal("validation-failed", f"One of {', '.join(ORIGINS)}.", pointer="/origin")
    try:
        return Told(origin, msgspec.convert(chosen, Chosen))
    except msgspec.ValidationError as e:
        raise Refusal("validation-failed", str(e)[:200], pointer="/chosen") from None
