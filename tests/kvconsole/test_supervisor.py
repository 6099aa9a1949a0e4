"""Children are kept running, told apart, and ended in order."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvconsole import reaper, supervisor
from kvconsole.supervisor import Child, Console, Supervisor

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def until(true: Callable[[], object], seconds: float = 8.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(true())


class Lines(Console):
    """Keeps what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, name: str, line: str) -> None:
        self.lines.append(f"{name}: {line}")


@pytest.fixture
def lines() -> Lines:
    return Lines()


def child(name: str, command: list[str], lines: Lines, tmp_path: Path) -> Child:
    return Child(name, command, {"PATH": "/usr/bin:/bin"}, console=lines, logs=tmp_path)


def test_what_a_child_prints_is_shown_under_its_name_and_kept(lines: Lines, tmp_path: Path) -> None:
    one = child("one", [sys.executable, "-c", "print('hello')"], lines, tmp_path)
    one.start()
    assert until(lambda: "one: hello" in lines.lines)
    one.wait(time.monotonic() + 5)
    assert (tmp_path / "one.log").read_text() == "hello\n"


def test_a_killed_child_starts_again(lines: Lines, tmp_path: Path) -> None:
    keeper = Supervisor(lines)
    one = child("one", SLEEP, lines, tmp_path)
    keeper.add(one)
    assert one.process
    first = one.process.pid
    one.process.kill()
    keeper.run(lambda: one.running and one.process is not None and one.process.pid != first, period=0.02)
    keeper.stop()
    assert any("starts again in 0.5 s" in line for line in lines.lines)


def test_back_off_grows_while_a_child_keeps_failing(lines: Lines, tmp_path: Path) -> None:
    one = child("one", [sys.executable, "-c", "raise SystemExit(3)"], lines, tmp_path)
    one.start()
    waits, now = [], time.monotonic()
    for _ in range(7):
        assert until(lambda: not one.running)
        one.keep(now)
        waits.append(one.due_at - now)
        now = one.due_at
        one.keep(now)
    one.wait(time.monotonic() + 5)
    assert waits == pytest.approx([0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0])


def test_groups_end_in_reverse_and_a_stubborn_child_is_killed(
    lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.5)
    keeper = Supervisor(lines)
    first, second = child("first", SLEEP, lines, tmp_path), child("second", STUBBORN, lines, tmp_path)
    keeper.add(first)
    keeper.add(second)
    assert until(lambda: {"first: up", "second: up"} <= set(lines.lines))
    ended: list[str] = []
    for one in (first, second):
        monkeypatch.setattr(one, "end", lambda number=15, one=one: (ended.append(one.name), one.process.terminate()))
    other = subprocess.Popen(SLEEP, start_new_session=True)
    reaper.shared().watch(other.pid)
    keeper.stop()
    assert other.poll() is None, "what others started in this process is theirs"
    other.kill()
    other.wait()
    reaper.shared().forget(other.pid)
    assert ended == ["second", "first"]
    assert any("second: did not end in time" in line for line in lines.lines)
    assert not first.running
    assert not second.running
