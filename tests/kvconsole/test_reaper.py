"""Children end with their parent, however it went."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvconsole import reaper
from tests.architecture.tree import CLONE

PARENT = """
import subprocess, sys, time
from pathlib import Path
from kvconsole import reaper
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]], start_new_session=True)
reaper.shared().watch(child.pid)
reaper.shared().remove(Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""
OBEDIENT, STUBBORN = (
    "import time; time.sleep(60)",
    ("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"),
)


def gone(pid: int, seconds: float) -> bool:
    """Whether the process ends within this time."""
    deadline = time.monotonic() + seconds
    while reaper.alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not reaper.alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(("child", "seconds"), [(OBEDIENT, 3.0), (STUBBORN, reaper.SOFT_SECONDS + 3.0)])
def test_a_child_does_not_outlive_its_parent(number: int, child: str, seconds: float, tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    command = [sys.executable, "-c", PARENT, str(doomed), child]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CLONE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        os.kill(parent.pid, number)
    assert gone(pid, seconds)
    deadline = time.monotonic() + 3
    while doomed.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not doomed.exists()


def test_what_was_forgotten_is_left_alone() -> None:
    child = subprocess.Popen([sys.executable, "-c", OBEDIENT], start_new_session=True)
    mine = reaper.Reaper()
    mine.watch(child.pid)
    mine.forget(child.pid)
    mine.close()
    assert child.poll() is None
    child.kill()
    child.wait()


def test_later_stages_end_first() -> None:
    """A server ends only after its clients: the client tells, by its exit time, which came first."""
    server = subprocess.Popen([sys.executable, "-c", OBEDIENT], start_new_session=True)
    client = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True)
    time.sleep(0.3)
    mine = reaper.Reaper()
    mine.watch(server.pid, stage=reaper.SERVERS)
    mine.watch(client.pid)
    assert mine._process.stdin is not None
    mine._process.stdin.close()
    time.sleep(1.0)
    assert server.poll() is None, "the server ended before its client"
    assert client.wait(reaper.SOFT_SECONDS + 3) == -signal.SIGKILL
    assert server.wait(3) == -signal.SIGTERM
    mine._process.wait(3)
