"""Decides what a witness remembers: the last checkpoint it cosigned of each log, compared and kept in one step."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kvcore.notes import Checkpoint

_TABLE = """
CREATE TABLE IF NOT EXISTS cosigned (
  origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, note TEXT NOT NULL, at INTEGER NOT NULL
) STRICT
"""
No = TypeVar("No")


class Store:
    """An SQLite file. Several processes may have it: each compares and writes under its lock."""

    def __init__(self, path: Path) -> None:
        """Raises sqlite3.Error: it is none, or is damaged."""
        self.connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA synchronous = EXTRA")  # also the directory, when a journal goes
        if self.connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            self.connection.close()
            raise sqlite3.DatabaseError("the witness's file is damaged")
        self.connection.execute(_TABLE)
        path.chmod(0o600)

    def close(self) -> None:
        """The file is not used any more."""
        self.connection.close()

    def advance(
        self, checkpoint: Checkpoint, note: str, *, at: int, judge: Callable[[Checkpoint | None], No | None]
    ) -> No | None:
        """The checkpoint is the last one of its log, on the disk, if `judge` has nothing against that.

        Args:
            checkpoint, note: what is to be cosigned.
            at: seconds since 1970.
            judge: given what was cosigned last, says why not, or None.

        Returns:
            What `judge` said.

        Raises:
            sqlite3.Error: nothing was written.
        """
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        try:
            row = run("SELECT origin, size, root FROM cosigned WHERE origin = ?", [checkpoint.origin]).fetchone()
            refused = judge(Checkpoint(*row) if row else None)
            if refused is None:
                run(
                    "INSERT OR REPLACE INTO cosigned VALUES (?, ?, ?, ?, ?)",
                    [checkpoint.origin, checkpoint.size, checkpoint.root, note, at],
                )
            run("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                run("ROLLBACK")
            raise
        return refused

    def last(self, origin: str) -> str | None:
        """The newest checkpoint of a log that was cosigned, as a note."""
        row = self.connection.execute("SELECT note FROM cosigned WHERE origin = ?", [origin]).fetchone()
        return str(row[0]) if row else None
