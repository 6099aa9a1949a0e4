"""Where servers live, and ports. Starting and ending them is in test_embedded.py."""

import fcntl
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from kvconsole import serverprocess
from kvconsole.serverprocess import (
    CLONE,
    ServerFailed,
    command_of,
    free_port,
    is_free,
    service_home,
    sweep_test_homes,
    wheel_path,
)


def test_an_ordinary_user_keeps_data_where_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serverprocess, "as_root", lambda: False)
    assert service_home(tmp_path) == tmp_path
    assert serverprocess.identity() == {}


def test_root_keeps_data_where_a_service_user_can_walk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serverprocess, "as_root", lambda: True)
    home = service_home(tmp_path)
    assert home.parent == serverprocess.clone_home()
    assert home != service_home(tmp_path / "other")
    assert str(CLONE) not in str(home)


def test_a_port_is_free_until_somebody_listens() -> None:
    port = free_port()
    assert is_free(port)
    with socket.socket() as s:
        s.bind(("127.0.0.1", port))
        s.listen()
        assert not is_free(port)


def test_a_command_line_can_be_read() -> None:
    assert Path(sys.executable).name.split(".")[0] in command_of(os.getpid())
    assert command_of(2**22 - 3) == ""


def test_a_missing_wheel_is_said_plainly() -> None:
    with pytest.raises(ServerFailed, match="no-such-wheel is not installed"):
        wheel_path("no_such_wheel", "no-such-wheel")


@pytest.mark.parametrize(("held", "age", "stays"), [(False, 3600, False), (True, 3600, True), (False, 1, True)])
def test_what_killed_sessions_left_is_swept(held: bool, age: int, stays: bool, tmp_path: Path) -> None:
    home = tmp_path / "pg"
    home.mkdir()
    for name, text in (("for-tests", ""), ("pid", "1"), ("data", "")):
        (home / name).write_text(text)
    os.utime(home / "for-tests", (time.time() - age,) * 2)
    with (home / "lock").open("w") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_test_homes(tmp_path.iterdir())
    assert home.exists() == stays


def test_what_is_no_test_is_never_swept(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    sweep_test_homes(tmp_path.iterdir(), older_seconds=0)
    assert (tmp_path / "dev").exists()
