"""One server process over one directory: its user, lock, port, passwords, start and end.

`embedded` says which servers there are. As root they run as an unprivileged user, who may not be able to walk to this
clone (a home is often 0700): then binaries and data live in `/var/lib/kv-console-dev/<hash of the clone's path>`.
"""

import abc
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from kvconsole import reaper

CLONE = Path(__file__).resolve().parent.parent
ROOT_HOME = Path("/var/lib/kv-console-dev")
START_SECONDS = 30.0
_copying = threading.Lock()


class ServerFailed(RuntimeError):
    """The server did not start; the message ends with the tail of its log. Nothing of it runs."""


def as_root() -> bool:
    """Whether servers must change to another user, because PostgreSQL refuses to run as root."""
    return os.geteuid() == 0


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def clone_home() -> Path:
    """Where root keeps binaries and data of this clone; the parents can be walked by everybody, the data cannot."""
    return ROOT_HOME / digest(str(CLONE))


def service_home(base: Path) -> Path:
    """The directory that really holds what the caller calls `base`."""
    base = base.absolute()
    return clone_home() / f"{base.name}-{digest(str(base))}" if as_root() else base


def service_user() -> tuple[int, int]:
    """User and group id that servers run as when we are root."""
    try:
        entry = pwd.getpwnam("nobody")
        return entry.pw_uid, entry.pw_gid
    except KeyError:
        return 65534, 65534


def identity() -> dict[str, Any]:
    """Arguments of Popen that make a server run as the service user; none unless we are root."""
    if not as_root():
        return {}
    uid, gid = service_user()
    return {"user": uid, "group": gid, "extra_groups": []}


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether we could listen on this port of the loopback interface."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wheel_path(package: str, distribution: str) -> Path:
    """Directory of an installed package as the service user can read it.

    That is the package itself, or as root a copy, with the libraries the wheel keeps beside the package; it appears
    whole or not at all.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ServerFailed(f"the wheel {distribution} is not installed; run `make up` or `make test`")
    source = Path(spec.origin).parent
    if not as_root():
        return source
    with _copying:
        return _copied(source, package, f"{distribution}-{importlib.metadata.version(distribution)}")


def _copied(source: Path, package: str, name: str) -> Path:
    target = clone_home() / name
    if not (target / ".complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        for tree in (source, source.with_name(f"{package}.libs")):
            if tree.exists():
                ignored = shutil.ignore_patterns("include", "__pycache__")
                shutil.copytree(tree, part / tree.name, symlinks=True, ignore=ignored)
        for path in (part, *part.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        (part / ".complete").touch()
        try:
            part.rename(target)
        except OSError:  # somebody else was quicker
            shutil.rmtree(part, ignore_errors=True)
    return target / package


def command_of(pid: int) -> str:
    """The command line of a running process, empty when it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout


