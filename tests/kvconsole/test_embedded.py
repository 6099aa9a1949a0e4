"""PostgreSQL and Valkey from their wheels keep what was told over every kind of end."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis

from kvconsole import reaper, serverprocess
from kvconsole.embedded import ROLES, Postgres, ServerFailed, Valkey
from kvconsole.serverprocess import ROOT_HOME, as_root
from tests.architecture.tree import CLONE


@pytest.fixture
def server(tmp_path: Path):
    """A PostgreSQL of this test alone, with what production has: fsync."""
    made = Postgres(tmp_path / "pg")
    made.start()
    made.create_database("facts")
    yield made
    made.remove()


def count(server: Postgres) -> int:
    with psycopg.connect(server.superuser_dsn("facts")) as c:
        row = c.execute("SELECT count(*) FROM fact").fetchone()
    assert row
    return int(row[0])


def test_rows_survive_a_kill_and_the_port_stays(server: Postgres) -> None:
    with psycopg.connect(server.superuser_dsn("facts")) as c:
        c.execute("CREATE TABLE fact (i int)")
        c.execute("INSERT INTO fact SELECT generate_series(1, 1000)")
    port = server.port
    for end in (server.kill, server.stop):
        end()
        server.start()
        assert (count(server), server.port) == (1000, port)


def test_a_taken_port_is_left_to_its_owner(server: Postgres) -> None:
    port = server.port
    server.stop()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        server.start()
        assert server.port != port


def test_a_pid_file_that_names_a_stranger_is_no_obstacle(server: Postgres) -> None:
    server.kill()
    pid_file = server.data / "postmaster.pid"
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        rest = pid_file.read_text().split("\n", 1)[1]
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        server.start()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_that_outlived_its_parent_is_ended_first(server: Postgres) -> None:
    """As after kill -9 of parent and reaper at once: the old postmaster still holds data and port."""
    assert server.process
    orphan, server.process = server.process, None
    reaper.shared().forget(orphan.pid)
    server.start()
    assert orphan.wait(1) is not None
    assert server.pid != orphan.pid


def test_a_second_server_over_the_same_directory_is_refused(server: Postgres, tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="another process"):
        Postgres(tmp_path / "pg").start()
    assert server.pid


def test_what_others_may_see(server: Postgres) -> None:
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.home / "secrets.json").stat().st_mode) == 0o600
    if as_root():
        assert server.data.stat().st_uid != 0
    with psycopg.connect(server.superuser_dsn()) as c:
        settings = dict(c.execute("SELECT name, setting FROM pg_settings").fetchall())
        assert settings["listen_addresses"] == "127.0.0.1"
        assert settings["unix_socket_directories"] == ""
        row = c.execute("SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'facts'").fetchone()
        assert row == ("b", "C.UTF-8")


def test_roles_are_unprivileged_and_need_their_password(server: Postgres) -> None:
    with psycopg.connect(server.superuser_dsn()) as c:
        rows = c.execute(
            "SELECT rolname, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb, rolcanlogin"
            " FROM pg_roles WHERE rolname LIKE 'kv\\_%'"
        ).fetchall()
        owner = c.execute("SELECT datdba::regrole::text FROM pg_database WHERE datname = 'facts'").fetchone()
    assert {name for name, *_ in rows} == {"kv_owner", *(f"kv_{role}" for role in ROLES)}
    assert not any(privileged for _, privileged, _ in rows)
    assert [name for name, _, login in rows if not login] == ["kv_owner"]
    assert owner == ("kv_owner",)
    for role in ROLES:
        psycopg.connect(server.dsn(role, "facts")).close()
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.dsn("operator", "facts").replace(server.passwords["operator"], "guess"))


def test_environment_names_every_role(server: Postgres) -> None:
    env = server.env("facts")
    assert env["KVC_DB_NAME"] == "facts"
    assert {f"KVC_DB_{role.upper()}_PASSWORD" for role in ROLES} <= set(env)


@pytest.mark.parametrize("persist", [True, False])
def test_valkey_keeps_or_forgets_over_a_kill(persist: bool, tmp_path: Path) -> None:
    server = Valkey(tmp_path / "valkey", persist=persist)
    try:
        server.start()
        with redis.Redis.from_url(server.url) as client:
            client.set("fact", "1")
        time.sleep(1.2)  # appendfsync everysec
        server.kill()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("fact") == (b"1" if persist else None)
        with (
            redis.Redis(port=server.port) as client,
            pytest.raises(redis.AuthenticationError),
        ):
            client.ping()
    finally:
        server.remove()


def test_the_first_start_of_all_servers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make up` does on a fresh clone: as root each has to copy its wheel first, and two have the same."""
    monkeypatch.setattr(serverprocess, "ROOT_HOME", ROOT_HOME / f"test-{os.getpid()}")
    servers = [Valkey(tmp_path / "a"), Valkey(tmp_path / "b"), Postgres(tmp_path / "c", test=True)]
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), servers))
        assert all(server.pid for server in servers)
    finally:
        for server in servers:
            server.remove()
        shutil.rmtree(serverprocess.ROOT_HOME, ignore_errors=True)


def test_no_password_is_in_a_process_list(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "valkey")
    try:
        server.start()
        assert server.pid
        listed = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(server.pid)], capture_output=True, text=True)
        assert server.secrets["superuser"] not in listed.stdout
    finally:
        server.remove()


AS_USER = """
import sys
from pathlib import Path
from kvconsole.embedded import Postgres, Valkey
for kind in (Postgres, Valkey):
    server = kind(Path(sys.argv[1]) / kind.__name__)
    server.start()
    assert server.home == Path(sys.argv[1]) / kind.__name__ and server.pid
    server.kill()
    server.start()
    server.remove()
print("both")
"""


def python_for_everybody() -> str | None:
    """A Python of our version that a user without rights can run; this one may lie under a home that is 0700."""
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            if subprocess.run([path, "-c", ""], user=65534, group=65534, extra_groups=[], cwd="/").returncode == 0:
                return path
    return None


@pytest.mark.walk
def test_an_ordinary_user_can_start_both() -> None:
    if not as_root():
        pytest.skip("not run: every other test of this file runs as an ordinary user already")
    site = Path(psycopg.__file__).parent.parent
    reachable = all(p.stat().st_mode & 0o001 for p in (CLONE, *CLONE.parents, *site.parents))
    python = python_for_everybody()
    if python is None or not reachable:
        pytest.skip("not run: an ordinary user can reach no Python or not this clone")
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, 65534, 65534)
        done = subprocess.run(
            [python, "-c", AS_USER, home], user=65534, group=65534, extra_groups=[], capture_output=True, text=True,
            cwd="/", env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{CLONE}:{site}", "HOME": home},
        )  # fmt: skip
    assert done.stdout.strip() == "both", done.stderr
