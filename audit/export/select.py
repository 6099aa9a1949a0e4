"""Decides which records an export has: places in the log under one checkpoint, by who asks and by what they ask for."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from audit.selectors import EventFilter, place_of, places, selected
from kvconsole.infra.access import Principal, tenant_context

AT_ONCE = 20_000
ITEM = 8


class Selection(msgspec.Struct, frozen=True):
    """Places of records: a whole run, or those in a file.

    `last` = `first` - 1: none.
    """

    first: int
    last: int
    count: int
    path: Path | None = None
    """8 bytes a place, in this machine's order; None: every place of the run."""

    def slice(self, start: int, most: int) -> Sequence[int]:
        """So many places from the `start`-th on."""
        if self.path is None:
            return range(self.first + start, min(self.first + start + most, self.last + 1))
        found = array("q")
        with self.path.open("rb") as file:
            file.seek(start * ITEM)
            found.frombytes(file.read(min(most, self.count - start) * ITEM))
        return found


def select(asked: EventFilter, *, epoch: int, size: int, reader: Principal, path: Path) -> Selection:
    """The records under the checkpoint of this size.

    Without a filter but time it is one run from the first to the last of what lies in that time, so that whoever reads
    it can see that nothing in between was left out. 8 bytes of memory a record where there is a filter.

    Args:
        asked: which.
        epoch: number of the log.
        size: of the checkpoint.
        reader: as whom the log is read.
        path: of the file with their places, where one is needed.
    """
    narrow = asked.narrows() or reader.tenant_id is not None
    if not narrow and asked.since is None and asked.until is None:
        return Selection(0, size - 1, size)
    if not narrow:
        first, last = size, -1
        for found in _places(asked, epoch, reader):
            inside = [index for index in found if index < size]
            if inside:
                first, last = min(first, min(inside)), max(last, max(inside))
        return Selection(0, -1, 0) if last < 0 else Selection(first, last, last - first + 1)
    chosen = array("q")
    for found in _places(asked, epoch, reader):
        chosen.extend(index for index in found if index < size)
    ordered = array("q", sorted(chosen))
    path.write_bytes(ordered.tobytes())
    first, last = (ordered[0], ordered[-1]) if ordered else (0, -1)
    return Selection(first, last, len(ordered), path)


def _places(asked: EventFilter, epoch: int, reader: Principal) -> Iterator[list[int]]:
    """Places of the events that are meant, some thousands at a time. Indexes: those of `selectors.selected`."""
    after: tuple[int, int] | None = None
    while True:
        with tenant_context(reader):
            rows = selected(asked)
            if after is not None:
                rows = rows.filter(time_us__gte=after[0]).exclude(time_us=after[0], id__lte=after[1])
            found = list(rows.order_by("time_us", "id").values_list("time_us", "id")[:AT_ONCE])
        there = places([event for _, event in found])
        at = [place_of(event, time_us, there) for time_us, event in found]
        yield [place.index for place in at if place and place.epoch == epoch]
        if len(found) < AT_ONCE:
            return
        after = found[-1]
