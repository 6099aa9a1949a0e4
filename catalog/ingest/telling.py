"""Decides what is said about a batch: answers to agents, notes on the node's page, counts in the metrics.

Called by `folding`. Nothing in here changes what the catalog believes of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from catalog.ingest import meters
from catalog.ingest.attempts import countable
from catalog.ingest.codes import CODES
from catalog.ingest.keymap import SourceRow
from catalog.ingest.sources import EXACT, Source
from kvcore.events import Frame, Item, Refused
from kvcore.fold import Cursor, Duplicate, Gap, Verdict
from kvcore.messages import Answer, Heartbeat, InventoryPage, Rejected

if TYPE_CHECKING:
    from catalog.ingest.folding import Batch, Folder
    from catalog.ingest.jobs import Job


def good(job: Job) -> list[Item]:
    """The items of a job that could be read."""
    return [i for i in job.items or () if not isinstance(i, Refused)]


def count(code: str, times: int = 1) -> None:
    """One more of this code, for the metrics."""
    meters.REFUSED.labels(code).inc(times)


def restored(row: SourceRow, now: float) -> Source:
    """The source as the last writer left it; a gap that was open then closes when its reach is known again."""
    cursor = Cursor(row.boot, row.stream, row.seq, tuple(row.old_boots))
    source = Source(row.id, row.node_id, row.name, row.dp_rank, cursor, row.can_list)
    source.since, source.gaps, source.shown = row.since, row.gaps, (row.state, row.reason)
    source.last_verified_at, source.last_frame_at = row.last_verified_at, row.last_frame_at
    if row.state == "lost":
        source.lose(row.since, row.reason)
    elif row.reason == "gap":
        source.inherited, source.gap_since = True, now
        source.doubt("gap", now)
    elif row.state != EXACT and row.reason != "new":
        source.doubt(row.reason if row.reason != "cannot-list" else "returned", now)
    return source


def answer(
    folder: Folder, job: Job, source: Source, state: str, verdict: Verdict | None, rejected: list[Rejected], asks: bool
) -> Answer:
    """What is true for the sender once the batch is committed."""
    m, cursor = job.message, source.cursor
    assert not isinstance(m, Heartbeat)  # heartbeats name many sources: `beat`
    same = (m.boot, m.stream) == (cursor.boot, cursor.stream)
    committed, expect = (cursor.seq, cursor.seq + 1) if same else (-1, 0)
    if isinstance(verdict, Duplicate) and not same and isinstance(m, Frame):
        committed, expect = m.seq, m.seq + 1  # of an ended life: the frame is void, whatever was in it
    if isinstance(verdict, Gap):
        expect = verdict.expect_seq if not same else expect
        asks = asks or (verdict.inventory and source.can_list)
    return Answer(
        state=state,
        committed_seq=committed,
        expect_seq=expect,
        fence_seq=folder.registry.fence_seq,
        fences_after=folder.registry.fences(m.fence_seq),
        allowances=folder.dealer.document(job.node, m.allowances),
        rejected=rejected,
        inventory=asks,
    )


def beat(folder: Folder, node: UUID, heartbeat: Heartbeat, asks: bool) -> Answer:
    """The answer to a heartbeat: fences, allowances, and whether any source of the node is to list what it holds."""
    return Answer(
        state="ok",
        fence_seq=folder.registry.fence_seq,
        fences_after=folder.registry.fences(heartbeat.fence_seq),
        allowances=folder.dealer.document(node, heartbeat.allowances),
        inventory=asks,
    )


def refused(folder: Folder, node: UUID, heartbeat: Heartbeat, when: datetime) -> Iterator[tuple[Source, str, str, int]]:
    """What the agent itself has refused of its engine, by source: (source, code, detail, how often).

    What is barred by policy becomes events (`attempts`). The rest is only counted: where a fact may have been lost, the
    agent has told that as a `gap` item. Entries without a code of ours are left out; one that names no source is of
    the node's first. A count that is none is not added to anything, and is itself counted as `wrong-type`.
    """
    for worker, why in folder.loads.take(folder, node, heartbeat, when):
        count(why)
        yield worker, why, "a load report, in a heartbeat", 1
    odd = 0
    first = next(iter(folder.of_node.get(node, ())), None)
    if not folder.attempts.fresh(node, heartbeat):
        return
    for entry in heartbeat.refused:
        times = entry.get("count")
        if not countable(times):
            odd += 1
            continue
        if folder.attempts.told(node, entry):
            continue
        code = entry.get("reason")
        rank = entry.get("dp_rank", 0)
        if not isinstance(code, str) or code not in CODES:
            continue
        name, source = entry.get("source"), first  # one that is named may not have spoken yet
        if isinstance(name, str) and type(rank) is int:
            source = folder.named.get((node, name, rank), first)
        if source is not None:
            count(code, times)
            yield source, code, "by the agent", times
    if odd and first is not None:
        count("wrong-type", odd)
        yield first, "wrong-type", "the count of something refused, in a heartbeat", odd


def notes(folder: Folder, batch: Batch) -> None:
    """What the fold found remarkable is counted; unknown keys and illegal transitions cast doubt on the source."""
    t = batch.touched
    kinds = {"unknown-keys": t.unheld, "illegal-transition": t.illegal, "parent-mismatch": t.mismatched}
    for code, found in kinds.items():
        for (source_id, tag), keys in found.items():
            if tag < 0:  # of a step of the console's own
                continue
            source, job, index = batch.tags[tag]
            m = job.message
            where = f"{keys} keys, item {index} of " + (f"frame {m.seq}" if isinstance(m, Frame) else "the inventory")
            folder.pictures.refused(source_id, code, where, batch.when)
            count(code)
            batch.sources[source_id] = source
            if code != "parent-mismatch" and not isinstance(m, InventoryPage):
                source.doubt(code, batch.now)


def measure(batch: Batch) -> None:
    """The batch is in the metrics."""
    meters.PAIRS.inc(batch.touched.pairs)
    meters.ITEMS.inc(batch.items)
    for _, _, state, _, _ in batch.answers:
        meters.MESSAGES.labels(state).inc()
