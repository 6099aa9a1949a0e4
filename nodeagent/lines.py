"""Decides in which order copies leave a tier when whose they are matters: one queue for each tenant that has a share.

The least valuable copy of all lines that may lose one goes first. Under the pool's lock; called by `pool`, `demotion`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from kvcore.blocks import Tier
from nodeagent.budget import COMMON, Budget, content
from nodeagent.runs import Copy, Run
from nodeagent.watermarks import Policy, Queue


class Lines:
    """The queues of one tier."""

    def __init__(self, tier: Tier, policy: Policy, budget: Budget) -> None:
        self._tier, self._policy, self._budget = tier, policy, budget
        self._queues: dict[str, Queue] = {}

    def push(self, run: Run, copy: Copy) -> None:
        """Takes a copy into the order of its tenant's line."""
        name = self._budget.line(run.space.tenant)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(self._tier, self._policy)
        queue.push(run, copy)

    def regroup(self, runs: Iterable[Run]) -> None:
        """Every copy on the tier stands in the line where it now belongs."""
        self._queues = {}
        for run in runs:
            if (copy := run.copies.get(self._tier)) is not None:
                self.push(run, copy)

    def own(self, tenant: str, wanted: int) -> Iterator[tuple[Run, Copy]]:
        """The tenant's own copies of least value, until so many bytes of blocks are together."""
        queue = self._queues.get(tenant)
        busy: list[tuple[Run, Copy]] = []
        taken: set[int] = set()
        while queue is not None and wanted > 0 and (best := queue.best(busy, self._budget.pinned)) is not None:
            _, run, copy = best
            if id(copy) not in taken:
                taken.add(id(copy))
                wanted -= content(run)
                yield run, copy
        for run, copy in busy:
            self.push(run, copy)

    def pop(self, wanted: int, *, asker: str = COMMON) -> Iterator[tuple[Run, Copy]]:
        """The next copies to leave for the asker's need, until `wanted` bytes with headers are together.

        Those in use are passed over, and so are lines that would fall below what they are guaranteed.
        """
        busy: list[tuple[Run, Copy]] = []
        heads = {
            name: best
            for name, queue in self._queues.items()
            if (best := queue.best(busy, self._budget.pinned)) is not None
        }
        gone: Counter[str] = Counter()
        taken: set[int] = set()
        got = 0
        while heads and got < wanted:
            name = min(heads, key=lambda n: (heads[n][0], -heads[n][1].depth))
            _, run, copy = heads[name]
            size = content(run)
            if id(copy) not in taken and not self._budget.may_lose(name, self._tier, gone[name] + size, asker):
                busy.append((run, copy))
                del heads[name]
                continue
            if id(copy) not in taken:
                taken.add(id(copy))
                gone[name] += size
                got += run.meta.size_bytes
                yield run, copy
            best = self._queues[name].best(busy, self._budget.pinned)
            if best is None:
                del heads[name]
            else:
                heads[name] = best
        for run, copy in [*((run, copy) for _, run, copy in heads.values()), *busy]:
            self.push(run, copy)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))
