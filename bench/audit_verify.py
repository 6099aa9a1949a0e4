"""`kvc-verify` on a bundle of 10^5 records: records a second, and the memory it takes, as an auditor would run it.

The verifier is a process of its own (`python -I`), timed from its start to its end; without `cryptography` too, where
its own Ed25519 checks the signatures. The bundle is made from `docs/bundle.md` by the builder of the tests.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.tenancy_site import Figure
from bench.tenancy_site import figure as named
from tests.audit.verifier.bundles import Log, b64, build, jcs, sample, sha, zipped

RECORDS_PER_SECOND, RSS_MIB = 50_000, 128
VERIFIER = Path(__file__).parents[1] / "audit/verifier/kvc_verify.py"


# The peak is read from the process itself: what `getrusage` says of a child includes its parent's before the exec.
PEAK = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def figure(name: str, *rest: Any) -> Figure:
    """A figure of the log."""
    return {**named(name, *rest), "name": f"audit.{name}"}


def run(quick: bool) -> Iterator[Figure]:
    """Figures of the verifier. `quick` has a tenth of the records."""
    count = 10_000 if quick else 100_000
    log = sample(count)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "keys.txt").write_text(log.keys())
        whole, bare = _timed(place, build(log), 5), _timed(place, build(log), 3, "-S")
        paths = _timed(place, _by_paths(log, count // 10), 3)
        told = {"records": count, "seconds": round(whole[0], 2), "bundle_mib": round(whole[2], 1)}
        rate = round(count / whole[0])
        yield figure("verify_records", rate, "records/s", f">= {RECORDS_PER_SECOND}", rate >= RECORDS_PER_SECOND,
                     {**told, "without_cryptography": round(count / bare[0])})  # fmt: skip
        yield figure("verify_memory", round(whole[1]), "MiB", f"<= {RSS_MIB}", whole[1] <= RSS_MIB, told)
        rate = round(count // 10 / paths[0])
        yield figure("verify_records_by_paths", rate, "records/s", "told", True, {"records": count // 10, "of": count})


def _by_paths(log: Log, count: int) -> dict:
    """A bundle in which each record carries its own path; the paths are made from all levels of the tree."""
    levels = [log.hashes]
    while len(levels[-1]) > 1:
        last = levels[-1]
        pairs = [sha(b"\x01" + last[n] + last[n + 1]) for n in range(0, len(last) - 1, 2)]
        levels.append(pairs + last[len(last) & ~1 :])
    chosen, lines = list(range(0, len(log.leaves), len(log.leaves) // count)), []
    for index in chosen:
        path = [level[index >> n ^ 1] for n, level in enumerate(levels[:-1]) if index >> n ^ 1 < len(level)]
        lines.append(log.record(index, False)[:-2] + b',"proof":' + jcs([b64(one) for one in path]) + b"}\n")

    def tell(manifest: dict) -> None:
        manifest["records"] = manifest["files"][0]["rows"] = len(chosen)

    return build(log, proof="inclusion", chosen=[], files={"events.jsonl": b"".join(lines)}, change=tell)


def _timed(place: Path, bundle: dict, times: int, *options: str) -> tuple[float, float, float]:
    """The best seconds of a run, the most MiB one took, the MiB of the bundle."""
    target = place / "bundle.zip"
    target.write_bytes(zipped(bundle))
    command = [sys.executable, "-I", *options, str(VERIFIER), "bundle", str(target), "--keys", str(place / "keys.txt")]
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        best = min(best, time.perf_counter() - begin)
        assert done.stdout.endswith("VALID\n"), done.stdout + done.stderr
    peak = subprocess.run([*command[:2], "-c", PEAK, *command[2 + len(options) :]], capture_output=True, text=True)
    return best, int(peak.stdout.split()[-1]) / 1024, target.stat().st_size / 2**20
