"""Decides what is remembered of one request on its way through a node, and what is said of it at its end.

Its steps are marked by one clock; its tokens were found or computed, and the two sum to the prompt. Used by `road`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from kvcore.lost_hits import Cause, cause_of_code
from kvcore.tickets import Scope, readable_blocks
from nodeagent.runs import Copy
from nodeagent.serving.computing import Prompt
from nodeagent.serving.marks import Marks
from nodeagent.serving.words import Event, Order, Refused

Say = Callable[[Event], None]


class Trip:
    """One request on its way through this node."""

    def __init__(self, order: Order, prompt: Prompt, readable: int, say: Say, marks: Marks) -> None:
        self.order, self.prompt, self.readable, self.marks = order, prompt, readable, marks
        self._say = say
        self.held: list[Copy] = []
        self.hit_blocks = self.computed_tokens = self.joined_blocks = self.fetched_blocks = 0
        self.tiers: Counter[str] = Counter()
        self.saved_ms = 0.0
        self.here = 0
        """Leading blocks that are here or were computed here for this request."""
        self.asked = self.lost = False
        """Another node was asked to compute; it did not."""
        self.base = self.floor = 0
        """Leading blocks that were here before anything was asked of others; those that the session has written."""
        self.broke = ""
        """Code of what ended the loaded beginning of the prompt before the plan's did; "" = nothing has."""
        self.fell_back: dict[str, float] = {}
        """Why something was computed again, by code, with the milliseconds after the arrival."""

    @property
    def decision(self) -> str:
        """The router's decision that it belongs to."""
        scope = self.order.ticket.scope
        return scope.decision if scope else ""

    @property
    def planned(self) -> int:
        """Leading blocks that the plan would load or fetch."""
        reached = 0
        for part in sorted(self.order.plan, key=lambda r: r.from_block):
            if part.source not in ("local", "remote") or part.from_block > reached:
                break
            reached = max(reached, part.to_block)
        return min(reached, (self.order.request.input_length - 1) // self.prompt.space.block_tokens)

    def broken(self, code: str) -> None:
        """The plan was not kept from here on, because of this; what comes first is what did it."""
        self.broke = self.broke or code

    def short(self, hit_tokens: int) -> list[dict[str, Any]]:
        """Tokens of the plan that were not found, by cause: all behind the first break, as none of them is usable."""
        missed = self.planned * self.prompt.space.block_tokens - hit_tokens
        if missed <= 0:
            return []
        cause = cause_of_code(self.broke) if self.broke else Cause.UNKNOWN
        return [{"cause": cause.value, "tokens": missed}]

    def step(self, at: str, **more: Any) -> None:
        """The step ended; it is said once."""
        if not self.marks.has(at):
            self._say(Event(at, round(self.marks.mark(at), 4), **more))

    def say(self, at: str, **more: Any) -> None:
        """Something happened that ends no step."""
        self._say(Event(at, round(self.marks.ms(), 4), **more))

    def outcome(self) -> dict[str, Any]:
        """What is told of the request: its times, and where its tokens came from."""
        prompt, request = self.prompt, self.order.request
        hit, size = request.input_length - self.computed_tokens, prompt.space.block_tokens
        return {
            "ttft_ms": round(self.marks.ttft_ms, 4), "terms": self.marks.terms(), "prompt_tokens": request.input_length,
            "hit_tokens": hit, "computed_tokens": self.computed_tokens, "tiers": dict(self.tiers),
            "joined_tokens": self.joined_blocks * size, "fetched_blocks": self.fetched_blocks,
            "fell_back": self.fell_back, "saved_ms": round(self.saved_ms, 3), "floor_tokens": self.floor * size,
            "short": self.short(hit), "emulated": True,
        }  # fmt: skip


def readable(scope: Scope, prompt: Prompt) -> int:
    """How many leading blocks may be read.

    Raises:
        Refused: ticket-scope: the ticket is for another chain.
    """
    found = readable_blocks(scope, prompt.chain)
    if found is None:
        raise Refused("ticket-scope")
    return found
