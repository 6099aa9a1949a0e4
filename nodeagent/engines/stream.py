"""Decides in which order batches of an engine's publisher count: what is next, what waits, what is lost.

The publisher loses messages without a sign but a jump of the sequence; it keeps a ring of the last batches that can be
asked for. While the ring is replayed live batches are held back, so that nothing that was removed comes back behind
its removal. No sockets in here: `nodeagent.listen` feeds it and does what it says.
"""

import hashlib
from collections import OrderedDict

import msgspec

HELD_MAX, HELD_BYTES_MAX = 20_000, 256 * 2**20
REPLAYED_MAX = 20_000


class Apply(msgspec.Struct, frozen=True):
    """This batch is next."""

    payload: bytes


class Reborn(msgspec.Struct, frozen=True):
    """A new life of the engine begins: everything of the old one is void."""


class Lost(msgspec.Struct, frozen=True):
    """Batches are gone for good (`reason`: ring | overflow): what the engine holds is no longer fully known."""

    reason: str


class Replay(msgspec.Struct, frozen=True):
    """Ask the ring for everything from `start` on."""

    start: int


Step = Apply | Reborn | Lost | Replay


class Stream:
    """The sequence of one (source, dp_rank).

    Args:
        has_ring: a replay endpoint is there. Without one every jump is a loss.
    """

    def __init__(self, *, has_ring: bool, held_max: int = HELD_MAX, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self.has_ring, self.held_max, self.held_bytes_max = has_ring, held_max, held_bytes_max
        self.expected = 0
        self.replaying = False
        self.heard = False
        self._last_live = -1
        self._held: dict[int, bytes] = {}
        self._held_bytes = 0
        self._replayed: OrderedDict[int, bytes] = OrderedDict()
        self._progress = False

    @property
    def held(self) -> int:
        """Live batches that wait for the ring."""
        return len(self._held)

    def start(self) -> list[Step]:
        """At the beginning the ring is asked for all it has: an engine that runs already has announced blocks."""
        return self._ask() if self.has_ring else []

    def live(self, seq: int, payload: bytes) -> list[Step]:
        """A batch came from the publisher."""
        steps: list[Step] = []
        if self._goes_back(seq, payload):
            steps += self._reborn()
        self.heard = True
        self._last_live = seq
        self._replayed.pop(seq, None)
        if self.replaying:
            return steps + self._hold(seq, payload)
        if seq < self.expected:
            return steps  # the ring brought it before the publisher did
        if seq == self.expected:
            self.expected += 1
            return [*steps, Apply(payload)]
        if self.has_ring:
            return steps + self._ask() + self._hold(seq, payload)
        self.expected = seq + 1
        return [*steps, Lost("ring"), Apply(payload)]

    def replayed(self, seq: int, payload: bytes) -> list[Step]:
        """The ring gave a batch."""
        if not self.replaying or seq < self.expected:
            return []
        self._progress = True
        if seq > self._last_live:  # the publisher will bring it too, or something else under this number
            self._replayed[seq] = _digest(payload)
            if len(self._replayed) > REPLAYED_MAX:
                self._replayed.popitem(last=False)
        lost: list[Step] = [Lost("ring")] if seq > self.expected else []
        self.expected = seq + 1
        return [*lost, Apply(payload)]

    def replay_over(self) -> list[Step]:
        """The ring has given all it has, or did not answer in time: what was held goes on in order."""
        if not self.replaying:
            return []
        self.replaying = False
        steps: list[Step] = []
        for seq in sorted(self._held):
            payload = self._held.pop(seq)
            self._held_bytes -= len(payload)
            if seq < self.expected:
                continue
            if seq > self.expected:
                if self._progress:  # the jump is younger than the question: ask once more
                    self._held[seq] = payload
                    self._held_bytes += len(payload)
                    return steps + self._ask()
                steps.append(Lost("ring"))
            self.expected = seq + 1
            steps.append(Apply(payload))
        return steps

    def _ask(self) -> list[Step]:
        self.replaying, self._progress = True, False
        return [Replay(self.expected)]

    def _hold(self, seq: int, payload: bytes) -> list[Step]:
        self._held[seq] = payload
        self._held_bytes += len(payload)
        if len(self._held) <= self.held_max and self._held_bytes <= self.held_bytes_max:
            return []
        self._progress = False
        return [Lost("overflow"), *self._without_loss(self.replay_over())]

    @staticmethod
    def _without_loss(steps: list[Step]) -> list[Step]:
        return [s for s in steps if not isinstance(s, Lost)]

    def _goes_back(self, seq: int, payload: bytes) -> bool:
        """Whether the engine's process is another one: its numbers began anew.

        A number that the ring gave before the publisher did is no step back if it is the same batch.
        """
        if seq <= self._last_live:
            return True
        known = self._replayed.get(seq)
        return known is not None and known != _digest(payload)

    def _reborn(self) -> list[Step]:
        self.expected, self._last_live, self.replaying = 0, -1, False
        self._held.clear()
        self._held_bytes = 0
        self._replayed.clear()
        return [Reborn()]


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
