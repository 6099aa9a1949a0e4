"""Decides what survives a crash of the agent: which commands it took, the chain of receipts it signed, which fences it
heard, and what an erase that is not over has found so far.

SQLite with a write-ahead log, synchronous=FULL: a command is durable before anything is done for it, a receipt before
it is answered, a fence before it is acknowledged. Called by `executor`, `keys` and `erasing`. No secret and nothing of
a prompt is written here.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvcore.messages import Fence

_SCHEMA = """
CREATE TABLE IF NOT EXISTS step (
    step     TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,
    taken_at REAL NOT NULL,
    number   INTEGER UNIQUE,  -- place in the chain of receipts, set with the receipt
    receipt  BLOB,            -- the signed envelope, verbatim
    hash     TEXT             -- link for the next receipt
) STRICT;
CREATE TABLE IF NOT EXISTS fence (
    ns      BLOB PRIMARY KEY,
    min_gen TEXT NOT NULL     -- it reaches 2^63
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS found (
    step   TEXT NOT NULL,     -- one that has no receipt yet
    place  BLOB NOT NULL,     -- the object's name
    family TEXT NOT NULL,     -- what the step shares with those that continue it
    bytes  INTEGER NOT NULL,
    refs   BLOB NOT NULL,     -- 32 bytes for each block
    PRIMARY KEY (step, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS found_family ON found (family);
CREATE TABLE IF NOT EXISTS cleared (
    tier  TEXT NOT NULL,
    place BLOB NOT NULL,      -- the object's name
    ns    BLOB NOT NULL,
    gen   TEXT NOT NULL,
    grp   INTEGER NOT NULL,
    keys  BLOB NOT NULL,
    bytes INTEGER NOT NULL,   -- of a block
    at    REAL NOT NULL,
    PRIMARY KEY (tier, place)
) STRICT, WITHOUT ROWID;
"""
FIRST = "0" * 64
"""`prev` of a node's first receipt."""
REF_BYTES = 32
CLEARED_SECONDS = 30 * 86_400.0
"""How long what a return cleared waits for an order that names it."""


class JournalFull(Exception):
    """The journal could not be written. What was to be written down first was not done."""


class Cleared(NamedTuple):
    """An object that was fenced when it was found again. `keys` is packed, `block_bytes` of one block."""

    place: bytes
    ns: bytes
    gen: int
    group: int
    keys: bytes
    block_bytes: int


class Found(NamedTuple):
    """An object that a step has found to erase: its name, the bytes of its blocks, and their packed refs."""

    place: bytes
    size_bytes: int
    refs: bytes

    @property
    def blocks(self) -> int:
        """How many blocks."""
        return len(self.refs) // REF_BYTES


class Journal:
    """The node's commands, receipts and fences. Methods are safe from any thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.RLock()
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)
        path.chmod(0o600)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, durable when it ends.

        Raises:
            JournalFull: nothing of it is written.
        """
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:  # a full disk may have rolled it back already
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.OperationalError as e:
                raise JournalFull(str(e)) from None

    def take(self, step: str, kind: str, now: float) -> bytes | None:
        """The receipt of an earlier call of this step, else None; afterwards the step is durably taken."""
        with self._lock:
            known = self._db.execute("SELECT receipt FROM step WHERE step = ?", (step,)).fetchone()
            if known is None:
                with self._writing() as db:
                    db.execute("INSERT INTO step (step, kind, taken_at) VALUES (?, ?, ?)", (step, kind, now))
                return None
            return known[0]  # type: ignore[no-any-return]

    def head(self) -> tuple[int, str]:
        """Number and hash of the last receipt; (0, `FIRST`) before the first."""
        with self._lock:
            row = self._db.execute(
                "SELECT number, hash FROM step WHERE number IS NOT NULL ORDER BY number DESC LIMIT 1"
            )
            return row.fetchone() or (0, FIRST)

    def finish(self, step: str, receipt: bytes, number: int, link: str) -> None:
        """The step's receipt is durable, as number `number` of the chain; what it found stands in there now."""
        with self._writing() as db:
            db.execute(
                "UPDATE step SET receipt = ?, number = ?, hash = ? WHERE step = ? AND receipt IS NULL",
                (receipt, number, link, step),
            )
            db.execute("DELETE FROM found WHERE step = ?", (step,))

    def open_steps(self) -> list[str]:
        """Steps that were taken and have no receipt: their command will come again."""
        with self._lock:
            return [s for (s,) in self._db.execute("SELECT step FROM step WHERE receipt IS NULL ORDER BY taken_at")]

    # What an erase found

    def note(self, step: str, found: Iterable[Found], *, family: str = "") -> None:
        """Durably: these were found and are going to be erased. One that was noted before is the same."""
        rows = [(step, x.place, family, x.size_bytes, x.refs) for x in found]
        with self._writing() as db:
            db.executemany("INSERT OR IGNORE INTO found VALUES (?, ?, ?, ?, ?)", rows)

    def continues(self, step: str, family: str) -> None:
        """What other steps of the family have found and never had a receipt for is this step's now.

        A step is of one boot; when the agent was killed in it, its place is taken by another one.
        """
        with self._lock:
            others = self._db.execute("SELECT 1 FROM found WHERE family = ? AND step <> ?", (family, step)).fetchone()
        if others:
            with self._writing() as db:
                db.execute("UPDATE OR IGNORE found SET step = ? WHERE family = ?", (step, family))
                db.execute("DELETE FROM found WHERE family = ? AND step <> ?", (family, step))

    def found(self, step: str) -> list[Found]:
        """Everything the step has noted, also before the agent was killed."""
        with self._lock:
            rows = self._db.execute("SELECT place, bytes, refs FROM found WHERE step = ? ORDER BY place", (step,))
            return [Found(*row) for row in rows]

    # What a return cleared

    def note_cleared(self, tier: str, objects: Iterable[Cleared], now: float) -> None:
        """Durably: these were fenced when they were found again, and are going to be erased; what is old is forgotten.

        No order is at hand then; the one that comes for them names them in its receipt (`cleared`).
        """
        rows = [(tier, x.place, x.ns, str(x.gen), x.group, x.keys, x.block_bytes, now) for x in objects]
        with self._writing() as db:
            db.execute("DELETE FROM cleared WHERE at < ?", (now - CLEARED_SECONDS,))
            db.executemany("INSERT OR IGNORE INTO cleared VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def cleared(self, tier: str) -> list[Cleared]:
        """What was cleared on the tier and is in no receipt yet."""
        with self._lock:
            rows = self._db.execute("SELECT place, ns, gen, grp, keys, bytes FROM cleared WHERE tier = ?", (tier,))
            return [Cleared(place, ns, int(gen), *rest) for place, ns, gen, *rest in rows]

    def forget_cleared(self, tier: str, places: Iterable[bytes]) -> None:
        """These are noted for a step now."""
        with self._writing() as db:
            db.executemany("DELETE FROM cleared WHERE tier = ? AND place = ?", [(tier, place) for place in places])

    # Fences

    def keep(self, fences: Iterable[Fence]) -> None:
        """The fences are durable; none is ever lowered."""
        with self._writing() as db:
            for f in fences:
                known = db.execute("SELECT min_gen FROM fence WHERE ns = ?", (f.ns,)).fetchone()
                if known is None or int(known[0]) < f.min_gen:
                    db.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (f.ns, str(f.min_gen)))

    def fences(self) -> list[Fence]:
        """All that were kept."""
        with self._lock:
            rows = self._db.execute("SELECT ns, min_gen FROM fence").fetchall()
        return [Fence(ns=ns, min_gen=int(min_gen)) for ns, min_gen in rows]

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()
