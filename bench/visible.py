"""Committed → visible in open browsers, the Map's first paint over 10^7 stored blocks, and the loss of a node.

Real processes over a real database; 5 browsers, each a process of its own, show the Overview. What is committed are
frames of three nodes through the writer: blocks and marks. A page notes, in the frame after its text changed, which
text it shows and when; both clocks are this machine's.
"""

import contextlib
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg

from bench.sender import Sender
from bench.store_sides import NODES, TENANT, Cluster
from catalog.index.steps import Touched, Work
from catalog.store import Store
from kvconsole import reaper
from kvconsole.embedded import Valkey
from tests.conftest import Database, browser_flags, browser_path
from tests.running import Console

Figure = dict[str, Any]
BROWSERS = 5
WATCH = """(node) => {
  globalThis.seen = []; let last = '';
  const look = () => {
    const tile = document.querySelector(`[data-node="${node}"]`);
    const share = tile?.querySelector('[data-key="hbm"] [data-share]');
    const text = `${tile?.dataset.state ?? ''}/${share?.textContent ?? ''}`;
    if (text === last) return;
    last = text;
    requestAnimationFrame(() => seen.push([text, Date.now()]));
  };
  const all = {subtree: true, childList: true, characterData: true, attributes: true};
  new MutationObserver(look).observe(document.body, all);
  look();
}"""
PAINTED = """new MutationObserver((_, o) => {
  if (document.documentElement.dataset.heat !== 'ready') return;
  o.disconnect();
  requestAnimationFrame(() => { globalThis.paintedAt = performance.now(); });
}).observe(document, {subtree: true, childList: true, attributes: true});"""

PARTS = """() => {
  const page = performance.getEntriesByType('navigation')[0], files = performance.getEntriesByType('resource');
  const heat = files.find((f) => f.name.includes('heat.bin'));
  return {page_answered: page.responseEnd, heat_asked: heat.startTime, heat_answered: heat.responseEnd,
    files: files.length, painted: paintedAt};
}"""
"""When what happened, in ms from the navigation on."""


def run(quick: bool) -> Iterator[Figure]:
    """Visible, loss, first paint."""
    cluster, base = Cluster(), Path(tempfile.mkdtemp(prefix="kvc-bench-"))
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name, _console(base / "live", cluster, name, broker) as console:
            yield from live(console, quick)
        with cluster.database() as name, _console(base / "paint", cluster, name, broker) as console:
            yield from first_paint(cluster, name, console, quick)
    finally:
        broker.remove()
        cluster.close()
        reaper.close_shared()
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _console(state: Path, cluster: Cluster, name: str, broker: Valkey) -> Iterator[Console]:
    console = Console(state, database=Database(cluster.postgres, name), broker=broker)
    try:
        console.seed()
        yield console
    finally:
        console.stop()


@contextlib.contextmanager
def browsers(count: int) -> Iterator[list[Any]]:
    """So many browsers, each a process tree of its own."""
    from playwright.sync_api import sync_playwright

    path = browser_path()
    if path is None:
        raise RuntimeError("no browser: install chromium or name one in KVC_BROWSER")
    with sync_playwright() as playwright:
        started = []
        try:
            for _ in range(count):
                started.append(playwright.chromium.launch(executable_path=path, args=browser_flags()))
            yield started
        finally:
            for browser in started:
                browser.close()


def p95(values: list[float]) -> float:
    """The value that 95 % do not exceed."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def figure(name: str, value: float, unit: str, target: float, told: Any) -> Figure:
    """One line of the bench."""
    ok = value <= target
    return {"name": f"visible.{name}", "value": round(value, 3), "unit": unit, "target": f"<= {target:g}", "ok": ok,
            "peer": told}  # fmt: skip


# --- committed → visible, and loss --------------------------------------------


def live(console: Console, quick: bool) -> Iterator[Figure]:
    """5 browsers on the Overview while three nodes report."""
    console.start("signer", "web", "ingest", "worker", "beat")
    with contextlib.ExitStack() as stack:
        senders = []
        for i in range(3):
            senders.append(Sender.joined(console, f"bench-{i}"))
            stack.callback(senders[-1].stop)
        started = stack.enter_context(browsers(BROWSERS))
        pages = [browser.new_context().new_page() for browser in started]
        for page in pages:
            console.login(page)
            page.goto(console.url)
            page.wait_for_selector('html[data-socket="on"]', state="attached")
            page.wait_for_selector(f'[data-node="{senders[0].name}"]')
        yield visible(pages, senders[0], 15 if quick else 80)
        yield from loss(console, pages, senders)


def visible(pages: list[Any], sender: Sender, times: int) -> Figure:
    """Seconds from the writer's answer, which follows the commit, to the frame that shows the text, in each page."""
    for page in pages:
        page.evaluate(WATCH, sender.name)
    rnd, said = random.Random(1), dict[str, tuple[float, float]]()
    shares = rnd.sample(range(5, 95), times)
    for share in shares:
        sent = time.time()
        sender.say(sender.mark("hbm", share / 100), sender.blocks(4))
        said[f"/{share}"] = (sent, time.time())
        time.sleep(rnd.uniform(0.8, 1.6))
    time.sleep(3)
    after_commit, after_sending, missed = [], [], 0
    for page in pages:
        seen = {text: at / 1000 for text, at in reversed(page.evaluate("seen"))}
        for text, (sent, answered) in said.items():
            if text in seen:
                after_commit.append(max(0.0, seen[text] - answered))
                after_sending.append(seen[text] - sent)
            else:
                missed += 1
                after_commit.append(60.0)
    if not after_sending:
        raise RuntimeError(f"no page showed anything; the first saw {pages[0].evaluate('seen')}")
    told = {"browsers": len(pages), "samples": len(after_commit), "never_shown": missed,
            "p50": round(statistics.median(after_commit), 3), "max": round(max(after_commit), 3),
            "sent_to_visible_p95": round(p95(after_sending), 3)}  # fmt: skip
    return figure("committed_to_visible_p95", p95(after_commit), "s", 1.0, told)


