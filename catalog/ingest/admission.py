"""Decides what each item of a frame becomes: steps for the writer's memory, a note for the pictures, or a refusal.

A fact is not refused because we dislike it: stale and unclaimed blocks are folded and counted. Only malformed items
are refused, one by one. Called by `folding`, in the order of the frames.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from catalog.index.steps import ADD, ADDS, CLEAR, DROP, MOVE, STATE, TAKEN
from catalog.ingest.keymap import Keyspace, Memory, Touched, Work
from catalog.ingest.move_book import MoveBook
from catalog.ingest.pictures import Pictures
from catalog.ingest.registry import Registry
from catalog.ingest.sources import Source
from catalog.ingest.stale import StaleHits
from catalog.ingest.usage_days import UsageDays
from kvcore.events import Add, Adds, Clear, Drop, Gap, Item, Load, Mark, Move, Refused, State, Use
from kvcore.keys import KEY_BYTES
from tenants.constants import PLATFORM_TENANT

UNCLAIMED_MOST = 20_000
"""Keyspaces that this writer makes for one node of what nobody registered: namespaces, generations that are not the
present one, unusual groups. Beyond that its items are refused."""
GROUPS_USUAL = 64


class Admission:
    """Items → steps of one writer. `begin` before each batch."""

    def __init__(
        self, memory: Memory, registry: Registry, pictures: Pictures, days: UsageDays, moves: MoveBook
    ) -> None:
        self.memory, self.registry, self.pictures, self.days = memory, registry, pictures, days
        self.moves = moves
        self.at: dict[tuple[bytes, int, int], Keyspace] = {}
        self.by_digest: dict[bytes, list[Keyspace]] = {}
        self.unclaimed: Counter[UUID] = Counter()
        self.stale_hits = StaleHits()
        self.touched = Touched()
        self.now = self.said_at = 0.0
        self.when: datetime
        for keyspace in memory.keyspaces.values():
            self._remember(keyspace)
            if not keyspace.claimed and (row := registry.known.get(keyspace.digest)) is not None:
                registry.claimed.append(row)

    def begin(self, touched: Touched, now: float, when: datetime) -> None:
        """Rows made from now on are noted in `touched`."""
        self.touched, self.now, self.when, self.said_at = touched, now, when, now

    # ---------------------------------------------------------------- items
    def admit(self, source: Source, item: Item, tag: int) -> Work | None:
        """The step of an item, None if it says nothing about blocks.

        Raises:
            Refused: the item has no effect.
        """
        match item:
            case Add():
                self._foreign(source, item)
                keyspace = self._sized(source, item)
                why = TAKEN if item.step is not None else ""
                return Work(ADD, source.id, item.tier, keyspace.id, item.keys, item.parent, reason=why, tag=tag)
            case Adds():
                keyspace = self._sized(source, item)
                return Work(ADDS, source.id, item.tier, keyspace.id, item.keys, parents=item.parents, tag=tag)
            case Move():
                keyspace = self.keyspace(source, item.ns, item.gen, item.group)
                return Work(MOVE, source.id, item.from_, keyspace.id, item.keys, to=item.to, tag=tag)
            case Drop():
                keyspace = self.keyspace(source, item.ns, item.gen, item.group)
                return Work(DROP, source.id, item.tier, keyspace.id, item.keys, reason=item.reason, tag=tag)
            case State():
                keyspace = self.keyspace(source, item.ns, item.gen, item.group)
                return Work(STATE, source.id, item.tier, keyspace.id, item.keys, state=item.state, tag=tag)
            case Clear():
                return self._clear(source, item, tag)
            case _:
                self._told(source, item)
                return None

    def _told(self, source: Source, item: Use | Load | Mark | Gap) -> None:
        match item:
            case Use():
                keyspace = self.keyspace(source, item.ns, item.gen, 0)
                self.pictures.use(source.id, keyspace.id, item, self.when, self._family(keyspace, item.head))
                self.stale_hits.use(keyspace, item, self.said_at)
                self._count(keyspace, item)
            case Load():
                self.pictures.load(source.id, item, self.when)
            case Mark():
                self.pictures.mark(source.id, item.tier, item, self.when)
            case Gap():
                source.doubt(f"engine-{item.reason}", self.now)
                self.days.gap(source.id, item.since, self.now, "engine-events-lost")

    def _count(self, keyspace: Keyspace, item: Use) -> None:
        """The request counts for its tenant; bytes as of its blocks, or as registered where none was told yet."""
        size, tokens = keyspace.block_bytes, keyspace.block_tokens
        row = self.registry.known.get(keyspace.digest)
        if not (size and tokens) and row is not None and row.group_bytes:
            size, tokens = row.group_bytes * row.block_tokens, row.block_tokens
        self.days.use(keyspace.tenant_id, item, self.when, bytes_per_block=size, block_tokens=tokens)

    def _family(self, keyspace: Keyspace, head: bytes | None) -> int | None:
        """The conversation tree that the last hit block belongs to, None where nothing was hit or it is not known."""
        if head is None:
            return None
        segment = int(self.memory.known(keyspace.id, head)[0, 0])
        return int(self.memory.seg_fam[segment]) if segment >= 0 else None

    def _clear(self, source: Source, item: Clear, tag: int) -> Work | None:
        if not item.tiers:  # scope unknown: nothing is deleted, everything is to be listed
            source.doubt("clear", self.now)
            return None
        if item.ns is None and item.gen_upto is None:
            if {tier for s, tier in self.memory.owner_of if s == source.id} <= set(item.tiers):
                source.verified(self.now)
            return Work(CLEAR, source.id, tiers=item.tiers, tag=tag)
        among = self.by_digest.get(item.ns, []) if item.ns is not None else self.memory.keyspaces.values()
        upto = item.gen_upto
        chosen = tuple(k.id for k in among if upto is None or k.generation <= upto)
        return Work(CLEAR, source.id, tiers=item.tiers, keyspaces=chosen, tag=tag) if chosen else None

    def _foreign(self, source: Source, item: Add) -> None:
        """Blocks that were taken from another owner, inside an open step or not at all.

        Raises:
            Refused: step-unknown or foreign-owner.
        """
        if item.step in self.moves.open:
            self.moves.admit(source, item)
        elif item.from_owner is not None:
            raise Refused("foreign-owner", f"owner {item.from_owner}")
        elif item.step is not None:
            raise Refused("step-unknown", str(item.step)[:64])

    def _sized(self, source: Source, item: Add | Adds) -> Keyspace:
        """The keyspace, if the item's block is of the size that was registered, or first reported."""
        row = self.registry.known.get(item.ns)
        if row is not None and row.block_tokens and item.tokens != row.block_tokens:
            raise Refused("block-size-mismatch", f"{item.tokens} tokens, registered {row.block_tokens}")
        if row is not None and row.group_bytes and item.group == 0 and item.bytes:
            registered = row.group_bytes * item.tokens
            if item.bytes != registered:
                raise Refused("block-size-mismatch", f"{item.bytes} bytes, registered {registered}")
        keyspace = self.keyspace(source, item.ns, item.gen, item.group, item.tokens, item.bytes)
        if keyspace.block_tokens and item.tokens != keyspace.block_tokens:
            raise Refused("block-size-mismatch", f"{item.tokens} tokens, elsewhere {keyspace.block_tokens}")
        if keyspace.block_bytes and item.bytes != keyspace.block_bytes:
            raise Refused("block-size-mismatch", f"{item.bytes} bytes, elsewhere {keyspace.block_bytes}")
        return keyspace

    # ------------------------------------------------------------ keyspaces
    def keyspace(
        self, source: Source, digest: bytes, generation: int, group: int, tokens: int = 0, size: int = 0
    ) -> Keyspace:
        """The number of (digest, generation, group); an unregistered one is the platform's until it is claimed."""
        got = self.at.get((digest, generation, group))
        if got is not None:
            if size and not got.block_bytes:  # it was made by an item without blocks
                got.block_tokens, got.block_bytes = tokens, size
                self.touched.keyspaces.add(got.id)
            return got
        row = self.registry.known.get(digest)
        if row is None or generation != row.generation or group >= GROUPS_USUAL:
            if self.unclaimed[source.node] >= UNCLAIMED_MOST:
                raise Refused("too-many-namespaces", f"more than {UNCLAIMED_MOST} that nobody registered")
            self.unclaimed[source.node] += 1
        made = self.memory.keyspace(
            digest,
            generation,
            group,
            self.touched,
            tenant_id=row.tenant_id if row else PLATFORM_TENANT,
            namespace_id=row.id if row else None,
            block_tokens=tokens,
            block_bytes=size,
            claimed=row is not None,
        )
        self._remember(made)
        return made

    def claim(self) -> int:
        """Unclaimed keyspaces of namespaces registered since belong to their tenants; answers how many they were."""
        count = 0
        while self.registry.claimed:
            row = self.registry.claimed.pop()
            for keyspace in self.by_digest.get(row.digest, ()):
                if keyspace.claimed:
                    continue
                count += 1
                self.memory.keyspace(
                    keyspace.digest,
                    keyspace.generation,
                    keyspace.group,
                    self.touched,
                    tenant_id=row.tenant_id,
                    namespace_id=row.id,
                    claimed=True,
                )
                self.name(keyspace)
        return count

    def stale(self, item: Item) -> bool:
        """Whether the item's blocks are of a fenced generation: they are there, and never routable."""
        if not isinstance(item, Add | Adds | Move | State):
            return False
        row = self.registry.known.get(item.ns)
        return row is not None and item.gen < row.min_gen

    def name(self, keyspace: Keyspace) -> None:
        """The pictures know whose the keyspace is and under which model it stands."""
        row = self.registry.known.get(keyspace.digest)
        group = f"{row.model}@{row.model_epoch}" if row is not None else ""
        self.pictures.keyspace(keyspace.id, tenant_id=keyspace.tenant_id, group=group)

    def _remember(self, keyspace: Keyspace) -> None:
        self.at[keyspace.digest, keyspace.generation, keyspace.group] = keyspace
        self.by_digest.setdefault(keyspace.digest, []).append(keyspace)
        self.name(keyspace)


def digests(items: Iterable[Item]) -> set[bytes]:
    """The namespaces the items speak of."""
    return {i.ns for i in items if not isinstance(i, Load | Mark | Gap) and i.ns is not None}


def keys_of(item: Item) -> int:
    """How many keys the item carries."""
    return len(item.keys) // KEY_BYTES if isinstance(item, Add | Adds | Move | Drop | State) else 0
