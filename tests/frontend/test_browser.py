"""Pages in a real browser over one real `web` process: looks, words, access, keys; see also `test_browser_axe`."""

import re

import pytest
from django.urls import resolve

from kvconsole.infra.access import rule_for
from tests.frontend.reaching import FORMS, NO_PAGE, OPERATIONS

pytestmark = pytest.mark.browser
PAGES = (
    "/",
    "/map",
    "/map?view=tiles",
    "/nodes",
    "/nodes/fra-p2",
    "/tenants",
    "/tenants/acme-code",
    "/epochs?model=llama-3.1-8b",
    "/t/acme-code",
    "/settings",
    "/audit",
    "/audit?outcome=denied&from=2100-01-01",
    "/audit/access",
    "/audit/webhooks",
    "/audit/webhooks/new",
    "/audit/retention",
    "/audit/findings",
    "/audit/logs",
    "/verify",
    "/docs/ui",
    "/docs/problems",
    "/docs/problems/queue-full",
)
LANGUAGES, THEMES = ("en", "zh-hans"), ("light", "dark")
KEPT_ENGLISH = frozenset(
    ("kv", "console", "hbm", "pinned", "dram", "ssd", "remote", "symlog", "utc", "gib", "mib", "kib", "tib", "seq")
) | {"rank", "ctrl", "enter", "shift", "idempotency", "key", "match", "pii", "pdf", "cron", "gpu", "gpus"}
"""Names, units and fields of files that are the same in both languages."""
TENANCY_NAMES = frozenset(
    [
        "cobalt",
        "support",
        "delta",
        "clinic",
        "internal",
        "source",
        "restricted",
        "public",
        "contracts",
        "repo",
        "monolith",
        "payments",
        "default",
        "legal",
        "lora",
        "llama",
        "deepseek",
        "qwen",
        "sha",
        "retrained",
        "handbooks",
        "approver",
        "auditor",
        "destroyer",
        "viewer",
        "acme-admin",
        "admin",
        "demo",
        "invalid",
        "variant",
        "member",
        "ledger",
        "tools",
        "kvc",
        "days",
        "config",
        "json",
        "hugging",
        "face",
        "auto",
        "legal",
        *("sha", "csv", "ocsf", "parquet", "read", "write", "platform"),
    ]
)
"""Names of the demonstration's tenants, people, models and labels, and of programs."""


def settle(visit, path: str) -> None:
    visit.go(path)
    if path == "/map":
        visit.wait("document.documentElement.dataset.heat === 'ready'", 60)
    if path.startswith(("/nodes/", "/epochs?")):
        visit.wait("document.documentElement.dataset.plot === 'drawn'", 40)


@pytest.mark.parametrize("path", ["/", "/map", "/nodes/fra-p2"])
def test_a_very_wide_page_is_used_to_its_end(visit, path):
    one = visit(width=3840)
    settle(one, path)
    right = one.page.evaluate(
        "Math.max(...[...document.querySelectorAll('main .panel')].map((e) => e.getBoundingClientRect().right))"
    )
    assert 3800 <= right <= 3840
    charts = one.page.evaluate(
        "[...document.querySelectorAll('main .chart')].map((e) => e.clientWidth / e.clientHeight)"
    )
    assert all(ratio < 12 for ratio in charts), f"a chart is a ribbon: {charts}"


@pytest.mark.parametrize("theme", THEMES)
def test_what_a_node_did_not_report_is_veiled_and_joined_by_no_line(visit, theme):
    """The planted node has said nothing for three minutes, forty minutes ago."""
    one = visit(theme=theme)
    settle(one, "/nodes/fra-p2")
    drawn = one.page.evaluate(
        """(() => { const host = document.querySelector('[data-fills]'), [veil, ...tiers] = host.data;
        const ms = (text) => Date.parse(text), hole = [ms(veil.x[0]), ms(veil.x[2])];
        const paths = [...host.querySelectorAll('.scatterlayer .lines path')].map((p) => p.getAttribute('d'));
        return {hole: (hole[1] - hole[0]) / 1000, pattern: host.querySelectorAll('pattern').length,
          within: tiers.map((t) => t.x.filter((x, i) => ms(x) > hole[0] && ms(x) < hole[1] && t.y[i] !== null).length),
          drawn: paths.reduce((n, d) => n + d.split('M').length - 1, 0),
          legend: !document.querySelector('[data-veiled]').hidden}; })()"""
    )
    assert 180 <= drawn["hole"] <= 200
    assert drawn["pattern"] >= 1
    assert drawn["within"] == [0] * 5
    assert drawn["drawn"] >= 2 * 5, "each of the five lines is in pieces"
    assert drawn["legend"]


def test_time_in_which_a_page_heard_nothing_is_a_gap_too(visit):
    one = visit()
    settle(one, "/nodes/fra-p2")
    values = one.page.evaluate(
        """async () => { const loaded = performance.getEntriesByType('resource').map((e) => e.name);
        const { fills } = await import(loaded.find((name) => name.includes('js/charts')));
        const one = fills.series[0]; one.t = one.t.map((t) => t - 120); fills.latest = 0;
        fills.add({[one.tier]: {used: 1, capacity: 2, state: 'ok'}}); return one.full.slice(-3); }"""
    )
    assert values[0] is not None
    assert values[1:] == [None, 50]


@pytest.mark.parametrize("path", ["/login", "/nothing-of-that-name"])
def test_a_chinese_page_has_no_english_words(visit, path):
    one = visit(language="zh-hans", user=path != "/login")
    settle(one, path)
    left = english(one)
    if path == "/nothing-of-that-name":
        one.errors.clear()  # the browser reports the 404 itself
    assert not left


