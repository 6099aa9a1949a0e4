"""Decides what survives a crash of the agent: which commands it took, and the chain of receipts it signed.

SQLite with a write-ahead log, synchronous=FULL: a command is durable before anything is done for it, a receipt before
it is answered. Called by `executor` only. No secret and nothing of a prompt is written here.
"""

import sqlite3
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS step (
    step     TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,
    taken_at REAL NOT NULL,
    number   INTEGER UNIQUE,  -- place in the chain of receipts, set with the receipt
    receipt  BLOB,            -- the signed envelope, verbatim
    hash     TEXT             -- link for the next receipt
) STRICT;
"""
FIRST = "0" * 64
"""`prev` of a node's first receipt."""


class Journal:
    """The node's commands and receipts. One connection, used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)
        path.chmod(0o600)

    def take(self, step: str, kind: str, now: float) -> bytes | None:
        """The receipt of an earlier call of this step, else None; afterwards the step is durably taken."""
        self._db.execute("INSERT OR IGNORE INTO step (step, kind, taken_at) VALUES (?, ?, ?)", (step, kind, now))
        (receipt,) = self._db.execute("SELECT receipt FROM step WHERE step = ?", (step,)).fetchone()
        return receipt  # type: ignore[no-any-return]

    def head(self) -> tuple[int, str]:
        """Number and hash of the last receipt; (0, `FIRST`) before the first."""
        row = self._db.execute("SELECT number, hash FROM step WHERE number IS NOT NULL ORDER BY number DESC LIMIT 1")
        return row.fetchone() or (0, FIRST)

    def finish(self, step: str, receipt: bytes, number: int, link: str) -> None:
        """The step's receipt is durable, as number `number` of the chain."""
        self._db.execute(
            "UPDATE step SET receipt = ?, number = ?, hash = ? WHERE step = ? AND receipt IS NULL",
            (receipt, number, link, step),
        )

    def open_steps(self) -> list[str]:
        """Steps that were taken and have no receipt: their command will come again."""
        return [s for (s,) in self._db.execute("SELECT step FROM step WHERE receipt IS NULL ORDER BY taken_at")]

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
