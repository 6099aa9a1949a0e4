"""From an agent to the pixels: real processes, a real browser, and nothing reloaded in between."""

import re
import time

import pytest

from tests.frontend.conftest import Visit

pytestmark = [pytest.mark.walk, pytest.mark.browser, pytest.mark.timeout(300)]

OLD = "'old' in document.documentElement.dataset"
PROCESSES = ("signer", "web", "ingest", "worker", "beat", "walk-1")


@pytest.fixture(scope="module")
def console(shared_console):
    """One node that has joined, and a trace. The tests of this module are in the order in which they fill it."""
    shared_console.start(*PROCESSES[:-1])
    shared_console.seed()
    shared_console.node("walk-1")
    trace = str(shared_console.state / "trace.jsonl")
    shared_console.manage("make_trace", trace, "--seconds", "20", "--rate", "10", "--tenants", "acme-code")
    return shared_console


@pytest.fixture
def watched(console, chromium):
    """Everything runs, and a browser is on the overview that nobody reloads."""
    console.start(*(name for name in PROCESSES if name not in console.processes))
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    one = Visit(context.new_page(), console.url)
    console.login(one.page)
    one.listen()
    one.go("/")
    one.wait("document.documentElement.dataset.socket === 'on'", 30)
    one.page.evaluate("globalThis.unreloaded = true")
    until(lambda: "walk-1" in one.page.inner_text("#node-tiles"), 30, "the tile of the node that joined")
    until(lambda: one.page.inner_text("a[data-node='walk-1'] .status") == "ready", 30, "the node to be ready")
    yield one
    context.close()


def replay(console, count: int) -> None:
    """The first requests of the trace have been made."""
    trace = str(console.state / "trace.jsonl")
    options = ("--speed", "max", "--limit", str(count), "--model", "ref-64", "--no-router")
    console.manage("replay", trace, *options, timeout=120)


def blocks(page) -> int:
    """Blocks that the strip shows."""
    number, prefix = re.match(r"(?:≥ )?([\d.,]+)\s*([kM]?)", page.inner_text("[data-num=blocks]")).groups()
    return int(float(number.replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6}[prefix])


def until(condition, seconds: float, what: str) -> float:
    """Seconds until the condition held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_paused_page_stands_still_and_catches_up(watched, console):
    """Few requests, as there must be room for those of the next test."""
    page = watched.page
    page.keyboard.press("l")
    assert page.get_attribute("[data-live]", "data-state") == "paused"
    assert blocks(page) == 0
    replay(console, 2)
    time.sleep(2)
    assert blocks(page) == 0
    page.keyboard.press("l")
    until(lambda: blocks(page) > 0, 20, "what happened meanwhile")


def test_a_tile_moves_while_a_trace_is_replayed(watched, console):
    page = watched.page
    tile = "[data-node='walk-1']"
    page.wait_for_selector(f"a{tile}")
    few = blocks(page)
    fill = f"a{tile} [data-col=hbm] [data-fill=known]"
    before = page.get_attribute(f"{fill} >> nth=0", "height")
    replay(console, 60)
    until(lambda: blocks(page) > few, 20, "blocks in the strip")
    until(lambda: page.get_attribute(f"{fill} >> nth=0", "height") != before, 20, "the column of hbm")
    assert page.evaluate("globalThis.unreloaded")
    watched.go("/map")
    watched.wait("document.documentElement.dataset.heat === 'ready'", 90)  # by itself, once the first column is there
    rows = page.evaluate("kvcHeat.bands.map((b) => b.data.id)")
    newest = page.evaluate("kvcHeat.matrix.times.at(-1)")
    until(lambda: page.evaluate("kvcHeat.matrix.times.at(-1)") > newest, 40, "the next column")
    kept = page.evaluate("kvcHeat.bands.map((b) => b.data.id)")
    assert [r for r in kept if r in rows] == [r for r in rows if r in kept], "rows keep their order"
    watched.go("/nodes/walk-1")
    watched.wait("document.documentElement.dataset.nodeFrames !== undefined", 30)
    assert "walk-1" in page.inner_text("h1")
    assert not watched.errors
    assert not watched.foreign


def test_without_the_socket_the_page_says_so_and_comes_back(watched, console):
    page = watched.page
    console.kill("web")
    until(lambda: page.is_visible("[data-live-banner]"), 25, "the banner")
    assert re.search(r" since \d\d:\d\d:\d\d UTC", page.inner_text("[data-live-away]"))
    assert page.get_attribute("[data-live]", "data-state") == "away"
    until(lambda: page.evaluate(OLD), 5, "the veil over all figures")
    console.start("web")
    until(lambda: not page.is_visible("[data-live-banner]"), 60, "the banner to go")
    until(lambda: page.get_attribute("[data-live]", "data-state") == "live", 20, "live again")
    assert not page.evaluate(OLD)
    assert page.evaluate("globalThis.unreloaded"), "nothing was reloaded"


def test_a_dead_writer_makes_the_page_stale_until_it_is_back(watched, console):
    page = watched.page
    until(lambda: page.get_attribute("[data-live]", "data-state") == "live", 20, "live")
    assert not page.evaluate(OLD)
    console.kill("ingest")
    until(lambda: page.get_attribute("[data-live]", "data-state") == "old", 30, "the badge")
    assert page.evaluate(OLD)
    assert re.search(r"The writer has been silent since \d\d:\d\d:\d\d UTC", page.inner_text("[data-live-away]"))
    console.start("ingest")
    until(lambda: page.get_attribute("[data-live]", "data-state") == "live", 60, "live again")
    assert not page.evaluate(OLD)
    assert page.evaluate("globalThis.unreloaded"), "nothing was reloaded"


def test_a_node_that_dies_is_veiled(watched, console):
    page = watched.page
    page.wait_for_selector("a[data-node='walk-1']")
    console.kill("walk-1")
    until(lambda: page.get_attribute("a[data-node='walk-1']", "data-state") == "silent", 40, "the veil")
    until(lambda: "walk-1" in page.inner_text("#alerts"), 20, "the alert")
