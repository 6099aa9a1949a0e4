"""Decides what an inventory and a digest report do: the first replaces what is believed, the second verifies it.

Called by `folding` for pages in the order of the frames, and for digests after the batch is folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.index.steps import RESET
from catalog.ingest import telling
from catalog.ingest.codes import Unavailable
from catalog.ingest.inventory import Collection, digests_equal
from catalog.ingest.keymap import Work, replacement
from kvcore.events import Add, Adds, Refused
from kvcore.fold import Duplicate, Reset
from kvcore.messages import DigestReport, InventoryPage, Rejected

if TYPE_CHECKING:
    from catalog.ingest.folding import Batch, Folder
    from catalog.ingest.jobs import Job
    from catalog.ingest.sources import Source


def page(folder: Folder, batch: Batch, job: Job, message: InventoryPage) -> None:
    """The page is kept; with the last one the source holds exactly what was listed, in this batch's commit."""
    source = folder.source_of(batch, job, message)
    source.listing(batch.now)
    folder.pictures.seen(source.id, batch.when, message.ts)
    inventories = folder.inventories
    if message.inventory == inventories.done.get(source.id) and source.lost_since is None:
        batch.answers.append((job, source, "applied" if message.last else "page", None, []))
        return
    _, verdict = source.cursor.listed(message.boot, message.stream, message.seq)
    if isinstance(verdict, Duplicate):
        inventories.open.pop(source.id, None)
        source.ask_at = 0.0
        rejected = [] if verdict.code == "duplicate" else [Rejected(index=-1, code=verdict.code)]
        if verdict.code == "fenced-boot" and message.boot != source.cursor.boot:
            raise Refused(verdict.code, message.boot)
        if rejected:
            folder.refuse(batch, source, verdict.code, message.boot[:40])
        batch.answers.append((job, source, "stale", None, rejected))
        return
    good = [i for i in job.items or () if isinstance(i, Add | Adds)]
    bad = [i for i in job.items or () if isinstance(i, Refused)]
    try:
        collection = inventories.add(source.id, message, good, bad, batch.now)
    except Unavailable as e:
        batch.outcomes.append((job, e))
        return
    state = "page"
    if collection is not None and message.last:
        _replace(folder, batch, job, source, collection, message.gap)
        state = "applied"
    batch.answers.append((job, source, state, None, []))


def _replace(folder: Folder, batch: Batch, job: Job, source: Source, collection: Collection, gap: str) -> None:
    """The position is the inventory's, the content is what it lists, and only what it could not list is in doubt."""
    verdict = source.listed(*collection.position, batch.now)
    if isinstance(verdict, Reset):
        batch.work.append(Work(RESET, source.id))
        folder.restarted(batch, source)
    source.verified(batch.now, gap=gap)
    adds: list[Work] = []
    refused = list(collection.refused)
    for index, item in enumerate(collection.items):
        try:
            step = folder.step(batch, source, job, index, item)
        except Refused as e:
            refused.append(e)
            continue
        if step is not None:
            adds.append(step)
    batch.work += replacement(source.id, adds)
    batch.items += len(collection.items)
    source.inventoried(batch.now, whole=not refused)
    for why in refused:
        folder.refuse(batch, source, why.code, why.detail)
    folder.inventories.finish(source.id)


def digest(folder: Folder, batch: Batch, job: Job, source: Source) -> None:
    """The source is verified if it says of exactly this position what the catalog believes."""
    report = job.message
    assert isinstance(report, DigestReport)
    source.can_list, source.asked = True, 0
    cursor = source.cursor
    if (report.boot, report.stream, report.seq) != (cursor.boot, cursor.stream, cursor.seq) or source.lost_since:
        state = "stale"
        source.revealed(report.boot, report.stream, report.seq, batch.now)
    else:
        of = folder.memory.keyspaces
        believed = {
            (of[ks].digest, of[ks].generation, of[ks].group, tier): sums
            for (ks, tier), sums in folder.memory.digests(source.id).items()
        }
        if digests_equal(report, believed):
            state = "equal"
            source.inherited = False  # a report is made at the last frame that was numbered
            source.verified(batch.now, gap=report.gap)
        else:
            state = "differs"
            source.doubt("digest-differs", batch.now)
            source.ask_at = 0.0
    batch.outcomes.append((job, telling.answer(folder, job, source, state, None, [], source.asks(batch.now))))
