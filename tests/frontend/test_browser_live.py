"""The badge and the look of figures while writer, server or socket are away: stale is never shown as fresh."""

import re
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.frontend import plant

pytestmark = pytest.mark.browser
OLD = "'old' in document.documentElement.dataset"
LIVE = "document.querySelector('[data-live]').dataset.state === 'live'"
PAGES = ("/", "/map", "/nodes", "/nodes/fra-p2")
SOCKETS = """globalThis.kvcSockets = [];
class Refused extends EventTarget { constructor() { super(); setTimeout(() => this.onclose({}), 100); } }
WebSocket = class extends WebSocket { constructor(url) {
  if (globalThis.kvcCut) return new Refused();
  super(url); kvcSockets.push(this); } };"""
"""Sockets of a page that a test can cut, and that are refused while `kvcCut` is set."""
COLOUR = "getComputedStyle(document.querySelector('[data-live]')).color"


@pytest.fixture
def writer(site):
    """Sets when the writer last showed life: `writer(seconds ago)`; afterwards it lives again."""
    now = datetime.now(UTC)
    with psycopg.connect(site.database.dsn("superuser"), autocommit=True) as cx:

        def lived(ago: float) -> datetime:
            at = datetime.now(UTC) - timedelta(seconds=ago)
            cx.execute("UPDATE catalog_shard SET seen_at = %s", (at,))
            cx.execute("UPDATE catalog_pulse SET at = %s", (at,))
            return at

        yield lived
        plant.writer(cx, now)


def state(one) -> str:
    return one.page.get_attribute("[data-live]", "data-state")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("language", "word", "said"), [("en", "Stale", "writer"), ("zh-hans", "已过时", "写入器")])
def test_a_silent_writer_veils_each_page_until_it_speaks_again(visit, writer, language, word, said):
    """All pages are open at once, and wait together."""
    open_pages = [(path, visit(language=language)) for path in PAGES]
    green = {}
    for path, one in open_pages:
        writer(0)
        one.go(path)
        one.wait(LIVE)
        green[path] = one.page.evaluate(COLOUR)
        assert not one.page.evaluate(OLD), path
    for _, one in open_pages:
        writer(0)
        one.wait(f"!({OLD}) && {LIVE}")
    at = writer(13)  # two seconds more, and the page's promise is broken
    for path, one in open_pages:
        one.wait(OLD, 12)
        one.wait("document.querySelector('[data-live]').dataset.state === 'old'")
        assert one.page.inner_text("[data-live-word]") == word, path
        assert one.page.evaluate(COLOUR) != green[path], path
        # On a busy machine the page breaks its promise before it hears of the writer's newest sign of life.
        one.wait(f"document.querySelector('[data-live-banner]').innerText.includes('{at:%H:%M:%S} UTC')", 12)
        banner = one.page.inner_text("[data-live-away]")
        assert f"{at:%H:%M:%S} UTC" in banner, path
        assert said in banner, path
        assert f"{at:%H:%M:%S} UTC" in one.page.inner_text("[data-live-lag]"), path
    for path, one in open_pages:
        writer(0)
        one.wait(f"!({OLD}) && {LIVE}", 12)
        assert not one.page.is_visible("[data-live-banner]"), path


def test_figures_of_a_silent_writer_lose_ink_and_colour(visit, writer):
    one = visit()
    writer(0)
    one.go("/")
    one.wait(LIVE)
    looks = """['.num', '.ladder', '.tbl td'].map((s) => getComputedStyle(document.querySelector(`.main ${s}`)).color)
        .concat(['.bar', '.cols', '.spark', '.chart > svg', '.tile .status'].map((s) =>
        getComputedStyle(document.querySelector(`.main ${s}`)).filter))
        .concat([...document.querySelectorAll('.main .panel-body, .main .kpi')].map((e) =>
        getComputedStyle(e).backgroundImage))"""
    fresh = one.page.evaluate(looks)
    writer(60)
    one.wait(OLD)
    stale = one.page.evaluate(looks)
    assert len(fresh) > 12
    assert not [pair for pair in zip(fresh, stale, strict=True) if pair[0] == pair[1]]


def test_a_console_that_gives_no_answer_is_away_within_seconds(visit):
    """Every way to the server is cut: badge and figures say so, the map keeps its picture; then all is live again."""
    one = visit()
    one.page.add_init_script(SOCKETS)
    one.go("/map")
    one.wait("document.documentElement.dataset.heat === 'ready'", 60)
    one.wait(LIVE)
    one.page.route("**/*", lambda route: route.abort())
    one.page.evaluate("kvcCut = true; kvcSockets.forEach((socket) => socket.close())")
    began = time.monotonic()
    one.wait(OLD, 25)  # an answer just before the cut holds for 15 s
    assert time.monotonic() - began > 3, "a short break is no alarm"
    one.wait("document.querySelector('[data-live]').dataset.state === 'away'")
    assert re.search(r"Nothing has come .* since \d\d:\d\d:\d\d UTC", one.page.inner_text("[data-live-away]"))
    assert re.search(r"since \d\d:\d\d:\d\d UTC", one.page.inner_text("[data-live-lag]"))
    one.page.wait_for_timeout(6_000)
    assert one.page.is_visible("[data-heat]"), "the last known picture stays, veiled"
    one.page.unroute("**/*")
    one.page.evaluate("kvcCut = false")
    one.wait(f"!({OLD}) && {LIVE}", 30)
    one.errors.clear()  # the browser reports the requests that did not come through


def test_where_only_the_socket_is_cut_figures_come_by_asking(visit):
    """A proxy that lets no socket through: not live, and not veiled, because each answer is fresh."""
    one = visit()
    one.page.add_init_script(SOCKETS + "kvcCut = true;")
    one.go("/")
    one.wait("document.querySelector('[data-live]').dataset.state === 'away'", 12)
    one.page.wait_for_timeout(1_500)
    assert not one.page.evaluate(OLD)
    assert "Not live since" in one.page.inner_text("[data-live-away]")
    one.page.wait_for_timeout(11_000)
    assert not one.page.evaluate(OLD)
    one.errors.clear()  # the browser reports each refused socket


def test_the_clock_of_the_rail_does_not_stand_still(visit):
    one = visit()
    one.go("/docs/problems")
    shown = one.page.inner_text("[data-clock]")
    one.wait(f"document.querySelector('[data-clock]').textContent !== '{shown}'", 3)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_a_stale_page(visit, writer, axe, theme):
    one = visit(theme=theme)
    writer(60)
    one.go("/")
    one.wait(OLD)
    one.page.evaluate(axe)
    found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert not [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found]
