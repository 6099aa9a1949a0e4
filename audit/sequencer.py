"""Decides how events become leaves: one process at a time takes them out of the queue and appends them to the tree.

Lock, queue, leaves, tiles and tree are of one connection, so who lost the lock cannot commit. A batch is one
transaction: an event is in the queue or in the log, never in both or neither. The queue is read, never a number that
was reached: ids are not given in the order of commits.
Run by `manage.py sequencer`; any process may be killed at any moment.
"""

import contextlib
import logging
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from audit import tiles
from audit.tree import LogTorn, frontier_rebuilt, node_reader, nodes
from kvconsole.infra import outage
from kvcore.leaf import LeafError, leaf
from kvcore.proofs import Frontier, leaf_hash

BATCH = 1000
IDLE_SECONDS = 0.03
"""How often an empty queue is looked at. A NOTIFY of every event would have all commits wait for one lock."""
FEW, GATHER_SECONDS = 10, 0.15
"""After a batch with more leaves than this more are waited for so long: to seal thirty costs nearly as much as to seal
two hundred, and takes it from those who write."""
STANDBY_SECONDS = 0.5
"""How often who does not lead tries to."""
MONTHS_AHEAD = 3
MONTHS_SECONDS, AGAIN_SECONDS = 3600.0, 60.0
LOCK = 0x4B564C47_00000001
"""Advisory lock of the one that leads: `KVLG`, sequencer."""
_COLUMNS = (
    "id, event_type, time_us, uuid_send(event_id), tenant_ref, actor_ref, outcome, flags, producer_id, producer_seq,"
    " body_hash, pii_commit"
)
_ROW = struct.Struct(">hiqiqiqi32si148s")
_HEAD, _TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"

_log = logging.getLogger("kvc.sequencer")


class Sealed(NamedTuple):
    """What one batch did."""

    leaves: int
    size: int
    lost: tuple[int, ...] = ()
    """Events that were in the queue and nowhere else, or that no leaf can hold: the gap finder names them. And those
    that somebody put there again."""


