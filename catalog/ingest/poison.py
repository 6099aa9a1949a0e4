"""Decides what happens to input that makes the fold itself fail: it is found, set aside, and never ends the process.

A fold that fails costs the memory, which is loaded anew; what was in the batch comes again. From then on batches have
one job each, so that the next failure names its cause: that job's items are refused as `unfoldable`, its position is
taken, and its source is asked for an inventory. Called by `pipeline`.
"""

from collections.abc import Hashable, Sequence

from catalog.ingest.jobs import Job
from kvcore.events import Frame, Refused
from kvcore.messages import InventoryPage

CAREFUL_JOBS = 256
KEPT = 10_000


class Suspects:
    """What has failed alone, and for how many jobs folding is still done one by one."""

    def __init__(self) -> None:
        self.careful = 0
        self.known: dict[Hashable, None] = {}

    def disarm(self, jobs: list[Job]) -> list[Job]:
        """The jobs to fold: those that failed alone before carry no items any more, or are answered here."""
        if not self.known:
            return jobs
        out = []
        for job in jobs:
            if _name(job) not in self.known:
                out.append(job)
            elif isinstance(job.message, Frame | InventoryPage):
                job.items = [Refused("unfoldable")]
                out.append(job)
            else:
                job.settle(Refused("unfoldable"))
        return out

    def crashed(self, jobs: Sequence[Job]) -> None:
        """The fold of these jobs failed."""
        self.careful = CAREFUL_JOBS
        if len(jobs) == 1:
            if len(self.known) >= KEPT:
                del self.known[next(iter(self.known))]
            self.known[_name(jobs[0])] = None

    def passed(self, jobs: Sequence[Job]) -> None:
        """The fold of these jobs went well."""
        self.careful = max(0, self.careful - len(jobs))


def _name(job: Job) -> Hashable:
    m = job.message
    if isinstance(m, Frame):
        return job.node, m.source, m.dp_rank, m.boot, m.stream, m.seq
    if isinstance(m, InventoryPage):
        return job.node, m.source, m.dp_rank, "inventory", m.last
    return job.node, type(m).__name__, repr(m)[:2000]
