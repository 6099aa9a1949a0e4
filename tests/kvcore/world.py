"""A small fleet for operations: owners that answer steps, go away, restart, lie and keep leases. No clock in it."""

from collections.abc import Iterable

from msgspec.structs import replace

from kvcore.plan_steps import Intent, Observed, OwnerSeen, StepSeen, StepWish, steps
from kvcore.plans import Target

TARGET = Target(ns="ab" * 32, gen_upto="5", tenant="nuri-bank")


def intent(**changes: object) -> Intent:
    return replace(Intent(operation="op", kind="deletion", generation=1, targets=(TARGET,), deadline=100.0), **changes)


def owner(number: int, tier: str = "dram", *, node: str = "", blocks: int = 3, **changes: object) -> OwnerSeen:
    seen = OwnerSeen(
        owner=number, node=node or f"node-{number}", source="engine", tier=tier, boot="b1", stream="s1", seq=7,
        blocks=blocks, bytes=16 * blocks, total_bytes=16 * blocks,
    )  # fmt: skip
    return replace(seen, **changes)


class World:
    """Answers wishes; `wishes` are those of the last planning."""

    def __init__(self, owners: Iterable[OwnerSeen], of: Intent | None = None, now: float = 10.0) -> None:
        self.intent = of or intent()
        self.seen = Observed(now=now, owners=tuple(owners), fenced_at=1.0, order_logged=True, requested_at=0.5)
        self.log: list[tuple[str, int]] = []

    @property
    def wishes(self) -> list[StepWish]:
        return steps(self.intent, self.seen)

    def kinds(self) -> list[tuple[str, int]]:
        return [(wish.kind, wish.owner) for wish in self.wishes]

    def of(self, number: int) -> OwnerSeen:
        return next(one for one in self.seen.owners if one.owner == number)

    def change(self, number: int, **changes: object) -> None:
        owners = tuple(replace(o, **changes) if o.owner == number else o for o in self.seen.owners)
        self.seen = replace(self.seen, owners=owners)

    def set(self, **changes: object) -> None:
        self.seen = replace(self.seen, **changes)

    def answer(self, wish: StepWish, outcome: str = "done", **changes: object) -> None:
        """The step ended so; time goes on by a second."""
        self.log.append((wish.kind, wish.owner))
        self.set(now=self.seen.now + 1)
        if wish.kind == "keys":
            self.set(keys_destroyed=True)
            return
        here = self.of(wish.owner)
        step = StepSeen(
            step=wish.step, kind=wish.kind, owner=wish.owner, boot=wish.boot, attempt=wish.attempt, outcome=outcome,
            at=self.seen.now, position_boot=here.boot, position_stream=here.stream, position_seq=here.seq,
            bytes=here.bytes,
        )  # fmt: skip
        self.set(steps=(*self.seen.steps, replace(step, **changes)))
        if wish.kind == "purge" and outcome == "done":
            self.change(wish.owner, blocks=0, bytes=0)

    def run(self, most: int = 200) -> None:
        """Everything that is wanted is done, in the order of the plan, until nothing is."""
        for _ in range(most):
            if not (found := self.wishes):
                return
            self.answer(found[0])
        raise AssertionError("it never ends")
