"""Pages of routing in a real browser: whole by axe, wide and narrow, in both languages; live, and by keys alone."""

import os

import psycopg
import pytest

from tests.frontend import plant_routing
from tests.frontend.test_browser import english

pytestmark = pytest.mark.browser
FULL = os.environ.get("KVC_ACCEPT") == "full"
LOOKS = {"en": ("light", (1440, 320)), "zh-hans": ("dark", (320, 1440))}
PAGES = (
    ("page-routing", "/routing"),
    ("page-routing", "/routing?answer=recompute"),
    ("page-decision", "/routing/decisions/{held}?without=0"),
    ("page-decision", "/routing/decisions/{nobody}"),
    ("page-routing-compare", "/routing/compare"),
    ("page-policies", "/routing/policies"),
    ("page-policy", "/routing/policies/default?check=1&kind=linear"),
    ("page-policy", "/routing/policies/default?check=1&params-fresh_ms=x"),
    ("page-prefixes", "/prefixes"),
    ("page-economics", "/economics?layers=x"),
    ("page-topology", "/topology?without=fra-p1"),
)
BEYOND = """[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth
    && !e.closest('.tbl-wrap')).slice(0, 4).map((e) => e.outerHTML.slice(0, 90))"""
"""What stands beyond the edge."""
CODES = {
    *("predicted", "linear", "tree_p2c", "tier_weighted", "least_loaded", "round_robin", "random", "default"),
    *("gpu", "bf", "fp", "candidates", "infinity"),
}
"""Names of kinds and parameters, as documents have them, and of hardware."""


@pytest.fixture(scope="module")
def routed(site):
    """Decisions, loads and first runs in the fleet of the site; taken away afterwards."""
    dsn = site.database.dsn("superuser")
    made = plant_routing.decisions(dsn)
    plant_routing.loads(dsn)
    plant_routing.prefixes(dsn)
    yield made
    with psycopg.connect(dsn, autocommit=True) as cx:
        for table in (
            "routing_decision",
            "routing_tally",
            "catalog_workerload",
            "catalog_placement",
            "catalog_segment",
        ):
            cx.execute(f"TRUNCATE {table}")


def test_every_page_is_looked_at():
    from frontend.routing.urls import urlpatterns

    assert {p.name for p in urlpatterns} == {name for name, _path in PAGES}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("language", LOOKS)
def test_every_page_is_whole_fits_and_speaks_one_language(visit, axe, routed, language):
    theme, widths = LOOKS[language]
    one, faults = visit(language=language, theme=theme), []
    for n, (_name, path) in enumerate(PAGES):
        one.go(path.format(**vars(routed)))
        if "{held}" in path:
            one.wait("document.documentElement.dataset.plot === 'drawn'", 40)
        for width in widths:
            one.page.set_viewport_size({"width": width, "height": 900})
            wide = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            beyond = one.page.evaluate(BEYOND) if wide[0] > wide[1] else ""
            faults += [f"{path} at {width}: {wide} {beyond}"] if wide[0] > wide[1] else []
        found = []
        if FULL or n % 2 == list(LOOKS).index(language):
            one.page.evaluate(axe)
            found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        faults += [f"{path}: {v['id']} {[n['html'][:160] for n in v['nodes'][:2]]}" for v in found]
        left = english(one) - CODES if language != "en" else set()
        faults += [f"{path}: {sorted(left)}"] if left else []
    assert not faults


@pytest.mark.timeout(120)
def test_the_waterfall_is_drawn_as_its_table_says_and_its_ghost_is_longer(visit, routed):
    one = visit()
    one.go(f"/routing/decisions/{routed.held}")
    one.wait("document.documentElement.dataset.plot === 'drawn'", 40)
    ends = one.page.evaluate(
        """(() => { const host = document.querySelector('[data-fall]');
        return host.data.map((trace) => Math.max(...trace.x.map((x, i) => x + trace.base[i]))); })()"""
    )
    table = one.page.evaluate(
        """[...document.querySelectorAll('#fall tfoot td')].map((c) => Number(c.textContent.replace(/[^0-9.]/g, '')))"""
    )
    ghost, expected, measured = ends
    assert [expected, measured, ghost] == pytest.approx(table, abs=1)
    assert ghost > expected
    one.page.keyboard.press("Tab")
    one.page.click("#fallt-table")
    assert one.page.locator("#fall table").is_visible()


@pytest.mark.timeout(180)
def test_the_tail_moves_by_the_socket_and_its_counter_leaves_nothing_out(visit, site, routed):
    one = visit()
    one.go("/routing")
    one.wait("document.documentElement.dataset.socket === 'on'", 30)
    one.wait("Number(document.documentElement.dataset.tailFrames ?? 0) > 0", 30)
    dsn = site.database.dsn("superuser")
    again = plant_routing.decisions(dsn)
    one.wait(f"Boolean(document.querySelector('tr[data-id=\"{again.foreign}\"]'))", 30)
    counted = one.page.evaluate(
        """Object.fromEntries([...document.querySelectorAll('[data-counted]')]
        .map((e) => [e.dataset.counted, Number(e.textContent.replace(/[^0-9]/g, ''))]))"""
    )
    assert counted["made"] == counted["recorded"] + counted["sampled_out"] + counted["dropped"]
    one.page.keyboard.press("g")
    one.page.keyboard.press("y")
    one.page.wait_for_url("**/economics")
    one.page.keyboard.press("g")
    one.page.keyboard.press("l")
    one.page.wait_for_url("**/topology")


@pytest.mark.timeout(120)
def test_a_tenant_s_own_people_see_no_node(visit, routed):
    one = visit(user="acme-admin")
    for path in ("/routing", f"/routing/decisions/{routed.held}", "/prefixes", "/economics"):
        one.go(path)
        assert "fra-p" not in one.page.inner_text("main"), path