def loss(console: Console, pages: list[Any], senders: list[Sender]) -> Iterator[Figure]:
    """Three nodes fall silent; from the commit of each loss until no look-up names it and every page veils its tile."""
    client = _client(console, pages[0])
    off, gone, late = [], [], []
    for sender in senders:
        sender.say(sender.blocks(64, base=True))
        deadline = time.monotonic() + 20
        while not _named(client, sender):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{sender.name} was never routable")
            time.sleep(0.1)
        for page in pages:
            page.evaluate(WATCH, sender.name)
        sender.stop()
        committed: list[float] = []
        watcher = threading.Thread(target=_committed, args=(console, sender, committed), daemon=True)
        watcher.start()
        while _named(client, sender):
            time.sleep(0.01)
            if committed and time.time() > committed[0] + 30:
                break
        unrouted = time.time()
        watcher.join(60)
        time.sleep(4)
        off.append(max(0.0, unrouted - committed[0]))
        for page in pages:
            veiled = [at / 1000 for text, at in page.evaluate("seen") if text.startswith("silent/")]
            (gone if veiled else late).append(max(0.0, veiled[0] - committed[0]) if veiled else 60.0)
    yield figure("loss_not_routable_max", max(off), "s", 1.0, {"losses": [round(x, 3) for x in off]})
    told = {"samples": len(gone) + len(late), "never": len(late), "p50": round(statistics.median(gone or late), 3)}
    yield figure("loss_gone_from_map_max", max(gone + late), "s", 1.0, told)


def _committed(console: Console, sender: Sender, out: list[float]) -> None:
    """The last time at which the loss was not committed yet, to 5 ms: on the safe side."""
    query = "SELECT bool_or(state = 'lost') FROM catalog_source WHERE node_id = %s"
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        before, deadline = time.time(), time.monotonic() + 50
        while time.monotonic() < deadline:
            now = time.time()
            if cx.execute(query, (sender.node,)).fetchone() == (True,):
                break
            before = now
            time.sleep(0.005)
    out.append(before)


def _client(console: Console, page: Any) -> httpx.Client:
    """REST as the person of this page."""
    cookies = {c["name"]: c["value"] for c in page.context.cookies()}
    token = page.get_attribute("[name=csrfmiddlewaretoken]", "value")
    headers = {"X-CSRFToken": token, "Origin": console.url, "Referer": console.url}
    return httpx.Client(base_url=console.url, cookies=cookies, headers=headers, trust_env=False, timeout=30)


def _named(client: httpx.Client, sender: Sender) -> bool:
    """Whether a look-up of what the node holds names it."""
    keys = [k.hex() for k in sender.base[:8]]
    answer = client.post("/api/v1/prefixes:lookup", json={"namespace": sender.ns.hex(), "keys": keys})
    answer.raise_for_status()
    return any(o["node"] == sender.name for run in answer.json()["runs"] for o in run["owners"])


# --- first paint ------------------------------------------------------------------


def first_paint(cluster: Cluster, name: str, console: Console, quick: bool) -> Iterator[Figure]:
    """From navigation to the frame that shows the heat map: 10^7 blocks stored, an hour of 1,500 busy families."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvconsole.settings.test")
    django.setup()
    from bench.live import fill_heat

    blocks = _store(cluster, name, 300_000 if quick else 10_000_000)
    fill_heat(cluster, name)
    console.start("web")
    with browsers(1) as (browser,):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        console.login(page)
        page.add_init_script(PAINTED)
        took, parts = [], []
        for _ in range(6 if quick else 31):
            page.goto(f"{console.url}/map")
            deadline = time.monotonic() + 60
            while not (at := page.evaluate("globalThis.paintedAt ?? 0")):
                if time.monotonic() > deadline:
                    state = page.evaluate("document.documentElement.dataset.heat")
                    raise RuntimeError(f"the map was not painted: {state}")
                time.sleep(0.02)
            took.append(at / 1000)
            parts.append(page.evaluate(PARTS))
    told = {"stored_blocks": blocks, "first_ever": round(took[0], 3), "p50": round(statistics.median(took[1:]), 3)}
    told["median_ms"] = {name: round(statistics.median(p[name] for p in parts[1:])) for name in parts[0]}
    yield figure("map_first_paint_p95", p95(took[1:]) * 1000, "ms", 800, told)


def _store(cluster: Cluster, name: str, blocks: int) -> int:
    """So many blocks in chains of 200, on 8 owners, in 32 keyspaces; as the writer would have stored them."""
    store, first = Store(cluster.dsn(name)), Touched()
    m, chains = store.memory, 100
    nodes = [m.source(uuid.uuid5(NODES, f"paint{i}"), "engine", 0, first, time.time()).id for i in range(8)]
    spaces = [m.keyspace(i.to_bytes(32, "big"), 1, 0, first, tenant_id=TENANT).id for i in range(1, 33)]
    store.commit(first)
    for i in range(0, blocks, 200 * chains):
        work = []
        for j in range(chains):
            at = i // 200 + j
            work.append(Work("add", nodes[at % 8], "hbm", spaces[at % 32], os.urandom(32 * 200)))
        store.commit(m.apply(work))
    store.commit(Touched(), flush=True)
    stored = m.blocks()
    store.close()
    return stored
