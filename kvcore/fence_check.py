"""Checks the fence reducer exhaustively: every history, every order of delivery, doubled and lost messages.

After each delivery the checker compares what the reducer would show or claim with the truth of the history
(`kvcore.fence_scenarios`). `check` walks every schedule one by one, without merging equal states, and counts them. Run
by the tests in short and in full form, and for every rule that is taken away: then it must find a violation.
"""

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
    Op,
    Ordered,
    Receipted,
    Rules,
    apply,
    apply_at,
    gone,
    uncertain,
    visible,
)
from kvcore.fence_scenarios import Scenario, Sent, scenarios


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


def check(length: int = 3, rules: Rules = RULES, *, until: int | None = None) -> Report:
    """Every schedule of every scenario, walked one by one.

    Args:
        length: operations a history; 3 walks more than 700,000 schedules.
        rules: the rules of the reducer.
        until: stop after this many violations (a broken rule needs no complete list).
    """
    report = Report()
    for scenario in scenarios(length):
        _Walk(scenario, rules, report, until).go(0, scenario.copies, 0)
        if until is not None and report.violations >= until:
            break
    return report


def walk(scenario: Scenario, rules: Rules = RULES, *, until: int | None = None) -> Report:
    """Every schedule of one scenario."""
    report = Report()
    _Walk(scenario, rules, report, until).go(0, scenario.copies, 0)
    return report


class _Walk:
    """Depth first over all orders of one scenario."""

    def __init__(self, scenario: Scenario, rules: Rules, report: Report, until: int | None) -> None:
        self.s, self.rules, self.report, self.until = scenario, rules, report, until
        self.all = (1 << len(scenario.sent)) - 1
        collapses = [i for i, s in enumerate(scenario.sent) if isinstance(s.message, Collapsed)]
        self.collapse = sum(1 << i for i in collapses)

    def go(self, done: int, copies: tuple[Copy, ...], told: int) -> None:
        """All continuations of the deliveries in `done`; `told` = stores (bit mask) with a re-delete asked for."""
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
            now_told = told | self._redeletes(copies, sent) if Effect.REDELETE in effects else told
            self.report.states += 1
            self._judge(done | bit, after, now_told)
            self.go(done | bit, after, now_told)

    def _redeletes(self, copies: tuple[Copy, ...], sent: Sent) -> int:
        """For which stores the message asks for a re-delete."""
        asked = [i for i in range(len(copies)) if sent.store in (None, i)]
        return sum(1 << i for i in asked if Effect.REDELETE in apply(copies[i], sent.message, self.rules)[1])

    def _judge(self, done: int, copies: tuple[Copy, ...], told: int) -> None:
        r = self.report
        for store, copy in enumerate(copies):
            shown = visible(copy, self.rules)
            believed = copy.present and copy.added > copy.cut
            if copy.at != NEVER and copy.at >= copy.cut and not uncertain(copy):
                there = self.s.truth[store].get(copy.at, False)
                r.wrong_shown += shown and not there
                r.wrong_gone += gone(copy) and there
            if believed and not told >> store & 1 and copy.gen < copy.min_gen and not uncertain(copy):
                r.missed_redeletes += 1
            if shown:
                self._judge_shown(done, store, copy.gen)

    def _judge_shown(self, done: int, store: int, gen: int) -> None:
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
        r.fenced_shown += min_gen > gen or bool(done & self.collapse)
        r.pending_shown += ordered and not receipted

    def _final(self, copies: tuple[Copy, ...]) -> None:
        if self.collapse:
            return
        for store, copy in enumerate(copies):
            listing = self.s.final[store]
            if listing is not None:
                (copy,), _ = apply_at((copy,), 0, listing, self.rules)
            there = self.s.truth[store][max(self.s.truth[store])]
            fences = [s.message.min_gen for s in self.s.sent if isinstance(s.message, Fenced)]
            fenced = copy.gen < max(fences, default=0)
            self.report.wrong_final += visible(copy, self.rules) != (there and not fenced) or uncertain(copy)
