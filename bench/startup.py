"""Start of a fresh clone: seconds to the first page, seconds of a second start, and what all processes take of memory.

`git clone` of the newest commit below a 0700 directory, then `make up`, which installs its packages from the package
cache (this bench does not fill it: run it twice on a new machine). Memory is the sum of the proportional set sizes of
everything the clone runs, 60 s after a start with the replay paused, over what a minute of replay has left.
"""

import contextlib
import shutil
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from kvconsole import reaper
from kvconsole.devserver import FLEET
from tests.freshclone import FreshClone

Figure = dict[str, Any]
GIB = 2**30
KINDS = (
    "postgres",
    "valkey",
    "nodeagent",
    "kvconsole.web",
    "ingest",
    "signer",
    "sequencer",
    "worker",
    "beat",
    "devserver",
    "reaper",
)


def run(quick: bool) -> Iterator[Figure]:
    """First page, second start, memory. `quick` shares our packages and waits less."""
    base = Path(tempfile.mkdtemp(prefix="kvc-bench-"))
    clone = FreshClone(base)
    try:
        if quick:
            clone.share_packages()
        seconds = _started(clone, limit=300)
        told = {"git_clone_s": round(clone.clone_seconds, 1), "own_packages": not quick}
        yield _figure("first_page", seconds, "s", 90, told)
        time.sleep(10 if quick else 60)  # the replay fills the tiers
        clone.interrupt(clone.makes[-1], 60)
        seconds = _started(clone, "REPLAY=0", limit=120)
        yield _figure("second_start", seconds, "s", 10)
        time.sleep(max(0.0, (30 if quick else 60) - seconds))
        sizes, counts = _sizes(clone)
        if counts["nodeagent"] < len(FLEET):
            raise RuntimeError(f"not everything runs yet: {dict(counts)}")
        largest = dict(sorted(sizes.items(), key=lambda x: -x[1])[:8])
        told = {"processes": counts.total(), "MiB": {name: round(size / 2**20) for name, size in largest.items()}}
        yield _figure("pss", sum(sizes.values()) / GIB, "GiB", 3.5, told)
    finally:
        clone.remove()
        reaper.close_shared()
        shutil.rmtree(base, ignore_errors=True)


def _figure(name: str, value: float, unit: str, target: float, told: Any = None) -> Figure:
    figure = {"name": f"startup.{name}", "value": round(value, 2), "unit": unit, "target": f"<= {target:g}",
              "ok": value <= target}  # fmt: skip
    return figure if told is None else {**figure, "peer": told}


def _started(clone: FreshClone, *variables: str, limit: float) -> float:
    """Seconds from `make up` to the log-in page being served at the printed address."""
    begin = time.monotonic()
    url = clone.served(clone.up(*variables), limit)
    with urllib.request.urlopen(f"{url}/login", timeout=30) as answer:
        answer.read()
    return time.monotonic() - begin


def _sizes(clone: FreshClone) -> tuple[dict[str, int], Counter[str]]:
    """Proportional set size in bytes, and number, of `make up` and all below it, by what each process is."""
    top = psutil.Process(clone.makes[-1].pid)
    sizes, counts = dict[str, int](), Counter[str]()
    for process in (top, *top.children(recursive=True)):
        with contextlib.suppress(psutil.Error, OSError):
            name = _name(process.cmdline())
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            kib = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
            sizes[name] = sizes.get(name, 0) + kib * 1024
            counts[name] += 1
    return sizes, counts


def _name(command: list[str]) -> str:
    """What a process is, for a person."""
    words = " ".join(command)
    return next((k for k in KINDS if k in words), command[0] if command else "")
