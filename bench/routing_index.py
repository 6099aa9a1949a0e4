"""Routing index against `RadixTree` of the wheel `ai-dynamo-runtime`: pairs in turn, each side pinned to the same CPU.

The wheel goes into a venv that the bench makes and throws away; it is no dependency. Where it cannot be had, a ratio to
it is not measured and says so. `KVC_BENCH_PEER` names a Python that has it already. What the peer is fed is JSON, as
its binding takes nothing else: its apply holds the decoding, ours of `apply` does not, ours of `from_bytes` does.
Then growth over blocks, workers and chain length, and the rebuild from the store's rows.
"""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench.routing_rebuild import plant
from bench.routing_streams import Stream, agents

Figure = dict[str, Any]
Result = dict[str, Any]
WHEEL = "ai-dynamo-runtime==1.6.1"
ROOT = Path(__file__).parents[1]
LONG = "5120"


def run(quick: bool) -> Iterator[Figure]:
    """Pairs, growth, rebuild; `quick` takes a tenth of the sizes and one pair."""
    with tempfile.TemporaryDirectory(prefix="kvc-bench-") as base, _peer(Path(base)) as peer:
        yield from pairs(Path(base), peer, quick)
        yield from growth(Path(base), quick)
    yield from rebuild(quick)


def _figure(name: str, value: float | None, unit: str, target: str, ok: bool, told: Any = None) -> Figure:
    shown = None if value is None else round(value, 3)
    out = {"name": f"routing_index.{name}", "value": shown, "unit": unit, "target": target, "ok": ok}
    return out | {"peer": {**(told or {}), "load": round(os.getloadavg()[0], 1)}}


# ---------------------------------------------------------------------- sides
@contextlib.contextmanager
def _peer(base: Path) -> Iterator[str]:
    """A Python that has the wheel; empty where it cannot be had."""
    if python := os.environ.get("KVC_BENCH_PEER"):
        yield python
        return
    python = str(base / "peer" / "bin" / "python")
    try:
        subprocess.run([sys.executable, "-m", "venv", base / "peer"], check=True, capture_output=True, timeout=120)
        install = [python, "-m", "pip", "install", "--quiet", "--no-input", WHEEL]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
        subprocess.run([python, "-c", "import dynamo._core"], check=True, capture_output=True, timeout=60)
    except (subprocess.SubprocessError, OSError):
        python = ""
    yield python


def _side(command: list[str | Path]) -> Result:
    """What a side's process says, pinned to the last CPU that we have."""
    cpu = max(os.sched_getaffinity(0))
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu})
    )
    result: Result = json.loads(done.stdout)
    return result


def _ours(form: str, path: Path, *how: str) -> Result:
    return _side([sys.executable, "-m", "bench.routing_sides", form, path, *how])


def _saved(base: Path, stream: Stream) -> Path:
    path = base / "stream"
    stream.save(path)
    return path


def _at(took: list[float], share: float) -> float:
    """Microseconds at that share of the sorted seconds."""
    return took[min(len(took) - 1, int(len(took) * share))] * 1e6


# ---------------------------------------------------------------------- pairs
def pairs(base: Path, peer: str, quick: bool) -> Iterator[Figure]:
    """Apply, look-up and bytes of both forms against the peer."""
    stream = agents(100_000 if quick else 1_000_000, 64)
    path, rounds = _saved(base, stream), []
    for _ in range(1 if quick else 5):
        one = {form: _ours(form, path) | _ours(form, path, "wire") for form in ("packed", "dict")}
        if peer:
            one["peer"] = _side([peer, ROOT / "bench" / "routing_peer.py", path])
            if any(one[form][what] != one["peer"]["depths"] for form in ("packed", "dict") for what in DEPTHS):
                raise RuntimeError("the sides answer different depths")
        rounds.append(one)
    for name, form, ours, theirs, least in RATIOS:
        yield _ratio(name, rounds, form, (ours, theirs), least, stream.operations)
    yield from _bytes(rounds, stream)
    for form, most in (("packed", 100.0), ("dict", 1_000.0)):
        p99 = statistics.median(_at(one[form]["look"][LONG], 0.99) for one in rounds)
        yield _figure(f"{form}.p99_5120", p99, "us", f"<= {most:g}" if form == "packed" else "reported",
                      p99 <= most or form == "dict")  # fmt: skip


