"""`kvc` in processes of its own without loading it for each: a process that has loaded it forks for every command.

What a command sees is what it sees when it is started: its words, its environment alone, and input and output that are
no terminal. Its end is an ordinary one, with what Python prints of an exception.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path

from tests.architecture.tree import CLONE

LIMIT = 60
"""Seconds that a command may take."""


class Forked:
    """The process that has loaded `kvc`; it ends when nobody can ask it any more."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CLONE,
            env={"PATH": os.environ["PATH"], "HOME": os.devnull, "KVC_TOKEN": "none"},
        )  # fmt: skip

    def run(self, words: tuple[str, ...], env: Mapping[str, str], text: str, at: Path) -> tuple[int, str, str]:
        """Code, output and errors of one command; it leaves files in `at`."""
        files = [at / f"kvc-{name}" for name in ("in", "out", "err")]
        for path, content in zip(files, (text, "", ""), strict=True):
            path.write_text(content, encoding="utf-8")
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([words, dict(env), *map(str, files)]), file=self.process.stdin, flush=True)
        code = self.process.stdout.readline()
        assert code, f"what has loaded kvc ended with {self.process.wait()}"
        return int(code), files[1].read_text(encoding="utf-8"), files[2].read_text(encoding="utf-8")

    def close(self) -> None:
        """It has ended."""
        self.process.communicate()


def _become(words: list[str], env: dict[str, str], *files: str) -> None:
    """This process is one that was started with this."""
    signal.alarm(LIMIT)
    for number, path in enumerate(files):
        os.dup2(os.open(path, os.O_RDWR), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the old one has read ahead
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["kvc", *words]


def serve() -> None:
    """One line of input is one command, and one line of output the code it ended with."""
    from kvconsole.cli.main import app, main

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), suppress(Exception, SystemExit):
        app(["--url", "http://127.0.0.1:1", "--json", "tenants", "list"])  # loads what the first command loads
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(*json.loads(line))
            main()
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
