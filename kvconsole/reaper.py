"""Ends child processes when their parent is gone, however it went.

The parent (`devserver`, the test session, `embedded`) starts one small process of this file and holds the write end of
its input. Each child is named there; when the pipe closes, be it by `close()`, an exception or kill -9, everything
that is still named is ended: the processes of the highest stage first, so that a database outlives its clients.
Run as a script this file imports nothing but the standard library.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SOFT_SECONDS = 5.0
"""How long one stage may take to end by itself before it is killed."""
SERVERS, PROGRAMS = 0, 1


class Reaper:
    """The parent's end. One per parent is enough; see `shared`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self._owner = os.getpid()
        self._speaking = threading.Lock()

    def _say(self, *words: object) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError, ValueError), self._speaking:
            pipe.write((" ".join(map(str, words)) + "\n").encode())
            pipe.flush()

    def watch(self, pid: int, *, stop: int = signal.SIGTERM, stage: int = PROGRAMS) -> None:
        """From now on `pid` (the leader of its own session) ends with the parent: by `stop`, else by SIGKILL."""
        self._say("watch", pid, int(stop), stage)

    def forget(self, pid: int) -> None:
        """`pid` has ended and its number may be given to a stranger: leave it alone."""
        self._say("forget", pid)

    def remove(self, path: Path) -> None:
        """Delete this directory after the last process has ended."""
        self._say("remove", path)

    def close(self) -> None:
        """End all that is still named, and wait for it."""
        if os.getpid() != self._owner or self._process.stdin is None or self._process.stdin.closed:
            return
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(4 * SOFT_SECONDS)


_shared: list[Reaper] = []
_sharing = threading.Lock()


def shared() -> Reaper:
    """The reaper of this process; a forked child gets its own."""
    with _sharing:
        if not _shared or _shared[0]._owner != os.getpid():
            _shared[:] = [Reaper()]
            atexit.register(_shared[0].close)
        return _shared[0]


def close_shared() -> None:
    """What this process started through `shared` has ended; the next call of `shared` begins anew."""
    if _shared:
        _shared.pop().close()


def alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return not Path("/proc/self/stat").exists()


def _signal(pid: int, number: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def end_all(watched: dict[int, tuple[int, int]]) -> None:
    """Ends {pid: (stop signal, stage)}: one stage after the other, the newest of a stage first."""
    for stage in sorted({stage for _, stage in watched.values()}, reverse=True):
        pids = [pid for pid in reversed(watched) if watched[pid][1] == stage]
        for pid in pids:
            _signal(pid, watched[pid][0])
        deadline = time.monotonic() + SOFT_SECONDS
        while any(map(alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in pids:
            _signal(pid, signal.SIGKILL, group=True)


def main() -> None:
    """Read names until the pipe closes, then end them."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watched: dict[int, tuple[int, int]] = {}
    doomed: list[str] = []
    for line in sys.stdin:
        verb, rest = line.rstrip("\n").split(" ", 1)
        if verb == "watch":
            pid, stop, stage = map(int, rest.split())
            watched[pid] = (stop, stage)
        elif verb == "forget":
            watched.pop(int(rest), None)
        elif verb == "remove":
            doomed.append(rest)
    end_all(watched)
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