DEPTHS = ("depths", "exact_depths")
RATIOS = (
    ("packed.apply", "packed", "apply_cpu", "apply_cpu", 2.5),
    ("packed.from_bytes", "packed", "listed_cpu", "apply_cpu", 2.0),
    ("packed.from_packed_bytes", "packed", "packed_cpu", "apply_cpu", 3.0),
    ("packed.lookup_5120", "packed", "look", "look", 20.0),
    ("packed.exact_5120", "packed", "exact", "look", 1.0),
    ("dict.apply", "dict", "apply_cpu", "apply_cpu", 0.8),
    ("dict.from_bytes", "dict", "listed_cpu", "apply_cpu", 0.8),
    ("dict.lookup_5120", "dict", "look", "look", 2.0),
)


def _ratio(name: str, rounds: list[Result], form: str, what: tuple[str, str], least: float, operations: int) -> Figure:
    """How many times faster than the peer: the median over the rounds."""

    def cost(side: Result, key: str) -> float:
        return _at(side[key][LONG], 0.5) if isinstance(side[key], dict) else side[key] * 1e6

    ours = [cost(one[form], what[0]) for one in rounds]
    lookup = isinstance(rounds[0][form][what[0]], dict)
    told: dict[str, Any] = {"ours_us" if lookup else "ours_Mops": _shown(ours, operations, lookup)}
    if lookup:  # a thread remembers where stretches ended: half of the look-ups ask what was asked before
        told["first_time_us"] = round(statistics.median(one[form][f"{what[0]}_first"][LONG] for one in rounds) * 1e6, 1)
    if "peer" not in rounds[0]:
        return _figure(name, None, "x", f">= {least:g}; not measured: {WHEEL} cannot be had", False, told)
    theirs = [cost(one["peer"], what[1]) for one in rounds]
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    told |= {"theirs": _shown(theirs, operations, lookup), "min": round(min(ratios), 2), "max": round(max(ratios), 2)}
    value = statistics.median(ratios)
    return _figure(name, value, "x", f">= {least:g}", value >= least, {**told, "pairs": len(ratios)})


def _shown(costs: list[float], operations: int, lookup: bool) -> float:
    median = statistics.median(costs)
    return round(median, 1) if lookup else round(operations / median, 2)


def _bytes(rounds: list[Result], stream: Stream) -> Iterator[Figure]:
    for form, most in (("packed", 40.0), ("dict", 110.0)):
        each = statistics.median(one[form]["bytes"] / stream.blocks for one in rounds)
        told = {"blocks": stream.blocks, "sets": rounds[0][form]["sizes"]["sets"]}
        yield _figure(f"{form}.bytes_per_block", each, "B resident", f"<= {most:g}", each <= most, told)
    if "peer" not in rounds[0]:
        yield _figure("packed.bytes_share", None, "x", f"<= 0.25; not measured: {WHEEL} cannot be had", False)
        return
    shares = [one["packed"]["bytes"] / one["peer"]["bytes"] for one in rounds]
    theirs = statistics.median(one["peer"]["bytes"] / stream.blocks for one in rounds)
    value = statistics.median(shares)
    yield _figure("packed.bytes_share", value, "x", "<= 0.25", value <= 0.25, {"theirs": round(theirs, 1)})


