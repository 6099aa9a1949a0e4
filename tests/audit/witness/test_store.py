"""What a witness remembers: compared and kept in one step, whole or not at all."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from audit.witness.store import Store
from kvcore.notes import Checkpoint


def head(size, root=b"r" * 32, origin="o"):
    return Checkpoint(origin, size, root)


def test_the_first_is_compared_with_nothing_and_the_next_with_it(tmp_path):
    store, seen = Store(tmp_path / "w"), []
    for size in (3, 9):
        assert store.advance(head(size), f"note {size}", at=1, judge=seen.append) is None
    assert store.advance(head(1, origin="p"), "note p", at=1, judge=seen.append) is None
    assert seen == [None, head(3), None]
    assert (store.last("o"), store.last("p"), store.last("q")) == ("note 9", "note p", None)
    store.close()
    assert stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o600
    again = Store(tmp_path / "w")
    assert again.last("o") == "note 9"
    again.close()


def test_what_is_refused_is_not_kept(tmp_path):
    store = Store(tmp_path / "w")
    store.advance(head(3), "note", at=1, judge=lambda last: None)
    assert store.advance(head(9), "bad", at=1, judge=lambda last: "no") == "no"
    with pytest.raises(ZeroDivisionError):
        store.advance(head(9), "bad", at=1, judge=lambda last: 1 // 0)
    assert store.last("o") == "note"
    store.close()


def test_two_processes_never_follow_the_same_head_twice(tmp_path):
    """Each of many tries, from files opened by themselves, follows what is there: none is lost, none doubled."""

    def step(store, was):
        """None where the head after `was` was kept, else the size that is there."""
        there = lambda last: last.size if last else 0  # noqa: E731
        return store.advance(head(was + 1), "n", at=1, judge=lambda last: None if there(last) == was else there(last))

    def follow(_):
        store, done, was = Store(tmp_path / "w"), 0, 0
        while done < 10:
            size = step(store, was)
            done, was = (done + 1, was + 1) if size is None else (done, size)
        store.close()
        return done

    Store(tmp_path / "w").close()
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(follow, range(2))) == 20
    with sqlite3.connect(tmp_path / "w") as connection:
        assert connection.execute("SELECT size FROM cosigned").fetchall() == [(20,)]
    connection.close()


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        Store(tmp_path / "w")