def test_every_page_is_among_the_forms_and_pages():
    from frontend.audit import urls as audit
    from frontend.operations import urls as operations
    from frontend.tenancy import urls as tenancy

    seen = {resolve(path.split("?")[0]).url_name for path in PAGES} | {form.page for form in FORMS.values()}
    seen |= {page for page, _, _ in OPERATIONS}
    addresses = [*tenancy.urlpatterns, *audit.urlpatterns, *operations.urlpatterns]
    asked = {p.name for p in addresses if rule_for(p.name, "GET")} | {"page-model-check"}
    assert not asked - seen - set(NO_PAGE)
    assert not set(NO_PAGE) - asked


def english(one) -> set[str]:
    """English words that the page shows and that are neither names nor marked as English."""
    words = one.page.evaluate(
        """() => { const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) { const e = walk.currentNode.parentElement;
          const kept = '[data-said], .mono, .id, code, .cmd, .tiles b, textarea, datalist, main [lang=en]';
          if (!e.closest(kept)) out.push(walk.currentNode.data); }
        for (const e of document.querySelectorAll('[aria-label], [title], [placeholder]'))
          for (const name of ['aria-label', 'title', 'placeholder']) out.push(e.getAttribute(name) ?? '');
        return out; }"""
    )
    names = {
        "fra",
        "ams",
        "acme",
        "code",
        "borealis",
        "bank",
        "ref",
        "operator",
        "pfx",
        "dev",
        "queue",
        "full",
        "reference",
        "local",  # the region of a node that names none
        *("node", "token", "issued", "platform", "consistency", "txt"),  # what one types or gets, as it is
        *TENANCY_NAMES,
    }
    found = {w.lower() for text in words for w in re.findall(r"[A-Za-z]{3,}", text)}
    return {w for w in found - KEPT_ENGLISH - names if not re.fullmatch("[a-f]+", w)}


def test_the_language_can_be_switched_and_is_remembered(visit):
    one = visit()
    one.go("/nodes")
    one.page.click("[data-lang]")
    one.page.wait_for_selector("html[lang=zh-Hans]", state="attached")
    assert one.page.url.endswith("/nodes")
    one.go("/")
    assert one.page.inner_text("h1") == "总览"
    one.page.click("[data-lang]")
    one.page.wait_for_selector("html[lang=en]", state="attached")


def test_the_theme_goes_round_and_is_remembered(visit):
    one = visit(theme="light")
    one.go("/")
    for wanted in ("dark", None, "light"):
        with one.page.expect_response(lambda r: r.url.endswith("/preferences")):
            one.page.click("[data-theme-toggle]")
        assert one.page.get_attribute("html", "data-theme") == wanted
    one.page.click("[data-theme-toggle]")
    one.page.wait_for_timeout(500)
    one.go("/nodes")
    assert one.page.get_attribute("html", "data-theme") == "dark"


def test_keys_go_to_pages_and_open_sheets(visit):
    one = visit()
    one.go("/")
    one.page.keyboard.press("g")
    one.page.keyboard.press("m")
    one.page.wait_for_url("**/map*")
    one.page.wait_for_selector("html[data-ready]", state="attached")
    one.page.keyboard.press("2")
    assert one.page.is_visible("#view-tiles")
    assert not one.page.is_visible("#view-heat")
    assert "view=tiles" in one.page.url
    one.page.keyboard.press("1")
    assert one.page.is_visible("#view-heat")
    one.page.keyboard.press("?")
    assert one.page.is_visible("[data-keys-dialog]")
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("/")
    assert one.page.evaluate("document.activeElement.matches('[data-search]')")
    one.page.keyboard.type("nodes")
    one.page.keyboard.press("Enter")
    assert one.page.is_visible("[data-palette-dialog]")
    one.page.keyboard.press("Enter")
    one.page.wait_for_url("**/nodes")


def test_single_keys_can_be_switched_off(visit):
    one = visit()
    one.go("/")
    one.page.keyboard.press("?")
    with one.page.expect_response(lambda r: r.url.endswith("/preferences")):
        one.page.click("[data-keys-switch]")
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("g")
    one.page.keyboard.press("m")
    one.page.wait_for_timeout(400)
    assert one.page.url.rstrip("/").endswith(one.url.rstrip("/").rsplit("/", 1)[-1])
    one.go("/nodes")
    one.page.keyboard.press("?")
    assert not one.page.is_visible("[data-keys-dialog]")
    one.page.keyboard.press("Control+k")
    assert one.page.is_visible("[data-palette-dialog]")


def test_chart_and_table_are_twins(visit):
    one = visit()
    one.go("/")
    chart, table = ("#tokens [data-twin-view=chart]", "#tokens [data-twin-view=table]")
    assert one.page.is_visible(chart)
    assert not one.page.is_visible(table)
    one.page.click("#tokenst-table")
    assert one.page.is_visible(table)
    assert not one.page.is_visible(chart)
    shown = one.page.locator("#tokens .legend .v").all_text_contents()
    cells = one.page.locator("#tokens tbody tr td:last-child").all_text_contents()
    assert shown == cells
    one.page.evaluate("document.body.dispatchEvent(new Event('kvc:refresh'))")
    one.page.wait_for_timeout(1500)
    assert one.page.is_visible("#tokens [data-twin-view=table]"), "a refresh keeps the chosen view"


def test_the_menu_opens_on_a_narrow_page(visit):
    one = visit(width=390)
    one.go("/")
    assert not one.page.is_visible("#rail")
    one.page.click("[data-rail-toggle]")
    assert one.page.is_visible("#rail")
    assert one.page.get_attribute("[data-rail-toggle]", "aria-expanded") == "true"
