import sqlite3

from nodeagent.journal import FIRST, Journal


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