# --------------------------------------------------------------------- growth
def growth(base: Path, quick: bool) -> Iterator[Figure]:
    """Slopes in log-log, over the medians of runs in turn. Workers: only the deepest eight owners are listed."""
    tenth, turns = 10 if quick else 1, 1 if quick else 3
    sizes, fleets = (1_000_000 // tenth, 10_000_000 // tenth), (64, 4_096)
    cases = {(sizes[0], 1_024), (sizes[1], 1_024), *((sizes[0], workers) for workers in fleets)}
    for form in ("packed", "dict"):
        got: dict[tuple[int, int], list[Result]] = {case: [] for case in cases}
        for _ in range(turns):
            for case in sorted(cases):
                stream = agents(*case)
                got[case].append({**_ours(form, _saved(base, stream), "few"), "operations": stream.operations,
                                  "blocks": stream.blocks})  # fmt: skip
        few, many = got[sizes[0], 1_024], got[sizes[1], 1_024]
        narrow, wide = (got[sizes[0], workers] for workers in fleets)
        span, fleet = math.log(many[0]["blocks"] / few[0]["blocks"]), math.log(fleets[1] / fleets[0])
        yield _slope(f"{form}.lookup_over_blocks", few, many, _look, span, 0.25)
        yield _slope(f"{form}.apply_over_blocks", few, many, _apply, span, 0.25)
        yield _slope(f"{form}.bytes_over_blocks", few, many, lambda r: r["bytes"], span, 1.1)
        yield _slope(f"{form}.sets_over_blocks", few, many, lambda r: r["sizes"]["sets"], span, 0.75)
        yield _slope(f"{form}.lookup_over_workers", narrow, wide, _look, fleet, 0.15)
        yield _slope(f"{form}.apply_over_workers", narrow, wide, _apply, fleet, 0.1)
        short = [{"look": {LONG: one["look"]["128"]}} for one in narrow]
        yield _slope(f"{form}.lookup_over_chain", short, narrow, _look, math.log(5120 / 128), 0.55)


def _look(one: Result) -> float:
    return _at(one["look"][LONG], 0.5)


def _apply(one: Result) -> float:
    return float(one["apply_cpu"] / one["operations"])


def _slope(name: str, small: list[Result], large: list[Result], cost: Any, span: float, most: float) -> Figure:
    a, b = (statistics.median(map(cost, some)) for some in (small, large))
    value = math.log(b / a) / span
    told = {"small": float(f"{a:.3g}"), "large": float(f"{b:.3g}")}
    return _figure(name, value, "exponent", f"<= {most:g} (+0.1 noise)", value <= most + 0.1, told)


# -------------------------------------------------------------------- rebuild
def rebuild(quick: bool) -> Iterator[Figure]:
    """From the store's rows: a start from nothing, and a rebuild while the old view serves."""
    from bench.store_sides import Cluster

    blocks, cluster = 1_000_000 if quick else 10_000_000, Cluster()
    try:
        with cluster.database() as name:
            superuser = cluster.postgres.superuser_dsn(name)
            with psycopg.connect(superuser, autocommit=True) as cx:
                plant(cx, blocks)
            env = os.environ | cluster.postgres.env(name) | {"BENCH_SUPERUSER": superuser}
            env |= {"KVC_ENV": "test", "KVC_DB_ROLE": "operator", "DJANGO_SETTINGS_MODULE": "kvconsole.settings.test"}
            command = [sys.executable, "-m", "bench.routing_rebuild"]
            runs = []
            for _ in range(1 if quick else 3):
                done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, env=env)
                runs.append(json.loads(done.stdout))
    finally:
        cluster.close()
    middle = {key: statistics.median(one[key] for one in runs) for key in runs[0] if key.endswith("_s")}
    during, told = runs[0]["during"], {"blocks": blocks, "owners": 2, "form": runs[0]["form"]}
    size = statistics.median(one["rss"] for one in runs) / blocks
    told |= {"all": [round(one["load_s"], 2) for one in runs], "compile_s": round(middle["compile_s"], 2)}
    yield _figure("rebuild.load", middle["load_s"], "s", "<= 4", middle["load_s"] <= 4, told)
    first = {"mode": runs[0]["first_mode"], "first_hit_s": round(middle["first_hit_s"], 2)}
    yield _figure("rebuild.first_answer", middle["first_answer_s"], "s", "<= 1, marked",
                  middle["first_answer_s"] <= 1 and first["mode"] != "live", first)  # fmt: skip
    yield _figure("rebuild.beside_lookups", middle["rebuild_s"], "s", "<= 4", middle["rebuild_s"] <= 4,
                  {"all": [round(one["rebuild_s"], 2) for one in runs]})  # fmt: skip
    served = during["answers"] > 0 and during["answers"] == during["with_hits"]
    yield _figure("rebuild.old_view_serves", during["with_hits"] / max(1, during["answers"]), "share of answers",
                  "1, marked rebuilding", served, during)  # fmt: skip
    yield _figure("rebuild.bytes_per_block", size, "B resident, with what follows the ledger", "reported", True)
