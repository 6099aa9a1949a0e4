"""Decides who computes or fetches a block that several want at once: the first one, and the others wait for it.

A flight names the blocks that somebody is bringing here. It ends when they are here or when it came to nothing;
whoever waited looks again, and the first of them begins the next flight. Belongs to the event loop.
"""

import asyncio

from kvcore.keys import unpack


class Flight:
    """Blocks on their way to this node."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys
        self._over = asyncio.Event()

    async def wait(self) -> None:
        """Returns when it has ended."""
        await self._over.wait()

    def _end(self) -> None:
        self._over.set()


class Flights:
    """All flights of one node, by (namespace generation, key) of each block."""

    def __init__(self) -> None:
        self._of: dict[bytes, Flight] = {}
        self.joined = 0
        """How often somebody waited instead of doing it again."""

    def of(self, key: bytes) -> Flight | None:
        """The flight that brings the block, None if there is none."""
        return self._of.get(key)

    def begin(self, packed: bytes) -> Flight:
        """A flight for these blocks, up to the first that another one brings already."""
        keys: list[bytes] = []
        for key in unpack(packed):
            if key in self._of:
                break
            keys.append(key)
        flight = Flight(keys)
        for key in keys:
            self._of[key] = flight
        return flight

    def end(self, flight: Flight) -> None:
        """Nobody waits for it any more."""
        for key in flight.keys:
            if self._of.get(key) is flight:
                del self._of[key]
        flight._end()

    def __len__(self) -> int:
        return len({id(f) for f in self._of.values()})
