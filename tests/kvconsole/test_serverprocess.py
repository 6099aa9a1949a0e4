"""Where servers live, and ports. Starting and ending them is in test_embedded.py."""

import os
import socket
import sys
from pathlib import Path

import pytest

from kvconsole import serverprocess
from kvconsole.serverprocess import CLONE, ServerFailed, command_of, free_port, is_free, service_home, wheel_path


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
