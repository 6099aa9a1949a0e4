"""Decides how the output of a request becomes blocks over time.

Tokens come at the declared pace (`tpot_ms`; 0 = all at once). Their blocks are held back until 4 to 8 have come, 2 s
have passed or the request ends, because an event per block costs the catalog more than the block is worth.
"""

import hashlib
from collections.abc import Callable, Collection
from typing import Protocol

from kvcore.keys import KEY_BYTES, chain_keys
from nodeagent.engines.base import Request
from nodeagent.keys import KeyRing, Lease
from nodeagent.runs import Copy, Space
from nodeagent.tiers.base import LeaseOver

GATHER_BLOCKS = 4
GATHER_SECONDS = 2.0


class Producer(Protocol):
    """What of the engine decoding needs."""

    ring: KeyRing

    def tokens(self, hash_id: int, count: int, seed: int) -> bytes:
        """Tokens that a hash id stands for."""
        ...

    def produce(
        self, space: Space, lease: Lease, chain: bytes, held: list[Copy], now: float,
        *, parent: bytes | None, depth: int,
    ) -> None:  # fmt: skip
        """Commits the blocks of a chain that lies behind `parent`."""
        ...

    def release(self, held: list[Copy]) -> None:
        """Lets go of the copies."""
        ...


class _Stream:
    """One request that is decoding. `rest` are tokens that do not fill a block yet."""

    __slots__ = (
        "depth", "due", "held", "lease", "parent", "rest", "session", "since", "space", "started", "taken", "todo",
    )  # fmt: skip

    def __init__(
        self, lease: Lease, space: Space, *, parent: bytes | None, depth: int, rest: bytes, todo: bytes,
        held: list[Copy], now: float, session: str,
    ) -> None:  # fmt: skip
        self.session = session
        self.lease, self.space, self.parent, self.depth = lease, space, parent, depth
        self.rest, self.todo, self.held = rest, todo, held
        self.started, self.taken = now, 0
        self.due = b""
        self.since = now


class Decoding:
    """All requests of an engine that are decoding."""

    def __init__(self, engine: Producer, *, tpot_ms: float) -> None:
        self._engine, self._tpot_ms = engine, tpot_ms
        self._streams: list[_Stream] = []
        self.on_wrote: Callable[[bytes, str, int, bytes], None] = lambda ns, session, blocks, last: None
        """Called when a session's request has ended: (namespace, session, blocks of its chain, key of the last)."""

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, request: Request, lease: Lease, space: Space, chain: bytes, held: list[Copy], now: float) -> None:
        """Starts decoding behind the prompt; the prompt's copies are held until it ends."""
        stream = _Stream(
            lease, space, parent=chain[-KEY_BYTES:] or None, depth=len(chain) // KEY_BYTES, held=held, now=now,
            rest=self._remainder(request, space.block_tokens), todo=self._output(request),
            session=request.session or "",
        )  # fmt: skip
        if self._tpot_ms > 0:
            self._streams.append(stream)
        else:
            self._step(stream, now, everything=True)

    def advance(self, now: float) -> None:
        """Every request has decoded what its pace allows by now."""
        self._streams = [s for s in self._streams if not self._step(s, now)]

    def finish(self, ns: bytes, session: str, now: float) -> bool:
        """Whether requests of the session were decoding; they have said everything now: who asks on has read it."""
        mine = [s for s in self._streams if s.session == session and s.space.ns == ns]
        self._streams = [s for s in self._streams if s not in mine]
        for stream in mine:
            self._step(stream, now, everything=True)
        return bool(mine)

    def abort(self, ended: Callable[[Space], bool]) -> list[tuple[Space, int]]:
        """Ends the requests of these spaces: what they hold is let go, what they held back never becomes blocks.

        Answers the blocks that were held back.
        """
        gone = [s for s in self._streams if ended(s.space)]
        self._streams = [s for s in self._streams if not ended(s.space)]
        for stream in gone:
            self._engine.release(stream.held)
        return [(s.space, len(s.due) // KEY_BYTES) for s in gone]

    def until(self, copies: Collection[Copy]) -> float | None:
        """When the last request that holds any of the copies ends at its pace; None if none does."""
        wanted = set(map(id, copies))
        ends = [
            s.started + len(s.todo) // 4 * self._tpot_ms / 1000.0
            for s in self._streams
            if not wanted.isdisjoint(map(id, s.held))
        ]
        return max(ends, default=None)

    def _step(self, stream: _Stream, now: float, *, everything: bool = False) -> bool:
        """Takes the tokens that are due; True if the request is done."""
        total = len(stream.todo) // 4
        want = total if everything else min(total, int((now - stream.started) * 1000.0 / self._tpot_ms))
        tokens = stream.rest + stream.todo[4 * stream.taken : 4 * want]
        stream.taken = want
        done = want == total
        try:
            lease = self._engine.ring.lease(stream.lease.ns, stream.lease.gen)
        except LeaseOver:
            self._engine.release(stream.held)
            return True
        before = stream.due[-KEY_BYTES:] or stream.parent
        keys = b"".join(chain_keys(tokens, block_tokens=lease.block_tokens, blk=lease.blk, parent=before))
        if keys and not stream.due:
            stream.since = now
        stream.due += keys
        stream.rest = tokens[len(keys) // KEY_BYTES * 4 * lease.block_tokens :]
        blocks = len(stream.due) // KEY_BYTES
        if blocks and (blocks >= GATHER_BLOCKS or done or now - stream.since >= GATHER_SECONDS):
            self._engine.produce(
                stream.space, lease, stream.due, stream.held, now, parent=stream.parent, depth=stream.depth
            )
            stream.parent, stream.depth, stream.due = stream.due[-KEY_BYTES:], stream.depth + blocks, b""
        if done:
            self._engine.release(stream.held)
            if stream.session and stream.parent:
                self.on_wrote(stream.space.ns, stream.session, stream.depth, stream.parent)
        return done

    def _remainder(self, request: Request, block_tokens: int) -> bytes:
        """Tokens of the prompt behind its last full block."""
        start, rest = divmod(request.input_length, block_tokens)
        at, out = start * block_tokens, b""
        while rest > 0:
            index, offset = divmod(at, request.hash_tokens)
            take = min(rest, request.hash_tokens - offset)
            tokens = self._engine.tokens(request.hash_ids[index], offset + take, request.model_seed)
            out += tokens[4 * offset :]
            at, rest = at + take, rest - take
        return out

    def _output(self, request: Request) -> bytes:
        """The tokens the model will say: fixed by the request's name."""
        name = hashlib.blake2b(request.request.encode(), digest_size=8, person=b"kvc-output").digest()
        hash_id = int.from_bytes(name, "little", signed=True)
        return self._engine.tokens(hash_id, request.output_length, request.model_seed)
