"""Decides what a batch of frames, inventories, digests and heartbeats does to the catalog, and how each is answered.

Pure of HTTP and of waiting: it runs in the writer's fold thread, reads cached namespaces, fences and nodes, and hands
back one prepared transaction with the answers that are true once it is committed. Called by `pipeline`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from django.db import Error, close_old_connections

from catalog.index.steps import RESET
from catalog.ingest import console_source, listing, telling
from catalog.ingest.admission import Admission, digests, keys_of
from catalog.ingest.attempts import FOUND, Attempts, digest_of
from catalog.ingest.codes import HARMLESS, WHOLE, Unavailable
from catalog.ingest.dealing import Dealer
from catalog.ingest.inventory import Inventories
from catalog.ingest.jobs import Broken, Job, Outcome, ordered
from catalog.ingest.keymap import Touched, Work
from catalog.ingest.loads import Loads
from catalog.ingest.move_book import MoveBook
from catalog.ingest.nodes import SHUT, NodeBook
from catalog.ingest.pictures import Pictures
from catalog.ingest.policies import PolicyBook
from catalog.ingest.registry import Registry
from catalog.ingest.sources import SOURCES_MOST, Source
from catalog.ingest.usage_days import UsageDays
from catalog.store import Prepared, Store
from kvcore.blocks import VOLATILE, Tier
from kvcore.events import Add, Adds, Frame, Gap, Item, Move, Refused
from kvcore.fold import Cursor, Duplicate, Next, Reset, Verdict
from kvcore.fold import Gap as Missing
from kvcore.messages import Answer, DigestReport, Heartbeat, InventoryPage, Rejected

UNREADABLE = "unreadable"
"""Name of the source that stands for a node of which nothing could be read yet."""
STATES = {Next: "next", Duplicate: "duplicate", Missing: "gap", Reset: "reset"}


@dataclass(slots=True)
class Batch:
    """What one batch has gathered. `tags` say which item of which job a step was."""

    now: float
    when: datetime
    touched: Touched = field(default_factory=Touched)
    work: list[Work] = field(default_factory=list)
    tags: list[tuple[Source, Job, int]] = field(default_factory=list)
    answers: list[tuple[Job, Source | None, str, Verdict | None, list[Rejected]]] = field(default_factory=list)
    outcomes: list[tuple[Job, Outcome]] = field(default_factory=list)
    sources: dict[int, Source] = field(default_factory=dict)
    prepared: Prepared | None = None
    items: int = 0
    states_changed: bool = False


class Folder:
    """The fold of one writer over its store's memory. All methods belong to the fold thread."""

    def __init__(self, store: Store, registry: Registry, nodes: NodeBook, pictures: Pictures, *, now: float) -> None:
        self.store, self.memory = store, store.memory
        self.registry, self.nodes, self.pictures = registry, nodes, pictures
        registry.rows(k.digest for k in self.memory.keyspaces.values())
        self.policies = PolicyBook(nodes, version=int(now * 1000))
        self.dealer, self.attempts = Dealer(self.memory, nodes, self.policies), Attempts(self.policies)
        self.days = UsageDays(store.shard, datetime.fromtimestamp(now, UTC))
        self.moves, self.loads = MoveBook(store.shard), Loads()
        self.admission = Admission(self.memory, registry, pictures, self.days, self.moves)
        self.inventories, self.purges = Inventories(), console_source.PurgeBook(store.shard, memory=self.memory)
        self.sources: dict[int, Source] = {}
        self.named: dict[tuple[UUID, str, int], Source] = {}
        self.of_node: dict[UUID, list[Source]] = {}
        for row in self.memory.sources.values():
            self._remember(telling.restored(row, now))

    # ------------------------------------------------------------------ batch
    def due(self, now: float) -> bool:
        """Whether a batch without any job would still have something to look at."""
        books = (self.nodes, self.registry, self.policies, self.dealer, self.purges)
        return any(book.due(now) for book in books)

    def fold(self, jobs: list[Job], broken: list[Broken], now: float) -> Batch:
        """The batch is in memory and its transaction prepared; the answers hold once it is written.

        Raises:
            Unavailable: namespaces, fences or nodes could not be read; nothing was folded.
        """
        batch = Batch(now, datetime.fromtimestamp(now, UTC))
        self._read(jobs, broken, now)
        self.admission.begin(batch.touched, now, batch.when)
        self.admission.claim()
        self._hear(jobs, now)
        if self.store.shard == 0:
            self.dealer.deal(now)
        self._silence(batch)
        batch.work += self.purges.hiding(self.admission.by_digest)
        for source in self.purges.begin(self.sources):
            batch.work += self.purges.steps(source, self.admission.by_digest)
        for job in ordered(jobs):
            self._job(batch, job)
        for entry in broken:
            self._broken(batch, entry)
        self._apply(batch)
        return batch

    def _hear(self, jobs: list[Job], now: float) -> None:
        """Nodes and sources that speak in this batch are not silent, however long it took to get here."""
        for job in jobs:
            self.nodes.heard(job.node, now)
            m = job.message
            for at in m.sources if isinstance(m, Heartbeat) else (m,):
                source = self.named.get((job.node, at.source, at.dp_rank or 0))
                if source is not None:
                    source.spoke(at.boot, at.stream, now)

    def _silence(self, batch: Batch) -> None:
        """Sources that were not heard for long are doubted, or leave with this batch."""
        lost = self.nodes.lost(batch.now)
        silent = console_source.losses(lost, self.sources.values(), batch.now, hearing_since=self.nodes.started)
        for source, step in silent:
            batch.sources[source.id] = source
            if step is not None:
                batch.work.append(step)
                self.days.gap(source.id, source.spoke_at or source.last_frame_at, None, "node-silent")

    def _read(self, jobs: list[Job], broken: list[Broken], now: float) -> None:
        """Everything the fold asks the database for is in memory; from here on it does not wait."""
        for job in jobs:
            job.decode()
        spoke = {job.node for job in jobs} | {entry.node for entry in broken}
        self.nodes.dirty |= not spoke <= self.nodes.rows.keys()  # one has just been enrolled
        try:
            self.nodes.refresh(now)
            self.registry.refresh(now)
            self.purges.refresh(now)
            self.moves.ask((item for job in jobs for item in telling.good(job)), now)
            spoken = {d for job in jobs for d in digests(telling.good(job))}
            self.registry.rows(spoken)
            self.policies.refresh(now)
            self.policies.ask(spoken | {d for job in jobs for d in _refused(job)})
            if self.store.shard == 0:
                self.dealer.read(now)
            self.registry.prepare((job.message.fence_seq for job in jobs), now)
            self.admission.stale_hits.refresh(self.registry.fence_seq)
        except Error as e:
            close_old_connections()
            raise Unavailable("shard-unavailable") from e

    def _job(self, batch: Batch, job: Job) -> None:
        self.nodes.applied(job.node, min(job.message.fence_seq, self.registry.fence_seq))
        self.dealer.heard(job.node, job.message.allowances)
        try:
            self._open(job)
            match job.message:
                case Frame():
                    self._frame(batch, job, job.message)
                case InventoryPage():
                    listing.page(self, batch, job, job.message)
                case DigestReport():
                    source = self._source(batch, job.message.source, job.message.dp_rank, job.node)
                    batch.answers.append((job, source, "digest", None, []))
                case Heartbeat():
                    self._heartbeat(batch, job, job.message)
        except Refused as e:
            batch.outcomes.append((job, e))
            if not isinstance(job.message, Heartbeat):
                m = job.message
                self._broken(batch, Broken(job.node, m.source, m.dp_rank or 0, e.code, e.detail))

    def _open(self, job: Job) -> None:
        node = self.nodes.rows.get(job.node)
        if node is None:
            raise Refused("foreign-token", "the node is not enrolled")
        if node.state in SHUT:
            raise Refused("node-fenced", node.name)
        if not isinstance(job.message, Heartbeat) and job.message.shard != self.store.shard:
            raise Refused("wrong-shard", str(job.message.shard))

    # ----------------------------------------------------------------- frames
    def _frame(self, batch: Batch, job: Job, frame: Frame) -> None:
        source = self._source(batch, frame.source, frame.dp_rank, job.node)
        items = job.items or ()
        declared = bool(items) and isinstance(items[0], Gap)
        verdict = source.advance(frame.boot, frame.stream, frame.seq, batch.now, declared=declared)
        self.pictures.seen(source.id, batch.when, frame.ts)
        self.admission.said_at = min(frame.ts, batch.now)
        rejected: list[Rejected] = []
        match verdict:
            case Duplicate(code=code) if code != "duplicate":
                if code == "fenced-boot" and frame.boot != source.cursor.boot:
                    raise Refused(code, frame.boot)  # not merely an old stream: its sender must stop
                self.refuse(batch, source, code, f"stream {frame.stream} frame {frame.seq}")
                rejected.append(Rejected(index=WHOLE, code=code))
            case Reset():
                self.reset(batch, source)
                self._items(batch, source, job, rejected)
            case Next():
                batch.work += self.purges.steps(source, self.admission.by_digest, upto=frame.seq - 1)
                self._items(batch, source, job, rejected)
        batch.answers.append((job, source, STATES[type(verdict)], verdict, rejected))

    def reset(self, batch: Batch, source: Source) -> None:
        """A new boot: volatile tiers leave in one row each, persistent ones are unverified until they are listed."""
        batch.work.append(Work(RESET, source.id))
        self.restarted(batch, source)
        node = self.nodes.rows.get(source.node)
        holds = any(s == source.id and Tier(tier) not in VOLATILE for s, tier in self.memory.owner_of)
        if holds or (source.can_list and node is not None and node.persistent):
            source.last_verified_at = None
            source.doubt("unverified", batch.now)

    def restarted(self, batch: Batch, source: Source) -> None:
        """Another process speaks for the source: what the one before had not sent is lost."""
        if source.cursor.old_boots:
            before = self.memory.sources[source.id].last_frame_at
            self.days.gap(source.id, before, batch.now, "node-restarted")

    def _items(self, batch: Batch, source: Source, job: Job, rejected: list[Rejected]) -> None:
        for index, item in enumerate(job.items or ()):
            batch.items += 1
            try:
                if isinstance(item, Refused):
                    raise item
                step = self.step(batch, source, job, index, item)
            except Refused as e:
                self.refuse(batch, source, e.code, e.detail)
                rejected.append(Rejected(index=index, code=e.code))
                continue
            if step is not None:
                batch.work += [step, *self.moves.vacated(item, step), *self.purges.came(item, step, job.message)]

    def step(self, batch: Batch, source: Source, job: Job, index: int, item: Item) -> Work | None:
        """The step of one item.

        Raises:
            Refused: the item has no effect.
        """
        step = self.admission.admit(source, item, len(batch.tags))
        if step is not None:
            batch.tags.append((source, job, index))
        if isinstance(item, Add | Adds | Move):
            self._place(batch, source, item)
        if self.admission.stale(item):
            self._zombie(source, job, item)
            self.pictures.refused(source.id, "stale-generation", f"generation {getattr(item, 'gen', 0)}", batch.when)
            telling.count("stale-generation")
        return step

    def _zombie(self, source: Source, job: Job, item: Item) -> None:
        """Blocks of a fenced generation are announced: they are there, and no receipt from before covers them."""
        at = job.message
        if isinstance(item, Add | Adds | Move) and isinstance(at, Frame | InventoryPage):
            tier = item.to if isinstance(item, Move) else item.tier
            self.purges.announced(source.id, tier, item.ns, at.boot, at.stream, at.seq)

    def _place(self, batch: Batch, source: Source, item: Add | Adds | Move) -> None:
        """Blocks that must not be where they are told to be are there all the same: flagged, and an event tells it."""
        tier = item.to if isinstance(item, Move) else item.tier
        why = self.policies.refusal(source.node, item.ns, tier)
        if why:
            self.attempts.note(source.node, item.ns, tier, why, FOUND, keys_of(item))
            self.pictures.refused(source.id, "misplaced-blocks", f"{keys_of(item)} on {tier}: {why}", batch.when)
            telling.count("misplaced-blocks")

    def refuse(self, batch: Batch, source: Source, code: str, detail: str, count: int = 1) -> None:
        """Something of the source was refused: counted, shown, and (if it may have been a fact) it is not exact."""
        batch.sources[source.id] = source
        if code not in HARMLESS:
            source.doubt(code, batch.now)
        self.pictures.refused(source.id, code, detail, batch.when, count)
        telling.count(code, count)

    def _heartbeat(self, batch: Batch, job: Job, beat: Heartbeat) -> None:
        self.nodes.stated(job.node, beat.ranks)
        asked = False
        lanes = [(at.source, at.dp_rank) for at in beat.sources]
        for at in beat.sources:
            source = self.named.get((job.node, at.source, at.dp_rank))
            if source is None or lanes.count((at.source, at.dp_rank)) > 1:
                continue  # unknown, or one position per shard: then they cannot be told apart
            source.heard(at.boot, at.stream, at.seq, batch.now)
            self.pictures.seen(source.id, batch.when)
            batch.sources[source.id] = source
            asked = source.asks(batch.now) or asked
        for source, code, detail, count in telling.refused(self, job.node, beat, batch.when):
            self.pictures.refused(source.id, code, detail, batch.when, count)
        batch.outcomes.append((job, telling.beat(self, job.node, beat, asked)))

    def _broken(self, batch: Batch, entry: Broken) -> None:
        source = self.named.get((entry.node, entry.source, entry.dp_rank))
        if source is None and entry.node in self.nodes.rows:
            known = self.of_node.get(entry.node)
            source = known[0] if known else self._made(batch, entry.node, UNREADABLE, 0)
        if source is not None:
            self.refuse(batch, source, entry.code, entry.detail, entry.count)

    # ---------------------------------------------------------------- sources
    def source_of(self, batch: Batch, job: Job, message: InventoryPage) -> Source:
        """The source a page speaks for."""
        return self._source(batch, message.source, message.dp_rank, job.node)

    def _source(self, batch: Batch, name: str, dp_rank: int | None, node: UUID) -> Source:
        ranks, rank = self.nodes.ranks_of(node, name), dp_rank or 0
        if dp_rank is None:
            others = any(s.name == name and s.dp_rank > 0 for s in self.of_node.get(node, ()))
            if ranks > 1 or others:
                raise Refused("missing-dp-rank", name)
        source = self.named.get((node, name, rank))
        if rank >= (ranks or 1) and (source is None or ranks):  # a known one was stated to the writer before this one
            raise Refused("wrong-dp-rank", f"{name}: rank {rank} of {ranks or 1}")
        if source is None:
            if len(self.of_node.get(node, ())) >= SOURCES_MOST:
                raise Refused("too-many-sources", name)
            source = self._made(batch, node, name, rank)
        batch.sources[source.id] = source
        return source

    def _made(self, batch: Batch, node: UUID, name: str, dp_rank: int) -> Source:
        row = self.memory.source(node, name, dp_rank, batch.touched, batch.now)
        row.can_list = self.nodes.rows[node].can_list
        source = Source(row.id, node, name, dp_rank, Cursor(), row.can_list, since=batch.now, spoke_at=batch.now)
        self._remember(source)
        batch.touched.sources.add(source.id)
        return source

    def _remember(self, source: Source) -> None:
        self.sources[source.id] = source
        self.named[source.node, source.name, source.dp_rank] = source
        self.of_node.setdefault(source.node, []).append(source)

    # ----------------------------------------------------------------- effect
    def _apply(self, batch: Batch) -> None:
        rows = batch.touched
        if batch.work:
            batch.touched = self.memory.apply(batch.work)
            batch.touched.sources |= rows.sources
            batch.touched.keyspaces |= rows.keyspaces
            batch.touched.claimed |= rows.claimed
            telling.notes(self, batch)
            self.pictures.batch(batch.touched, self.memory.keyspaces)
        if batch.items:
            self.pictures.events(batch.items)
        for job, source, state, _, _ in batch.answers:
            if state == "digest" and source is not None:
                listing.digest(self, batch, job, source)
        self._answer(batch)
        for source in batch.sources.values():
            self._row(batch, source)
        telling.measure(batch)
        extras = [*self.nodes.statements(batch.now), *self.pictures.rows(batch.when)]
        extras += [*self.attempts.rows(batch.when), *self.admission.stale_hits.rows(batch.when)]
        extras += [*self.purges.rows(batch.now), *self.loads.rows()]
        if self.store.shard == 0:
            extras += self.dealer.rows(batch.now, batch.when)
        if extras or batch.touched:  # what is only counted does not make a commit by itself
            extras += self.days.rows(batch.when)
        if batch.touched or extras:
            self.purges.left(batch.touched.held, self.memory.keyspaces, self.registry.known)
            vacated = self.purges.vacated(self.memory)
            batch.prepared = self.store.prepare(batch.touched, extras, batch.now, vacated=vacated)
        self.pictures.committed()  # if the write fails, this memory and these pictures are dropped together

    def _answer(self, batch: Batch) -> None:
        """Whether a source is asked for its inventory is decided once a batch and said in each of its answers."""
        asks: dict[int, bool] = {}
        for _, source, _, verdict, _ in batch.answers:
            if source is not None and not asks.get(source.id):
                asks[source.id] = source.asks(batch.now, verdict=verdict)
        for job, source, state, verdict, rejected in batch.answers:
            if source is not None and state != "digest":
                answer: Answer = telling.answer(self, job, source, state, verdict, rejected, asks[source.id])
                batch.outcomes.append((job, answer))

    def _row(self, batch: Batch, source: Source) -> None:
        """The source's row says what the writer knows; it is written if position or state changed."""
        row, c = self.memory.sources[source.id], source.cursor
        moved = (row.boot, row.stream, row.seq) != (c.boot, c.stream, c.seq)
        changed = source.changed(batch.now)
        verified = row.last_verified_at != source.last_verified_at
        if row.gaps != source.gaps:
            self.days.gap(source.id, row.last_frame_at, batch.now, "frames-missing")
        if row.state == "lost" and changed:
            self.days.back(source.id, batch.now)
        if not (moved or changed or verified or row.gaps != source.gaps or row.can_list != source.can_list):
            return
        row.boot, row.stream, row.seq, row.old_boots = c.boot, c.stream, c.seq, c.old_boots
        (row.state, row.reason), row.since = source.shown, source.since
        row.last_verified_at, row.last_frame_at = source.last_verified_at, source.last_frame_at
        row.can_list, row.gaps = source.can_list, source.gaps
        batch.touched.sources.add(source.id)
        batch.states_changed |= changed


def _refused(job: Job) -> set[bytes]:
    """The namespaces whose blocks a heartbeat says were not taken."""
    entries = job.message.refused if isinstance(job.message, Heartbeat) else ()
    return {digest for entry in entries if (digest := digest_of(entry.get("ns"))) is not None}
