"""Decides what the agent asks of an engine, so that `server` and `agent` know none of them by name."""

from typing import Any, Protocol

import msgspec

from kvcore.messages import Ticket


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a trace for the reference engine. `hash_ids` stand for blocks of `hash_tokens` tokens."""

    request: str
    ns: bytes
    gen: int
    hash_ids: list[int]
    input_length: int
    hash_tokens: int = 512
    output_length: int = 0
    session: str | None = None
    model_seed: int = 0


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/requests`."""

    ticket: Ticket
    requests: list[Request]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request found. Times are emulated from the declared curve. `code` says why nothing was done."""

    request: str
    hit_tokens: int = 0
    prompt_tokens: int = 0
    tiers: dict[str, int] = {}
    ttft_ms: float = 0.0
    saved_ms: float = 0.0
    code: str = ""


class Engine(Protocol):
    """What takes requests and makes blocks."""

    def describe(self) -> dict[str, Any]:
        """Kind, version and capabilities, as told at enrolment."""
        ...

    def handle(self, requests: list[Request], now: float) -> list[Result]:
        """Carries the requests out, in order."""
        ...

    def tick(self, now: float) -> None:
        """Goes on with what takes time."""
        ...

    @property
    def running(self) -> int:
        """Requests that are still decoding."""
        ...
