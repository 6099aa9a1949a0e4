"""The store equals the reference fold in random histories, and every seeded fault is caught by them."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from catalog import store_rows
from catalog.index.memory import Memory
from catalog.index.placements import Placements
from catalog.store import Deposed, Store
from kvcore import fold
from tests.catalog import oracle
from tests.catalog.stored import module_database_, store_database_, wipe

__all__ = ["module_database_", "store_database_"]

MODES = ("plain", "writer", "kill")
Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def dsn(store_database: Any) -> Iterator[str]:
    """Connection string of the writer's role in a database of this test alone."""
    return store_database.dsn("ingest")


@pytest.mark.parametrize("mode", MODES)
def test_histories(postgres: Any, dsn: str, mode: str) -> None:
    for seed in range(3):
        wipe(dsn)
        assert oracle.run(postgres, dsn, seed, 25, mode)["facts"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(36))
def test_long_histories(postgres: Any, dsn: str, seed: int) -> None:
    assert oracle.run(postgres, dsn, 1000 + seed, 80, MODES[seed % 3])["facts"]


# ----------------------------------------------------------- seeded faults


def dead_places_taken_as_live(patch: pytest.MonkeyPatch) -> None:
    real = Memory.bury

    def bury(self: Memory, segs: Any) -> None:
        lengths = {s: int(self.seg_n[s]) for s in segs}
        real(self, lengths)
        for s, n in lengths.items():
            self.seg_n[s] = n

    patch.setattr(Memory, "bury", bury)


def duplicates_folded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oracle.Road, "folds", (fold.Next, fold.Reset, fold.Duplicate))


def gaps_let_through(patch: pytest.MonkeyPatch) -> None:
    real = oracle.Road.judge

    def judge(self: oracle.Road, cursor: fold.Cursor, frame: dict[str, Any]) -> tuple[fold.Cursor, fold.Verdict]:
        after, verdict = real(self, cursor, frame)
        if isinstance(verdict, fold.Gap):
            return fold.Cursor(frame["boot"], frame["stream"], frame["seq"], cursor.old_boots), fold.Next()
        return after, verdict

    patch.setattr(oracle.Road, "judge", judge)


def redo_one_batch_late(patch: pytest.MonkeyPatch) -> None:
    real = Store._oldest
    patch.setattr(Store, "_oldest", lambda self: [(at + 1, since) for at, since in real(self)])


def no_fence(patch: pytest.MonkeyPatch) -> None:
    guard = store_rows.SQL["guard"].replace("writer = %b AND seq = %b", "writer >= %b AND seq >= %b - 1000000")
    patch.setitem(store_rows.SQL, "guard", guard)


def wrong_key_in_a_partial_digest(patch: pytest.MonkeyPatch) -> None:
    real = Placements._sums
    patch.setattr(Placements, "_sums", lambda self, i, n, part: real(self, i, n, part & (part - 1) or part))


def landed_transaction_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "_landed", lambda self, seq: (self.close(), self._connect())[-1])


def orphans_not_adopted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Memory, "adopt", lambda self: [])


def inventory_only_adds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oracle, "replacement", lambda source, steps: steps)


def states_outlive_their_block(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placements, "_forget_states", lambda *_: None)


def retired_owners_come_back(patch: pytest.MonkeyPatch) -> None:
    sql = store_rows.SQL["owner_merge"].replace("retired = excluded.retired", "born = excluded.born")
    patch.setitem(store_rows.SQL, "owner_merge", sql)


def emptied_rows_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_rows, "placements_gone", lambda memory, gone: ("SELECT 1", ()))


FAULTS: tuple[Fault, ...] = (
    dead_places_taken_as_live,
    duplicates_folded,
    gaps_let_through,
    redo_one_batch_late,
    no_fence,
    wrong_key_in_a_partial_digest,
    landed_transaction_sent_again,
    orphans_not_adopted,
    inventory_only_adds,
    states_outlive_their_block,
    retired_owners_come_back,
    emptied_rows_stay,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_seeded_faults_are_caught(postgres: Any, dsn: str, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """A history fails within a few seeds; without the fault the same seeds pass (`test_histories`)."""
    fault(monkeypatch)
    for seed in range(6):
        wipe(dsn)
        try:
            oracle.run(postgres, dsn, seed, 25, "writer")
        except (AssertionError, Deposed, psycopg.Error, IndexError, KeyError, OverflowError):
            return
    pytest.fail(f"{fault.__name__} was not caught")