class Sequencer:
    """The one that appends, on one connection; `lead` before `seal`."""

    def __init__(self, dsn: str, *, batch: int = BATCH) -> None:
        self.dsn, self.batch = dsn, batch
        self.rebuild = threading.Event()
        """Set by who saw that the tree is not that of its leaves: the next batch makes it from them."""
        self._connection: psycopg.Connection[Any] | None = None
        self._tail: tuple[int, list[bytes]] = (0, [])
        self._epoch = 1
        self._doubled = False
        """Whether the last batch had an event that is a leaf already: the next one is looked through for such."""

    def lead(self) -> bool:
        """Whether this process holds the lock now, and so is the one.

        Raises:
            psycopg.OperationalError: the database is away.
        """
        if self._connection is not None:
            return True
        options = "-c synchronous_commit=on -c statement_timeout=60s -c lock_timeout=10s"
        connection = psycopg.connect(self.dsn, autocommit=True, connect_timeout=3, options=options)
        outage.connected()
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            connection.execute(
                "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 2"
            )
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
            if row is None or not row[0]:
                return False
            stack.pop_all()
        self._connection = connection
        return True

    @property
    def leads(self) -> bool:
        """Whether it held the lock when it last used its connection."""
        return self._connection is not None

    def close(self) -> None:
        """The lock is not held by this process."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
        self._tail = (0, [])

    def waiting(self) -> bool:
        """Whether the queue has anything."""
        return self._held.execute("SELECT FROM audit_pending LIMIT 1").fetchone() is not None

    def seal(self) -> Sealed:
        """Up to one batch of events are leaves and no longer in the queue; durable when this returns.

        Raises:
            psycopg.Error: nothing was done, or, where the connection broke in the commit, all of it.
            LogTorn: parts of the tree are missing and it cannot grow.
        """
        try:
            return self._sealed(self._held)
        except psycopg.errors.UniqueViolation:
            self._doubled = True
            raise

    def _sealed(self, c: psycopg.Connection[Any]) -> Sealed:
        with c.transaction():
            query = "SELECT size, frontier, root, epoch FROM audit_tree FOR UPDATE"
            row = c.execute(query, binary=True).fetchone()
            assert row is not None
            frontier = self._frontier(*row)
            old, taken = frontier.size, self._taken(c)
            again = self._leaves_already(c, taken)
            made, lost = _leaves(self._events(c, taken), old, set(taken) - again)
            if made:
                self._append(c, frontier, made)
        if made:
            self._remember(old, [hash_ for _, _, hash_, _ in made])
        self._doubled = False
        return Sealed(len(made), frontier.size, (*lost, *sorted(event for event, _ in again)))

    def months_ahead(self, now: datetime) -> None:
        """The partitions of this month and the next ones are there.

        Raises:
            psycopg.errors.LockNotAvailable: somebody reads or copies all of the trail now; sealing must not wait for
                that.
        """
        for ahead in range(MONTHS_AHEAD + 1):
            with self._held.transaction():
                self._held.execute("SET LOCAL lock_timeout = '300ms'")
                self._held.execute("SELECT audit_partition(%s::date)", ((now + timedelta(days=30 * ahead)).date(),))

    # --- inside ---

    @property
    def _held(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise psycopg.OperationalError("the sequencer's lock is not held")
        return self._connection

    def _frontier(self, size: int, packed: bytes, root: bytes, epoch: int) -> Frontier:
        """Where the tree goes on: as it was left, or made anew from the leaves where that cannot be right."""
        if epoch != self._epoch:  # another log has begun: what is remembered is of the one before
            self._epoch, self._tail = epoch, (0, [])
        if not self.rebuild.is_set():
            with contextlib.suppress(ValueError):
                found = Frontier.unpack(bytes(packed), size)
                if found.root() == root:
                    return found
        self.rebuild.clear()
        _log.error("the tree of %d leaves is not that of its leaves; it goes on from them", size)
        return frontier_rebuilt(size, node_reader(self._ask))

    def _ask(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        return self._held.execute(statement.encode(), parameters).fetchall()

    def _taken(self, c: psycopg.Connection[Any]) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = c.execute(
            "DELETE FROM audit_pending WHERE ctid = ANY (ARRAY(SELECT ctid FROM audit_pending ORDER BY event LIMIT %s))"
            " RETURNING event, time_us",
            (self.batch,),
            binary=True,
        ).fetchall()
        return taken

    def _leaves_already(self, c: psycopg.Connection[Any], taken: list[tuple[int, int]]) -> set[tuple[int, int]]:
        """Of these, those that somebody put into the queue again; asked only once a batch failed by them."""
        if not self._doubled:
            return set()
        query = "SELECT event, time_us FROM audit_leaf WHERE event = ANY(%s)"
        return set(c.execute(query, ([id_ for id_, _ in taken],), binary=True).fetchall()) & set(taken)

    @staticmethod
    def _events(c: psycopg.Connection[Any], taken: list[tuple[int, int]]) -> list[Any]:
        if not taken:
            return []
        times = [time_us for _, time_us in taken]
        # The months are named, so that the others are not looked at.
        return c.execute(
            f"SELECT {_COLUMNS} FROM audit_event WHERE id = ANY(%s) AND time_us BETWEEN %s AND %s ORDER BY id".encode(),  # noqa: S608
            ([id_ for id_, _ in taken], min(times), max(times)),
            binary=True,
        ).fetchall()

    def _append(self, c: psycopg.Connection[Any], frontier: Frontier, made: list["_Made"]) -> None:
        old = frontier.size
        hashes = [hash_ for _, _, hash_, _ in made]
        for hash_ in hashes:
            frontier.append(hash_)
        rows = [
            _ROW.pack(5, 8, old + at, 8, event, 8, time_us, 32, hash_, 148, data)
            for at, (event, time_us, hash_, data) in enumerate(made)
        ]
        with c.cursor().copy("COPY audit_leaf (idx, event, time_us, hash, data) FROM STDIN (FORMAT binary)") as copy:
            copy.write(_HEAD + b"".join(rows) + _TAIL)
        for tile in self._tiles(old, hashes):
            c.execute("INSERT INTO audit_tile (level, tile, hashes, root) VALUES (%s, %s, %s, %s)", tile)
        c.execute(
            "UPDATE audit_tree SET size = %s, frontier = %s, root = %s, at = clock_timestamp()",
            (frontier.size, frontier.pack(), frontier.root()),
        )

    def _tiles(self, old: int, hashes: list[bytes]) -> list[tiles.Tile]:
        """What is complete now. Where somebody took leaves away there are fewer; the log grows all the same."""
        try:
            return tiles.completed(old, hashes, self._before, self._roots)
        except LogTorn as e:
            _log.error("no tiles from leaf %d on: %s", old, e)
            return []

    def _before(self, first: int, end: int) -> list[bytes]:
        at, kept = self._tail
        if at <= first and at + len(kept) == end:
            return kept[first - at :]
        return nodes(self._ask, 0, first, end)

    def _roots(self, level: int) -> tiles.Hashes:
        return lambda first, end: nodes(self._ask, level, first, end)

    def _remember(self, old: int, hashes: list[bytes]) -> None:
        """Hashes of the tile that is not complete, so that they are not read again."""
        end = old + len(hashes)
        start = end // tiles.WIDE * tiles.WIDE
        if start >= old:
            self._tail = (start, hashes[start - old :])
            return
        at, kept = self._tail
        self._tail = (start, kept + hashes) if at == start and at + len(kept) == old else (end, [])


_Made = tuple[int, int, bytes, bytes]
"""Event, time_us, hash and bytes of a leaf."""


def _leaves(events: list[Any], first: int, wanted: set[tuple[int, int]]) -> tuple[list[_Made], tuple[int, ...]]:
    """The leaves of these events from index `first` on, of those that are wanted, and which of these have none.

    An event is its number at its time: another one may have the same number.
    """
    made: list[_Made] = []
    index = first
    for id_, kind, time_us, event_id, tenant, actor, outcome, flags, producer, seq, body, pii in events:
        if (id_, time_us) not in wanted:
            continue
        with contextlib.suppress(LeafError):
            data = leaf(
                event_type=kind, index=index, time_us=time_us, event_id=event_id, tenant_ref=tenant,
                actor_ref=actor, outcome=outcome, flags=flags, producer_id=producer, producer_seq=seq, body_hash=body,
                pii_commit=pii,
            )  # fmt: skip
            made.append((id_, time_us, leaf_hash(data), data))
            index += 1
            wanted.discard((id_, time_us))
    return made, tuple(sorted(id_ for id_, _ in wanted))


class Loop:
    """Seals until told to stop, whatever becomes of the database; `told` hears the size after each batch."""

    def __init__(self, sequencer: Sequencer, told: Callable[[int], None] = lambda size: None) -> None:
        self.sequencer, self.told = sequencer, told
        self.stopping = threading.Event()
        self._months_due = 0.0

    def run(self) -> None:
        """Returns after `stopping`; the batch at hand is finished, and the lock is free."""
        try:
            while not self.stopping.is_set():
                self.stopping.wait(self._turn())
        finally:
            self.sequencer.close()

    def _turn(self) -> float:
        """One look; seconds until the next."""
        s = self.sequencer
        try:
            if not s.lead():
                return STANDBY_SECONDS
            if time.monotonic() >= self._months_due:
                self._months_due = time.monotonic() + self._months()
            if not s.waiting():
                return IDLE_SECONDS
            sealed = s.seal()
        except (psycopg.Error, LogTorn, OSError):
            _log.exception("nothing was sealed; trying again")
            s.close()
            return STANDBY_SECONDS
        if sealed.lost:
            _log.error("%d events were in the queue and not in the trail: %s", len(sealed.lost), sealed.lost[:20])
        if sealed.leaves:
            self.told(sealed.size)
        if sealed.leaves >= s.batch:
            return 0.0
        return GATHER_SECONDS if sealed.leaves > FEW else IDLE_SECONDS

    def _months(self) -> float:
        """Months are made ahead; seconds until the next look. One that cannot be made now stops nothing."""
        try:
            self.sequencer.months_ahead(datetime.now(UTC))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
            _log.warning("the months to come are made later: somebody holds the trail")
            return AGAIN_SECONDS
        return MONTHS_SECONDS
