"""`make up`, seen from outside: it starts, refuses a second copy, stops quickly, and leaves nothing after kill -9."""

import fcntl
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from kvconsole import devserver
from kvconsole.devserver import NotStarted, only_one
from tests.architecture.tree import CLONE
from tests.running import read_logins, running_under


def up(state: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kvconsole.devserver", "--state", str(state), "--no-replay", *options]
    return subprocess.Popen(command, cwd=CLONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def address(process: subprocess.Popen[str]) -> str:
    """The printed URL; every line before it is in the failure's message."""
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"KV Console is at (\S+)", line):
            return found[1]
    raise AssertionError("".join(said)[-4000:])


def mine(state: Path) -> list[str]:
    """Command lines of processes that belong to this state directory, ours and the servers of it."""
    from kvconsole.serverprocess import service_home

    marks = [str(state), *(str(service_home(state / name)) for name in ("postgres", "valkey", "remote"))]
    return running_under(*marks)


@pytest.fixture
def state(tmp_path: Path):
    """A state directory; what was kept in it, also elsewhere as root, goes."""
    path = tmp_path / "dev"
    yield path
    if path.exists():
        devserver.reset(path)


@pytest.mark.walk
@pytest.mark.timeout(400)
def test_a_console_comes_up_twice_and_goes(state: Path) -> None:
    first = up(state)
    try:
        url = address(first)
        with urllib.request.urlopen(f"{url}/login") as page:
            assert page.status == 200
        logins = state / "logins"
        assert logins.stat().st_mode & 0o777 == 0o600
        assert len(read_logins(logins)) >= 5

        second = up(state)
        said, _ = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"already running from this directory: {url}" in said

        first.kill()  # kill -9: nothing of it may be left
        first.wait()
        deadline = time.monotonic() + 20
        while mine(state) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert mine(state) == []

        again = up(state)
        assert address(again) == url, "ports are kept"
        before = time.monotonic()
        again.send_signal(signal.SIGINT)
        said, _ = again.communicate(timeout=60)
        assert again.returncode == 0, said[-2000:]
        assert time.monotonic() - before < 20
        assert mine(state) == []
    finally:
        for process in (first,):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_directory_has_one_console(tmp_path: Path) -> None:
    with only_one(tmp_path) as lock:
        lock.write("http://127.0.0.1:1\n")
        lock.flush()
        with (
            pytest.raises(NotStarted, match=r"already running from this directory: http://127\.0\.0\.1:1"),
            only_one(tmp_path),
        ):
            pass
    with only_one(tmp_path):
        pass


def test_reset_keeps_nothing_but_the_lock(tmp_path: Path) -> None:
    (tmp_path / "agents" / "a").mkdir(parents=True)
    (tmp_path / "logins").touch()
    (tmp_path / "lock").touch()
    devserver.reset(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_a_changed_migration_is_noticed() -> None:
    assert devserver._digest_of_migrations() == devserver._digest_of_migrations()


def test_cleaning_leaves_alone_what_another_session_uses(tmp_path: Path) -> None:
    for name in ("wheel", "pg-1", "pg-2"):
        (tmp_path / "home" / name).mkdir(parents=True)
    (tmp_path / "home" / "pg-1" / "lock").touch()
    with (tmp_path / "home" / "pg-2" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        devserver.remove_unused(tmp_path / "home")
        assert sorted(p.name for p in (tmp_path / "home").iterdir()) == ["pg-1", "pg-2", "wheel"]
    devserver.remove_unused(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_the_environment_is_that_of_a_console_that_runs(tmp_path: Path, capsys) -> None:
    state = tmp_path / "dev"
    asked = ["--state", str(state), "--env"]
    assert devserver.main(asked) == 1
    assert not state.exists()
    with only_one(state):
        assert devserver.main(asked) == 1
        (state / "env").write_text("export KVC_DB_HOST=127.0.0.1\n")
        assert devserver.main(asked) == 0
    assert devserver.main(asked) == 1  # what an earlier one left is nobody's
    said = capsys.readouterr()
    assert said.out.strip() == "export KVC_DB_HOST=127.0.0.1"
    first, second, third = said.err.strip().splitlines()
    assert first == third == f"no console runs from {state}: start one with `make up`"
    assert "is starting" in second
