"""Keeps child processes running: prefixed logs, restart with back-off, an end in order. Used by `devserver`."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kvconsole import reaper
from kvconsole.serverprocess import CLONE, Server, ServerFailed

STOP_SECONDS = 5.0
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_SECONDS = 30.0
"""A process that ran this long starts again with the shortest back-off."""
LOG_BYTES = 20_000_000
COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)


class Console:
    """Lines of all processes on the terminal, each behind the name of who said it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._colours: dict[str, int] = {}

    def say(self, name: str, line: str) -> None:
        """One line; a terminal that has gone away is no reason to stop."""
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        prefix = f"\033[{colour}m{name:<10}\033[0m" if sys.stdout.isatty() else f"{name:<10}"
        with self._lock, contextlib.suppress(OSError, ValueError):
            print(f"{prefix} {line}", flush=True)


class Child:
    """One process that is wanted: it runs, or waits for its next start."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], *, console: Console, logs: Path
    ) -> None:
        self.name, self.command, self.env = name, list(command), dict(env)
        self.console, self.path = console, logs / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.failures, self.started_at, self.due_at = 0, 0.0, 0.0
        self._copier: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives at this moment."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """The process runs; what it prints goes to the terminal and to its log."""
        if self.path.exists() and self.path.stat().st_size > LOG_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
        self.process = subprocess.Popen(
            self.command, env=self.env, cwd=CLONE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        reaper.shared().watch(self.process.pid)
        self.started_at = time.monotonic()
        self._copier = threading.Thread(target=self._copy, args=(self.process,), daemon=True)
        self._copier.start()

    def keep(self, now: float) -> None:
        """Called often: an ended process is started again when its back-off is over."""
        if self.running:
            return
        if self.process is not None:
            code = self.process.returncode
            reaper.shared().forget(self.process.pid)
            self.process = None
            self.failures = 0 if now - self.started_at > STEADY_SECONDS else self.failures
            wait = BACKOFF_SECONDS[min(self.failures, len(BACKOFF_SECONDS) - 1)]
            self.failures += 1
            self.due_at = now + wait
            self.console.say(self.name, f"ended with {code}; starts again in {wait:g} s")
        elif now >= self.due_at:
            self.start()

    def end(self, number: int = signal.SIGTERM) -> None:
        """Asked to end; `wait` sees to it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, deadline: float) -> None:
        """Has ended, if need be by SIGKILL after `deadline` (monotonic)."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.console.say(self.name, "did not end in time and was killed")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self._copier:
            self._copier.join(1.0)
        reaper.shared().forget(self.process.pid)
        self.process = None

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with self.path.open("ab") as log, process.stdout as lines:
            for line in lines:
                log.write(line)
                log.flush()
                self.console.say(self.name, line.decode(errors="replace").rstrip())


class Supervisor:
    """Servers and children in the order they were added; they end in the reverse order."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.servers: dict[str, Server] = {}
        self.groups: list[list[Child]] = []
        self.stopping = threading.Event()

    def add(self, *children: Child) -> None:
        """These start now, together, and end together."""
        self.groups.append(list(children))
        for child in children:
            child.start()

    def run(self, until: Callable[[], bool] = lambda: False, *, period: float = 0.2) -> None:
        """Keeps everything running until told to stop or `until` is true."""
        while not self.stopping.is_set() and not until():
            now = time.monotonic()
            for name, server in self.servers.items():
                if server.pid is None:
                    self._revive(name, server)
            for child in self.children():
                child.keep(now)
            self.stopping.wait(period)

    def children(self) -> list[Child]:
        """All, in the order they started."""
        return [child for group in self.groups for child in group]

    def stop(self) -> None:
        """Nothing runs. Newest first; within a group all at once."""
        self.stopping.set()
        for group in reversed(self.groups):
            for child in group:
                child.end()
            deadline = time.monotonic() + STOP_SECONDS
            for child in group:
                child.wait(deadline)
        for name, server in reversed(list(self.servers.items())):
            server.stop(STOP_SECONDS)
            self.console.say(name, "stopped")

    def _revive(self, name: str, server: Server) -> None:
        self.console.say(name, "ended; starting it again")
        try:
            server.stop()
            server.start()
        except ServerFailed as e:
            self.console.say(name, str(e))
