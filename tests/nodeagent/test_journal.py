import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvcore.messages import Fence
from nodeagent.journal import CLEARED_SECONDS, FIRST, Cleared, Found, Journal, JournalFull


def test_a_step_is_taken_once_and_its_receipt_never_replaced(tmp_path):
    path = tmp_path / "d" / "journal.sqlite3"
    journal = Journal(path)
    assert journal.take("x", "ping", 1.0) is None
    assert journal.take("x", "ping", 2.0) is None
    assert journal.open_steps() == ["x"]
    assert journal.head() == (0, FIRST)
    journal.finish("x", b"r", 1, "link")
    journal.finish("x", b"other", 2, "z")
    assert journal.take("x", "ping", 3.0) == b"r"
    assert journal.head() == (1, "link")
    assert journal.open_steps() == []
    journal.close()


def test_it_is_private_written_ahead_and_outlives_the_process(tmp_path):
    path = tmp_path / "journal.sqlite3"
    journal = Journal(path)
    journal.take("x", "ping", 1.0)
    assert path.stat().st_mode & 0o777 == 0o600
    db = sqlite3.connect(path)  # what another process would see, without a close
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("SELECT step, receipt FROM step").fetchall() == [("x", None)]
    db.close()
    journal.close()
    again = Journal(path)
    assert again.open_steps() == ["x"]
    again.close()


def test_fences_only_grow_and_outlive_the_process(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.keep([Fence(ns=b"a" * 32, min_gen=3), Fence(ns=b"b" * 32, min_gen=2**63)])
    journal.keep([Fence(ns=b"a" * 32, min_gen=2)])
    journal.close()
    again = Journal(tmp_path / "j")
    assert {f.ns[:1]: f.min_gen for f in again.fences()} == {b"a": 3, b"b": 2**63}
    again.keep([Fence(ns=b"a" * 32, min_gen=4)])
    assert {f.ns[:1]: f.min_gen for f in again.fences()} == {b"a": 4, b"b": 2**63}
    again.close()


def test_what_a_step_found_is_kept_until_its_receipt_and_counts_once(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.take("s", "erase", 1.0)
    journal.note("s", [Found(b"o1", 10, b"r" * 64), Found(b"o2", 5, b"q" * 32)])
    journal.note("other", [Found(b"o1", 7, b"")])
    journal.close()
    journal = Journal(tmp_path / "j")
    journal.note("s", [Found(b"o1", 10, b"r" * 64), Found(b"o3", 1, b"")])  # the same after a kill
    assert [(x.place, x.size_bytes, x.blocks) for x in journal.found("s")] == [
        (b"o1", 10, 2),
        (b"o2", 5, 1),
        (b"o3", 1, 0),
    ]
    journal.finish("s", b"receipt", 1, "link")
    assert journal.found("s") == []
    assert len(journal.found("other")) == 1
    journal.close()


def test_a_step_that_continues_another_has_what_that_one_found(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.note("old", [Found(b"o1", 10, b"r" * 32), Found(b"o2", 5, b"q" * 32)], family="erase op ssd")
    journal.note("other", [Found(b"o9", 1, b"")], family="erase op remote")
    journal.note("new", [Found(b"o2", 5, b"q" * 32)], family="erase op ssd")
    journal.continues("new", "erase op ssd")
    assert [x.place for x in journal.found("new")] == [b"o1", b"o2"]
    assert journal.found("old") == []
    assert len(journal.found("other")) == 1
    journal.close()


def test_what_a_return_cleared_waits_for_its_order_and_not_for_ever(tmp_path):
    journal = Journal(tmp_path / "j")
    one, two = (Cleared(name, bytes(32), 2**62, 1, bytes(64), 1024) for name in (b"o1", b"o2"))
    journal.note_cleared("ssd", [one], 1000.0)
    journal.note_cleared("ssd", [one, two], 2000.0)
    assert journal.cleared("ssd") == [one, two]
    assert journal.cleared("remote") == []
    journal.forget_cleared("ssd", [b"o2"])
    journal.note_cleared("remote", [two], 1000.0 + CLEARED_SECONDS + 1)
    assert (journal.cleared("ssd"), journal.cleared("remote")) == ([], [two])
    journal.close()


def test_on_a_full_disk_nothing_is_half_written(tmp_path):
    journal = Journal(tmp_path / "j")
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count={pages + 2}")
    big = [Found(bytes([i]), 1, bytes(3000)) for i in range(20)]
    with pytest.raises(JournalFull):
        journal.note("s", big)
    assert journal.found("s") == []
    fences = [Fence(ns=i.to_bytes(32, "big"), min_gen=1) for i in range(2000)]
    with pytest.raises(JournalFull):
        journal.keep(fences)
    assert journal.fences() == []
    assert journal.take("x", "ping", 1.0) is None  # what is small still fits
    journal.close()


def test_it_may_be_used_from_several_threads(tmp_path):
    journal = Journal(tmp_path / "j")

    def work(n):
        journal.take(f"s{n}", "ping", 1.0)
        journal.keep([Fence(ns=bytes([n]) * 32, min_gen=n + 1)])
        journal.note(f"s{n}", [Found(b"o", 1, bytes(32))])
        journal.open_steps()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert len(journal.open_steps()) == len(journal.fences()) == 24
    journal.close()