def sweep_test_homes(among: Iterable[Path], *, older_seconds: float = 600.0) -> None:
    """Directories of test servers that nobody holds any more are gone: their session was killed with its reaper."""
    for home in among:
        try:
            if time.time() - (home / "for-tests").stat().st_mtime < older_seconds:
                continue
            with (home / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                pid = int((home / "pid").read_text())
                if str(home) in command_of(pid):
                    os.kill(pid, signal.SIGKILL)
                shutil.rmtree(home, ignore_errors=True)
        except (OSError, ValueError):
            continue


class Server(abc.ABC):
    """One server process over one directory. `start` and `stop` may alternate; data, port and passwords stay."""

    stop_signal: ClassVar[int] = signal.SIGTERM
    accounts: ClassVar[tuple[str, ...]] = ("superuser",)
    """Whose passwords are kept in `secrets`."""

    def __init__(self, base: Path, *, test: bool = False, log: Path | None = None) -> None:
        self.home = service_home(base)
        self.test = test
        self.log = log or self.home / "server.log"
        self.data = self.home / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o755 if as_root() else 0o700)
        if test:
            (self.home / "for-tests").touch()
        self.secrets: dict[str, Any] = self._load_secrets()

    # --- what each kind of server says about itself ---

    @abc.abstractmethod
    def _command(self) -> list[str]: ...

    @abc.abstractmethod
    def _ready(self) -> bool: ...

    @abc.abstractmethod
    def _is_ours(self, command: str) -> bool:
        """Whether this command line is an earlier life of the same server."""

    def _prepare(self) -> None:
        self.own_directory(self.data)

    def _after_start(self) -> None:  # noqa: B027 - most servers need nothing more
        """The server answers; finish what needs it running."""

    def _stdin(self) -> bytes:
        return b""

    # --- life ---

    @property
    def port(self) -> int:
        """The port, the same over restarts unless somebody else took it meanwhile."""
        return int(self.secrets["port"])

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self) -> None:
        """The server answers on its port.

        Raises:
            ServerFailed: it ended or did not answer in time; nothing of it is left running.
        """
        if self.pid:
            return
        self._take_lock()
        self._end_previous()
        self._prepare()
        deadline = time.monotonic() + START_SECONDS
        while True:
            complaint = self._try_start(deadline)
            if complaint is None:
                break
            taken = any(x in complaint for x in ("Address already in use", "could not bind", "Failed listening"))
            # After kill -9 the old server's children hold its shared memory for a moment.
            transient = any(x in complaint for x in ("shared memory block", "lock file", "is starting up"))
            if time.monotonic() > deadline or not (taken or transient):
                self.release_lock()
                raise ServerFailed(f"{type(self).__name__} did not start; its log ends with:\n{complaint}")
            if taken:
                self.save_secrets(port=free_port())
            time.sleep(0.2)
        self._after_start()

    def stop(self, timeout: float = 15.0) -> None:
        """The server has ended in good order, or was killed when that took longer than `timeout` seconds."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._ended()
        self.release_lock()

    def kill(self) -> None:
        """SIGKILL: what a power cut of the server alone would leave."""
        if self.process:
            self.process.kill()
            self.process.wait()
        self._ended()

    def remove(self) -> None:
        """Stopped, and its data gone."""
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    # --- inside ---

    def _ended(self) -> None:
        if self.process:
            reaper.shared().forget(self.process.pid)
            self.process = None

    def _try_start(self, deadline: float) -> str | None:
        """None when the server answers, else the tail of its log; then it does not run."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            offset = out.tell()
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=self.data, umask=0o077,
                start_new_session=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **identity(),
            )  # fmt: skip
        reaper.shared().watch(self.process.pid, stop=self.stop_signal, stage=reaper.SERVERS)
        (self.home / "pid").write_text(str(self.process.pid))
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(self._stdin())
            self.process.stdin.close()
        while self.process.poll() is None and time.monotonic() < deadline:
            if self._ready() and self.process.poll() is None:
                return None
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        self._ended()
        with self.log.open("rb") as f:
            f.seek(offset)
            return f.read().decode(errors="replace")[-1500:]

    def _end_previous(self) -> None:
        """An earlier life that outlived its parent ends; a pid file that names a stranger is ignored."""
        try:
            pid = int((self.home / "pid").read_text())
        except (OSError, ValueError):
            return
        if not self._is_ours(command_of(pid)) or not reaper.alive(pid):
            return
        for number, seconds in ((self.stop_signal, 8.0), (signal.SIGKILL, 3.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            end = time.monotonic() + seconds
            while reaper.alive(pid) and time.monotonic() < end:
                time.sleep(0.05)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        fd = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise ServerFailed(f"{type(self).__name__}: another process runs a server over {self.home}") from None
        self._lock = fd

    def release_lock(self) -> None:
        """Another process may start a server over this directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load_secrets(self) -> dict[str, Any]:
        path = self.home / "secrets.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault("port", free_port())
        for name in self.accounts:
            known.setdefault(name, secrets.token_urlsafe(24))
        self.secrets = known
        self.save_secrets()
        return known

    def save_secrets(self, **changes: Any) -> None:
        """Port, passwords and `changes` are on disk, readable by the starting user only."""
        self.secrets.update(changes)
        path = self.home / "secrets.json"
        fd = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(self.secrets, f)
        path.with_suffix(".new").replace(path)

    def own_directory(self, path: Path) -> None:
        """`path` exists, is 0700 and belongs to the user the server runs as."""
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        if as_root():
            os.chown(path, *service_user())
