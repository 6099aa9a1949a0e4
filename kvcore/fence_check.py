"""Checks the fence reducer exhaustively: every history, every order of delivery, doubled messages.

A *history* is what really happens to one block on one or two stores. Its *messages* reach the directory in any order
that causality allows. After each delivery the checker compares what the reducer would show or claim with the truth.
`check` walks every schedule one by one, without merging equal states, and counts them. Run by the tests in short and
in full form, and for every rule that is taken away: then it must find a violation.
"""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from kvcore.fence import (
    NEVER,
    RULES,
    Cleared,
    Collapsed,
    Copy,
    Effect,
    Fenced,
    Heard,
    Listed,
    Message,
    Op,
    Ordered,
    Position,
    Receipted,
    Rules,
    apply_at,
    gone,
    uncertain,
    visible,
)


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


class Report(msgspec.Struct):
    """Counts of a check. All but `schedules` and `states` are zero where the rules hold."""

    schedules: int = 0
    states: int = 0
    resurrections: int = 0  # shown after a deletion or clear, without newer data
    fenced_shown: int = 0  # shown although its generation is fenced
    pending_shown: int = 0  # shown while the order is on its way
    wrong_shown: int = 0  # shown although it is not there as of the position
    wrong_gone: int = 0  # claimed to be gone although it is there
    missed_redeletes: int = 0  # a fenced generation is there and nobody was told
    wrong_final: int = 0  # after all messages the picture is not the truth

    @property
    def violations(self) -> int:
        """Sum of all that must be zero."""
        return sum(getattr(self, f) for f in self.__struct_fields__[2:])


ADD, REM, CLEAR, BOOT, OTHER, LOSS = "add", "remove", "clear", "boot", "other", "loss"


class _History:
    """Plays operations on one store and notes what it sends and what is true."""

    def __init__(self, store: int, persistent: bool) -> None:
        self.store, self.persistent = store, persistent
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

    def final(self) -> Listed | None:
        return Listed((self.boot, self.seq), self.there) if self.persistent else None


def _history(store: int, persistent: bool, ops: Sequence[str], delete_at: int | None) -> tuple[_History, int]:
    h, first_after = _History(store, persistent), 0
    for i in range(len(ops) + 1):
        if i == delete_at:
            first_after = h.delete()
        if i < len(ops):
            h.play(ops[i])
    return h, first_after


def _scenario(
    family: str, histories: Sequence[tuple[_History, int]], *, double: int | None = None, extra: Sequence[Sent] = ()
) -> Scenario:
    """All messages of the histories with their causes: what a store says after deleting comes after the order."""
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
    if double is not None:
        sent.append(heard[double % len(heard)])
    receipts = sum(1 << i for i, s in enumerate(sent) if isinstance(s.message, Receipted))
    sent += [Sent(s.store, s.message, receipts) if isinstance(s.message, Collapsed) else s for s in extra]
    copies = tuple(Copy(gen=1, persistent=h.persistent) for h, _ in histories)
    finals = tuple(h.final() for h, _ in histories)
    return Scenario(family, copies, tuple(sent), tuple(h.truth for h, _ in histories), finals)


def scenarios(length: int = 3) -> Iterator[Scenario]:
    """All scenarios with up to `length` operations a store (less where there are more messages)."""
    yield from _two_nodes(length)
    yield from _persistent(length)
    yield from _fenced(length)
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


def _fenced(length: int) -> Iterator[Scenario]:
    fences = [Sent(None, Fenced(2)), Sent(None, Fenced(1))]
    for n in range(1, length):
        for ops in itertools.product((ADD, REM, BOOT), repeat=n):
            yield _scenario("fence", [_history(0, False, ops, None)], double=0, extra=fences)
            for at in range(n + 1):
                yield _scenario("fence", [_history(0, False, ops, at)], double=0, extra=fences)
                late = [Sent(0, Heard((1, 0), Op.ADD))] if ops[0] == ADD and at else []
                yield _scenario("collapse", [_history(0, False, ops, at)], extra=[Sent(None, Collapsed()), *late])


