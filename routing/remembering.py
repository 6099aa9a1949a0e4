"""Keeps what one router learns from its own decisions: hot beginnings, where sessions wrote, what outcomes taught.

All of it in memory, bounded, and worth nothing to anybody else: another router, or the next life of this one, begins
anew and decides by the terms alone until then. Called by `deciding`.
"""

from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from kvcore.cards import NOTHING_LEARNED, Learned
from kvcore.heat import Heat, heads
from kvcore.policies import Policy
from routing.predictor import Predictor, sample_of
from routing.recorder import Recorded

SESSIONS_MOST, MODELS_MOST = 100_000, 256
WIDTH = 8


class Wrote(NamedTuple):
    """The last turn of a session: the node that decoded it, and the whole blocks of its prompt."""

    node: str
    blocks: int


class Memory:
    """What is remembered. The event loop's alone."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[tuple[UUID, str], Wrote] = OrderedDict()
        self.heats: OrderedDict[str, Heat] = OrderedDict()
        self.predictor = Predictor()
        self.learned: Learned = NOTHING_LEARNED

    def hot(self, model: str, fingerprints: bytes, policy: Policy, workers: int) -> tuple[float, int]:
        """The share and blocks of the prompt's hot beginning; only shares that the policy's cap is about are told."""
        cap = policy.params.get("stickiness_cap", 0.0)
        if not cap or not workers or not fingerprints:
            return 0.0, 0
        heat = self.heats.get(model)
        if heat is None:
            heat = self.heats[model] = Heat()
            if len(self.heats) > MODELS_MOST:
                self.heats.popitem(last=False)
        return heat.note(heads(fingerprints, WIDTH), cap / workers)

    def session(self, tenant: UUID, name: str) -> Wrote | None:
        """The session's last turn, if it had one here."""
        return self.sessions.get((tenant, name)) if name else None

    def wrote(self, tenant: UUID, name: str, node: str, blocks: int) -> None:
        """A turn of the session was sent there."""
        if not name:
            return
        self.sessions[tenant, name] = Wrote(node, blocks)
        self.sessions.move_to_end((tenant, name))
        if len(self.sessions) > SESSIONS_MOST:
            self.sessions.popitem(last=False)

    def learn(self, made: Recorded, measured_ms: float) -> None:
        """The outcome of a decision counts for what is expected next time."""
        card, decode = made.choice.prefill, made.choice.decode
        if card is None or decode is None:
            return
        worker = made.candidates[card.candidate]
        cls, sample = sample_of(card.terms, worker, decode, made.learned, measured_ms)
        if self.predictor.observe(cls, sample):
            self.learned = self.predictor.learned()
