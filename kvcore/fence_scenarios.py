"""Decides which histories the exhaustive checker of the fence walks through.

A *history* is what really happens to one block of one generation on one store; what it sends reaches the directory in
any order that causality allows. Families: one volatile store; two nodes, one of them persistent; a persistent store
whose files outlive it or do not; fences that come late and twice; two generations side by side; a transfer that lands
after the deletion; inventories in between; messages that never come; the collapse of tombstones and the return of a
node after it. Called by `kvcore.fence_check` only.
"""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from kvcore.fence import Cleared, Collapsed, Copy, Fenced, Heard, Listed, Message, Op, Ordered, Position, Receipted


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A message of a scenario; it can only come after those of `after` (bit mask over the scenario's messages)."""

    store: int | None
    message: Message
    after: int = 0


class Scenario(msgspec.Struct, frozen=True):
    """Messages in the order in which they were caused, and what is true: per store, position → block is there."""

    family: str
    copies: tuple[Copy, ...]
    sent: tuple[Sent, ...]
    truth: tuple[dict[Position, bool], ...]
    final: tuple[Listed | None, ...]


ADD, REM, CLEAR, BOOT, OTHER, LOSS, LIST = "add", "remove", "clear", "boot", "other", "loss", "list"


class _History:
    """Plays operations on one store and notes what it sends and what is true."""

    def __init__(self, store: int, persistent: bool, gen: int = 1) -> None:
        self.store, self.persistent, self.gen = store, persistent, gen
        self.boot, self.seq, self.there = 1, -1, False
        self.truth: dict[Position, bool] = {(1, -1): False}
        self.sent: list[Message] = [Listed((1, -1), False)] if persistent else []
        self.deleted: Position | None = None
        self.cleared: Position | None = None

    def _event(self, op: Op) -> None:
        self.seq += 1
        self.sent.append(Heard((self.boot, self.seq), op))
        self.truth[self.boot, self.seq] = self.there

    def play(self, op: str) -> None:
        if op in (BOOT, LOSS):  # LOSS: while the process was down, somebody removed the file
            self.boot, self.seq = self.boot + 1, -1
            self.there = self.there and self.persistent and op == BOOT
            self.truth[self.boot, -1] = self.there
            self._event(Op.OTHER)
        elif op == OTHER:
            self._event(Op.OTHER)
        elif op == LIST:  # an inventory, exact as of here; it may overtake the stream, or come late
            self.sent.append(Listed((self.boot, self.seq), self.there))
        else:
            self.there = op == ADD
            self._event({ADD: Op.ADD, REM: Op.REMOVE, CLEAR: Op.CLEAR}[op])
            if op == CLEAR:
                self.cleared = (self.boot, self.seq)

    def delete(self) -> int:
        """The agent deletes: an event of its stream, and a receipt besides. Returns the index of the event."""
        self.there = False
        self._event(Op.REMOVE)
        self.deleted = (self.boot, self.seq)
        return len(self.sent) - 1

    def final(self) -> Listed:
        return Listed((self.boot, self.seq), self.there)


Played = tuple[_History, int]
"""A history, and the index of the first message that comes after the order."""


def _history(store: int, persistent: bool, ops: Sequence[str], delete_at: int | None = None, *, gen: int = 1) -> Played:
    h, first_after = _History(store, persistent, gen), 0
    for i in range(len(ops) + 1):
        if i == delete_at:
            first_after = h.delete()
        if i < len(ops):
            h.play(ops[i])
    return h, first_after


def _scenario(
    family: str,
    histories: Sequence[Played],
    *,
    double: int | None = None,
    lost: int | None = None,
    extra: Sequence[Sent] = (),
) -> Scenario:
    """All messages of the histories with their causes: what a store says after deleting comes after the order.

    Args:
        family: of the scenario.
        histories: one a store.
        double, lost: which event comes twice, which never.
        extra: more messages; a collapse comes after all receipts.
    """
    sent: list[Sent] = []
    ordered = any(h.deleted for h, _ in histories)
    if ordered:
        sent.append(Sent(None, Ordered()))
    for h, first_after in histories:
        causes = [1 if ordered and h.deleted and i >= first_after else 0 for i in range(len(h.sent))]
        sent += [Sent(h.store, m, c) for m, c in zip(h.sent, causes, strict=True)]
        if h.deleted:
            sent.append(Sent(h.store, Receipted(h.deleted), 1))
        if h.cleared:
            sent.append(Sent(h.store, Cleared(h.cleared), causes[h.sent.index(Heard(h.cleared, Op.CLEAR))]))
    heard = [s for s in sent if isinstance(s.message, Heard)]
    if double is not None and heard:
        sent.append(heard[double % len(heard)])
    if lost is not None:
        sent.remove(heard[lost % len(heard)])
    receipts = sum(1 << i for i, s in enumerate(sent) if isinstance(s.message, Receipted))
    sent += [Sent(s.store, s.message, receipts) if isinstance(s.message, Collapsed) else s for s in extra]
    copies = tuple(Copy(gen=h.gen, persistent=h.persistent) for h, _ in histories)
    finals = tuple(h.final() if h.persistent or lost is not None else None for h, _ in histories)
    return Scenario(family, copies, tuple(sent), tuple(h.truth for h, _ in histories), finals)


def scenarios(length: int = 3) -> Iterator[Scenario]:
    """All scenarios with up to `length` operations a store (less where there are more messages)."""
    yield from _two_nodes(length)
    yield from _persistent(length)
    yield from _fenced(length)
    yield from _two_generations(length)
    yield from _transferred(length)
    yield from _listed(length)
    yield from _lost(length)
    yield from _returned(length)
    for n in range(1, length + 1):
        for ops in itertools.product((ADD, REM, CLEAR, BOOT, OTHER), repeat=n):
            for at in range(n + 1):
                # a schedule without the doubled message is the beginning of one where it comes last
                double = None if CLEAR in ops else n - 1
                yield _scenario("volatile", [_history(0, False, ops, at)], double=double)


def _two_nodes(length: int) -> Iterator[Scenario]:
    for left in itertools.product((ADD, BOOT), repeat=max(1, length - 2)):
        for right in itertools.product((ADD, REM), repeat=max(1, length - 2)):
            for a, b in itertools.product(range(max(2, length - 1)), repeat=2):
                yield _scenario("two nodes", [_history(0, False, left, a), _history(1, length > 2, right, b)])


def _persistent(length: int) -> Iterator[Scenario]:
    for ops in itertools.product((ADD, OTHER, BOOT, LOSS), repeat=2):
        for at in (None, *range(3 if length > 2 else 0)):
            yield _scenario("persistent", [_history(0, True, ops, at)], double=0)


FENCES = (Sent(None, Fenced(2)), Sent(None, Fenced(1)))


def _fenced(length: int) -> Iterator[Scenario]:
    for n in range(1, length):
        for ops in itertools.product((ADD, REM, BOOT), repeat=n):
            yield _scenario("fence", [_history(0, False, ops)], double=0, extra=FENCES)
            yield _scenario("fence", [_history(0, True, ops)], extra=FENCES[:1])
            for at in range(n + 1):
                yield _scenario("fence", [_history(0, False, ops, at)], double=0, extra=FENCES)
                late = [Sent(0, Heard((1, 0), Op.ADD))] if ops[0] == ADD and at else []
                yield _scenario("collapse", [_history(0, False, ops, at)], extra=[Sent(None, Collapsed()), *late])
                yield _scenario("collapse", [_history(0, True, ops, at)], extra=[Sent(None, Collapsed())])


def _two_generations(length: int) -> Iterator[Scenario]:
    """A namespace that was reopened: the fence closes the old generation and leaves the new one alone."""
    for old in itertools.product((ADD, REM), repeat=max(1, length - 2)):
        for new in itertools.product((ADD, REM, BOOT), repeat=max(1, length - 1)):
            for persistent in (False, True)[: length - 1]:
                both = [_history(0, False, old), _history(1, persistent, new, gen=2)]
                yield _scenario("two generations", both, extra=FENCES)


def _transferred(length: int) -> Iterator[Scenario]:
    """A copy under way lands on the second node after that node was deleted from: only the fence can know."""
    yield _scenario("transfer", [_history(0, False, (ADD,), 1), _history(1, False, (ADD,), 0)], extra=FENCES[:1])
    for before in ((), (ADD,))[: length - 1]:
        for after in ((ADD, BOOT), (ADD, LIST), (ADD, REM, ADD))[: 2 * length - 3]:
            landed = _history(0, LIST in after, (*before, *after), len(before))
            yield _scenario("transfer", [landed], extra=FENCES[:1])


def _listed(length: int) -> Iterator[Scenario]:
    """Inventories in between, exact as of a position, in any order with the stream."""
    for persistent in (False, True):
        for ops in itertools.product((ADD, REM, BOOT, LIST), repeat=length):
            if LIST in ops:
                for at in (None, *range(persistent * (length - 1), length)):
                    yield _scenario("inventory", [_history(0, persistent, ops, at)], double=0 if at is None else None)


def _lost(length: int) -> Iterator[Scenario]:
    """One event never comes: nothing beyond the gap counts until an inventory fills it."""
    for ops in itertools.product((ADD, REM, BOOT, OTHER), repeat=length):
        for at in (None, *range(length + 1)):
            for lost in range(length):
                yield _scenario("lost", [_history(0, False, ops, at)], lost=lost)
                if at is None and lost < length - 1:
                    yield _scenario("lost", [_history(0, True, ops)], lost=lost, extra=FENCES[:1])


def _returned(length: int) -> Iterator[Scenario]:
    """A node that was away while it was deleted elsewhere, and comes back with its disk full after the collapse."""
    for ops in ((ADD, LIST), (ADD, BOOT), (ADD, BOOT, LIST))[: 2 * length - 3]:
        away = _history(1, True, ops)
        yield _scenario("return", [_history(0, False, (), 0), away], extra=[Sent(None, Collapsed())])