def check(length: int = 3, rules: Rules = RULES, *, until: int | None = None) -> Report:
    """Every schedule of every scenario, walked one by one.

    Args:
        length: operations a history; 3 walks more than 500,000 schedules.
        rules: the rules of the reducer.
        until: stop after this many violations (a broken rule needs no complete list).
    """
    report = Report()
    for scenario in scenarios(length):
        _Walk(scenario, rules, report, until).go(0, scenario.copies, False)
        if until is not None and report.violations >= until:
            break
    return report


class _Walk:
    """Depth first over all orders of one scenario."""

    def __init__(self, scenario: Scenario, rules: Rules, report: Report, until: int | None) -> None:
        self.s, self.rules, self.report, self.until = scenario, rules, report, until
        self.all = (1 << len(scenario.sent)) - 1
        collapses = [i for i, s in enumerate(scenario.sent) if isinstance(s.message, Collapsed)]
        self.collapse = sum(1 << i for i in collapses)

    def go(self, done: int, copies: tuple[Copy, ...], told: bool) -> None:
        """All continuations of the deliveries in `done`; `told` = a re-delete was asked for."""
        if done == self.all:
            self.report.schedules += 1
            self._final(copies)
            return
        if self.until is not None and self.report.violations >= self.until:
            return
        for i, sent in enumerate(self.s.sent):
            bit = 1 << i
            if done & bit or sent.after & ~done:
                continue
            after, effects = apply_at(copies, sent.store, sent.message, self.rules)
            now_told = told or Effect.REDELETE in effects
            self.report.states += 1
            self._judge(done | bit, after, now_told)
            self.go(done | bit, after, now_told)

    def _judge(self, done: int, copies: tuple[Copy, ...], told: bool) -> None:
        r = self.report
        for store, copy in enumerate(copies):
            shown = visible(copy, self.rules)
            believed = copy.present and copy.added > copy.cut
            if copy.at != NEVER and copy.at >= copy.cut and not uncertain(copy):
                there = self.s.truth[store].get(copy.at, False)
                r.wrong_shown += shown and not there
                r.wrong_gone += gone(copy) and there
            if believed and not told and copy.gen < copy.min_gen and not uncertain(copy):
                r.missed_redeletes += 1
            if shown:
                self._judge_shown(done, store)

    def _judge_shown(self, done: int, store: int) -> None:
        """What was delivered so far, read anew, must allow that the block is shown."""
        r, cut, evidence, min_gen = self.report, NEVER, NEVER, 0
        ordered = receipted = False
        for i, sent in enumerate(self.s.sent):
            if not done >> i & 1 or sent.store not in (None, store):
                continue
            match sent.message:
                case Receipted(at=at):
                    cut, receipted = max(cut, at), True
                case Cleared(at=at):
                    cut = max(cut, at)
                case Ordered():
                    ordered = True
                case Fenced(min_gen=g):
                    min_gen = max(min_gen, g)
                case Heard(at=at, op=Op.ADD) | Listed(at=at, present=True):
                    evidence = max(evidence, at)
                case _:
                    pass
        r.resurrections += evidence <= cut and cut != NEVER
        r.fenced_shown += min_gen > 1 or bool(done & self.collapse)
        r.pending_shown += ordered and not receipted

    def _final(self, copies: tuple[Copy, ...]) -> None:
        if self.collapse:
            return
        for store, copy in enumerate(copies):
            listing = self.s.final[store]
            if listing is not None:
                (copy,), _ = apply_at((copy,), 0, listing, self.rules)
            there = self.s.truth[store][max(self.s.truth[store])]
            fenced = any(isinstance(s.message, Fenced) for s in self.s.sent)
            self.report.wrong_final += visible(copy, self.rules) != (there and not fenced) or uncertain(copy)
