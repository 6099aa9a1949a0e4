"""What the routing index's bench feeds to every side: agent-like chains as events, and chains to look up.

Shape as of the published comparisons: a system prompt of 256 blocks that all workers hold, repositories of 3,494 blocks
with three to eight workers each, sessions of 5 to 60 turns of about 32 blocks, 2 % of the turns elsewhere, 10 % of the
sessions cut from the leaf. Written to a file of plain arrays, which a side reads with the standard library.
"""

import array
import pathlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

SYSTEM, REPOSITORY, EVENT_MOST = 256, 3_494, 512
Words = npt.NDArray[np.uint64]


@dataclass
class Stream:
    """Events in their order, and chains. An event: whether it adds, worker, the key before its first one, keys."""

    workers: int
    adds: list[bool] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    chains: list[bytes] = field(default_factory=list)
    blocks: int = 0

    @property
    def operations(self) -> int:
        """Blocks of all events."""
        return sum(map(len, self.keys)) // 8

    def event(self, add: bool, owner: int, parent: int, keys: Words) -> None:
        """One event, cut as chunked prefill cuts it."""
        for i in range(0, len(keys), EVENT_MOST):
            self.adds.append(add)
            self.owners.append(owner)
            self.parents.append(parent if i == 0 else int(keys[i - 1]))
            self.keys.append(keys[i : i + EVENT_MOST].tobytes())

    def save(self, path: pathlib.Path) -> None:
        """As arrays, each behind its length."""
        lens = [len(k) // 8 for k in self.keys]
        with path.open("wb") as file:
            chain_lens, numbers = [len(c) // 8 for c in self.chains], [self.workers, self.blocks]
            columns = (numbers, self.adds, self.owners, self.parents, lens, chain_lens)
            for code, values in zip("qbiQii", columns, strict=True):
                array.array("q", [len(values)]).tofile(file)
                array.array(code, values).tofile(file)
            file.write(b"".join(self.keys) + b"".join(self.chains))


def load(path: pathlib.Path) -> Stream:
    """The stream that was saved there."""
    with path.open("rb") as file:

        def read(code: str) -> array.array:  # type: ignore[type-arg]
            count, values = array.array("q"), array.array(code)
            count.fromfile(file, 1)
            values.fromfile(file, count[0])
            return values

        (workers, blocks), adds, owners, parents, lens, chain_lens = map(read, "qbiQii")
        keys, chains = ([file.read(8 * n) for n in some] for some in (lens, chain_lens))
    return Stream(workers, [bool(a) for a in adds], list(owners), list(parents), keys, chains, blocks)


def agents(blocks: int, workers: int, seed: int = 7, chains: int = 300) -> Stream:
    """At least so many distinct blocks over so many workers."""
    rng = np.random.default_rng(seed)
    made = Stream(workers)

    def fresh(count: int) -> Words:
        made.blocks += count
        return rng.integers(1, 2**64 - 1, count, np.uint64)

    system, asked = fresh(SYSTEM), []
    for worker in range(workers):
        made.event(True, worker, 0, system)
    while made.blocks < blocks:
        repository, near = fresh(REPOSITORY), rng.choice(workers, int(rng.integers(3, 9)), replace=False)
        here = {int(w) for w in near}
        for worker in here:
            made.event(True, worker, int(system[-1]), repository)
        for _ in range(16):
            asked.append(_session(made, rng, fresh, (system, repository), here))
    picked = rng.choice(len(asked), min(chains, len(asked)), replace=False)
    made.chains = [asked[i].tobytes() for i in picked]
    return made


def _session(made: Stream, rng: np.random.Generator, fresh, roots: tuple[Words, Words], here: set[int]) -> Words:  # type: ignore[no-untyped-def]
    """One session: its turns, where they were computed, and what was cut from its end."""
    worker, tail, on = int(rng.choice(sorted(here))), [np.empty(0, np.uint64)], {}
    for _ in range(int(rng.integers(5, 60))):
        tail.append(fresh(int(min(rng.geometric(1 / 32), 256))))
        if rng.random() < 0.02:
            worker = int(rng.choice(sorted(here)) if rng.random() < 0.7 else rng.integers(made.workers))
        if worker not in here:
            here.add(worker)
            made.event(True, worker, int(roots[0][-1]), roots[1])
        had = on.get(worker, 1)
        before = tail[had - 1] if had > 1 else roots[1]
        made.event(True, worker, int(before[-1]), np.concatenate(tail[had:]))
        on[worker] = len(tail)
    if rng.random() < 0.1 and len(tail) > 4:
        made.event(False, worker, 0, np.concatenate(tail[len(tail) - len(tail) // 3 :])[::-1].copy())
    return np.concatenate([*roots, *tail])
