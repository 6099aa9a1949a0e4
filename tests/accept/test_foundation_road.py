"""Foundation, seen from outside: replay, chaos and hostile frames, with real agents and a real writer."""

import json
import os
import random
import threading
import time
import uuid
from pathlib import Path

import httpx
import msgspec
import psycopg
import pytest

from kvcore.fence import Rules
from kvcore.fence_check import check
from kvcore.keys import CATALOG_KEY_BYTES, unpack
from tests.accept.fleet import (
    TRACE,
    all_exact,
    catalog,
    equal_within,
    inventories,
    quiet,
    rows,
    say,
    source_states,
    until,
)
from tests.accept.lossy import LossyProxy
from tests.golden.hostile import hostile_frames
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
NODES = ("fra-p1", "fra-p2", "fra-d1", "ams-m1")
TIERS = ("hbm=16MiB", "pinned=8MiB", "dram=32MiB", "ssd=96MiB", "remote=64MiB")
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
"""The issue's own sizes; `make accept` sets it. Without it the same tests run on less."""


def fleet(console: Console, *, names: tuple[str, ...] = NODES) -> None:
    console.start("signer", "web", "ingest", "worker", "beat")
    console.seed()
    console.nodes(*names, tiers=TIERS)
    until(lambda: {r[0] for r in rows(console, "SELECT state FROM catalog_node")} == {"ready"}, 30, "every node ready")


def trace(console: Console, count: int) -> tuple[Path, str]:
    """The real trace where it is, else a made one; and which of the two."""
    if Path(TRACE).is_file():
        return Path(TRACE), "conversation trace"
    made = console.state / "made.jsonl"
    console.manage("make_trace", str(made), "--seconds", str(count), "--rate", "2", "--repositories", "5")
    return made, "made trace (no KVC_TRACE)"


def uses(console: Console) -> int:
    """Requests of which a `use` item was committed: sums over all keyspaces, of the finest column that keeps them."""
    query = """SELECT coalesce(sum(requests), 0) FROM catalog_usage WHERE keyspace = -1 AND tier = ''
               AND layer = (SELECT min(layer) FROM catalog_usage WHERE keyspace = -1)"""
    return int(rows(console, query)[0][0])


@pytest.mark.timeout(1200)
def test_replaying_the_first_2000_requests_the_catalog_equals_the_inventories(console: Console) -> None:
    """Catalog = union of the agents' inventories, set-equal per owner, within 2 s of the last event."""
    fleet(console)
    count = 2000 if LONG else 150
    path, which = trace(console, count)
    start = time.monotonic()
    console.manage(
        "replay", str(path), "--limit", str(count), "--speed", "max", "--model", "ref-64", "--no-router",
        "--concurrency", "16", timeout=1000,
    )  # fmt: skip
    took = time.monotonic() - start
    until(lambda: quiet(console), 30, "every frame acknowledged")
    seconds, blocks = equal_within(console, 2.0)
    until(lambda: uses(console) >= count, 15, "the usage of every request")
    states = set(source_states(console).values())
    say("replay", trace=which, requests=count, replay_seconds=round(took, 1), blocks=blocks,
        equal_after_seconds=round(seconds, 2), use_items=uses(console), states=states)  # fmt: skip
    assert blocks > 1000
    assert uses(console) == count


@pytest.mark.timeout(600)
def test_with_losses_doubles_reordering_and_kills_the_catalog_equals_the_inventories(console: Console) -> None:
    """5 % dropped, 5 % doubled, reordered in a window of 50, each of 4 agents killed once; exact ≤ 10 s later."""
    seconds = 60 if LONG else 20
    with LossyProxy(console.ingest_url, seed=7) as proxy:
        console.site.ingest_urls = [proxy.url]
        fleet(console)
        path, _ = trace(console, 400)
        stop, never = threading.Event(), list[tuple[str, str]]()
        watcher = threading.Thread(target=_watch_gaps, args=(console, stop, never), daemon=True)
        watcher.start()
        driver = threading.Thread(target=_drive, args=(console, path, stop), daemon=True)
        driver.start()
        rnd, order = random.Random(3), list(NODES)
        rnd.shuffle(order)
        end = time.monotonic() + seconds
        for i, name in enumerate(order):
            time.sleep(max(0.0, end - seconds + seconds * (i + 0.5) / 4 - time.monotonic()))
            console.kill(name)
            time.sleep(1)
            console.start(name)
        time.sleep(max(0.0, end - time.monotonic()))
        stop.set()
        driver.join(60)
        proxy.calm = True
        start = time.monotonic()
        until(lambda: quiet(console), 10, "every frame acknowledged")
        until(lambda: all_exact(console), 10 - (time.monotonic() - start), "every source that can list exact")
        exact_after = time.monotonic() - start
        late, blocks = equal_within(console, 10 - exact_after)
        watcher.join(5)
    say(
        "chaos",
        seconds=seconds,
        **proxy.counts,
        blocks=blocks,
        exact_after_seconds=round(exact_after, 2),
        equal_after_seconds=round(exact_after + late, 2),
        false_exact=never,
    )
    assert not never
    assert min(proxy.counts[k] for k in ("dropped", "doubled", "reordered")) > 0


