"""A clone of this repository in which `make up` runs as a newcomer runs it. Used by an accept test and by the bench."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from kvconsole import reaper
from kvconsole.serverprocess import CLONE, ROOT_HOME, as_root, digest
from tests.running import running_under

UP = re.compile(r"KV Console is at (\S+) \(([\d.]+) s\)")
FOREIGN = re.compile(r"^(KVC_|DJANGO_|MAKE|MFLAGS|PYTHON|VIRTUAL_ENV|GIT_)")


class FreshClone:
    """A clone below a directory that nobody else may enter. As root its servers' data are in `home`, else below it."""

    def __init__(self, base: Path) -> None:
        """`base` is an empty directory of ours; the clone is made with the newest commit of the one we run from."""
        base.chmod(0o700)
        self.root = base.resolve() / "kv-console"
        self.home = ROOT_HOME / digest(str(self.root))
        self.log = base / "up.log"
        self.makes: list[subprocess.Popen[bytes]] = []
        begin = time.monotonic()
        subprocess.run(
            ["git", "clone", "--quiet", str(CLONE), str(self.root)], check=True, env=_environment(), cwd=base
        )
        self.clone_seconds = time.monotonic() - begin
        if as_root():
            reaper.shared().remove(self.home)

    def share_packages(self) -> None:
        """The clone uses the packages that we run with, instead of installing its own."""
        venv = self.root / ".venv"
        venv.mkdir()
        for path in Path(sys.prefix).iterdir():
            if not path.name.startswith(".installed-"):
                (venv / path.name).symlink_to(path)
        done = subprocess.run(
            ["cksum"], input=(self.root / "requirements/console.txt").read_bytes(), capture_output=True
        )
        (venv / ".installed-console").write_bytes(done.stdout)

    def up(self, *variables: str) -> subprocess.Popen[bytes]:
        """`make up` runs; what it says is in `said`."""
        with self.log.open("wb") as out:
            process = subprocess.Popen(
                ["make", "up", *variables], cwd=self.root, env=_environment(), stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        reaper.shared().watch(process.pid, stop=signal.SIGINT)
        self.makes.append(process)
        return process

    def said(self) -> str:
        """What the last `make up` has printed so far."""
        return self.log.read_text(errors="replace")

    def served(self, process: subprocess.Popen[bytes], seconds: float) -> str:
        """The address that was printed. Raises AssertionError with the output when it was not, in this time."""
        deadline = time.monotonic() + seconds
        while not (found := UP.search(self.said())):
            assert process.poll() is None, self.said()[-4000:]
            assert time.monotonic() < deadline, f"no address within {seconds} s:\n{self.said()[-4000:]}"
            time.sleep(0.05)
        return found[1]

    def refused(self) -> str:
        """What one more `make up` says; it has ended, not with 0."""
        done = subprocess.run(
            ["make", "up"], cwd=self.root, env=_environment(), capture_output=True, text=True, timeout=90
        )
        assert done.returncode != 0
        return done.stdout + done.stderr

    def interrupt(self, process: subprocess.Popen[bytes], seconds: float) -> float:
        """Ctrl-C, as a terminal sends it; returns after how many seconds nothing ran. Raises AssertionError if late."""
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        while process.poll() is None or self.running():
            assert time.monotonic() - begin < seconds, (self.running(), self.said()[-3000:])
            time.sleep(0.1)
        reaper.shared().forget(process.pid)
        return time.monotonic() - begin

    def supervisor(self, process: subprocess.Popen[bytes]) -> psutil.Process:
        """The process that keeps all others running."""
        tree = psutil.Process(process.pid).children(recursive=True)
        return next(p for p in tree if "kvconsole.devserver" in p.cmdline() and "python" in p.name())

    def running(self) -> list[str]:
        """Processes of this clone."""
        return running_under(str(self.root), str(self.home))

    def remove(self) -> None:
        """Nothing of the clone runs or is left on the machine. Raises AssertionError if something is."""
        for process in self.makes:
            if process.poll() is None:
                with contextlib.suppress(AssertionError):
                    self.interrupt(process, 30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if (self.root / ".venv/bin/python").exists():
            subprocess.run(["make", "clean"], cwd=self.root, env=_environment(), capture_output=True, timeout=120)
        left = self.running()
        shutil.rmtree(self.root, ignore_errors=True)
        assert not left
        assert not self.home.exists()


def _environment() -> dict[str, str]:
    """That of a newcomer's shell: nothing of a test session, of Django or of an outer make."""
    return {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