def _drive(console: Console, path: Path, stop: threading.Event) -> None:
    """Requests in a loop; what finds no node while agents are dead is no failure of the console."""
    import subprocess
    import sys

    from kvconsole.serverprocess import CLONE

    command = [
        sys.executable,
        "manage.py",
        "replay",
        str(path),
        "--limit",
        "400",
        "--speed",
        "30",
        "--model",
        "ref-64",
        "--no-router",
        "--loop",
    ]
    process = subprocess.Popen(
        command, cwd=CLONE, env=console.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stop.wait()
    process.terminate()
    process.wait(30)


def _watch_gaps(console: Console, stop: threading.Event, wrong: list[tuple[str, str]]) -> None:
    """No source whose open gap is recorded may be called exact in the same row."""
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        while not stop.is_set():
            query = "SELECT name, state FROM catalog_source WHERE state = 'exact' AND reason <> ''"
            wrong += [(n, s) for n, s in cx.execute(query).fetchall()]
            time.sleep(0.02)


@pytest.mark.timeout(300)
def test_1000_hostile_frames_end_no_process_and_cost_no_neighbour(console: Console) -> None:
    """0 process exits, valid neighbours exact, 1,000 counted."""
    console.start("signer", "web", "ingest")
    console.seed()
    directory = console.node("fra-p1")
    config = json.loads((directory / "agent.json").read_text())
    token = (directory / "node.token").read_text().strip()
    console.kill("fra-p1")  # its token is ours now
    count, good, refused = 1000 if LONG else 300, set[bytes](), 0
    head = {"node": config["node"], "source": "hostile", "boot": str(uuid.uuid4()), "stream": str(uuid.uuid4())}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
    with httpx.Client(timeout=30, trust_env=False) as client:
        for frame in hostile_frames(count, 11, ns=None, **head):
            answer = client.post(f"{console.ingest_url}/api/v1/ingest/events", content=frame.body, headers=headers)
            if frame.frame_code:
                assert answer.status_code in (400, 401, 403, 413, 409, 200), (frame.kind, answer.status_code)
                refused += answer.status_code != 200 or "rejected" in msgspec.msgpack.decode(answer.content)
                continue
            assert answer.status_code == 200, (frame.kind, answer.status_code, answer.content[:200])
            body = msgspec.msgpack.decode(answer.content)
            rejected = {r["index"]: r["code"] for r in body.get("rejected", [])}
            assert rejected == {i: c for i, c in enumerate(frame.item_codes) if c}, frame.kind
            refused += 1
            good.update(k[:CATALOG_KEY_BYTES] for blob in frame.neighbours for k in unpack(blob))
    held = {h.key for h in catalog(console) if h.source == "hostile"}
    counted = rows(console, "SELECT coalesce(sum(count), 0) FROM catalog_refusal")[0][0]
    say("hostile", frames=count, refused=refused, counted=int(counted), neighbours=len(good), exits=0)
    assert held == good
    assert refused == count
    assert counted >= count
    assert all(p.poll() is None for p in console.processes.values())


@pytest.mark.timeout(600)
def test_the_fence_checker_visits_500000_schedules_and_nothing_is_resurrected() -> None:
    """≥ 500,000 schedules: 0 resurrections; each removed rule is caught."""
    start = time.monotonic()
    full = check(3 if LONG else 2)
    caught = {rule: check(2, Rules(**{rule: False}), until=1).violations for rule in Rules.__struct_fields__}
    say("fence", schedules=full.schedules, resurrections=full.resurrections, violations=full.violations,
        rules_caught=f"{sum(map(bool, caught.values()))}/{len(caught)}",
        seconds=round(time.monotonic() - start, 1))  # fmt: skip
    assert full.schedules >= (500_000 if LONG else 30_000)
    assert full.violations == 0
    assert all(caught.values()), caught


def test_inventories_are_compared_per_owner(console: Console) -> None:
    """The comparison itself can fail: a block that only one side has is seen."""
    fleet(console, names=NODES[:1])
    made = console.state / "small.jsonl"
    console.manage("make_trace", str(made), "--seconds", "30", "--repository-ids", "1")
    console.manage("replay", str(made), "--limit", "3", "--speed", "max", "--model", "ref-64", "--no-router")
    until(lambda: quiet(console), 20, "every frame acknowledged")
    until(lambda: inventories(console), 20, "the node holds something")
    equal_within(console, 5)
    theirs = inventories(console)
    assert theirs
    assert catalog(console) != theirs - {next(iter(theirs))}
