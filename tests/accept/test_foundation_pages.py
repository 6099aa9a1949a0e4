"""Foundation, seen from outside: the pages, over a fleet of real agents that a replay drives meanwhile."""

import contextlib
import functools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.accept import test_foundation_road as road
from tests.accept.fleet import rows, say, until
from tests.frontend import test_browser as looks
from tests.frontend import test_browser_axe
from tests.frontend.conftest import WIDTHS, Visit, axe_rules, opener
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk, pytest.mark.browser, pytest.mark.slow]
PAGES = ("/", "/map", "/map?view=tiles", "/nodes", "/nodes/fra-p1", "/login")
SHORT = ("/", "/map", "/nodes/fra-p1")
"""Without KVC_ACCEPT=full, in Chinese: the tests of the pages look at all of them over a planted fleet."""
LIVE = ("/", "/map", "/map?view=tiles", "/nodes", "/nodes/fra-p1")


@pytest.fixture
def moving(console: Console) -> Console:
    """Four agents, a minute of a trace behind them and more of it coming; the heat map has a whole column."""
    road.fleet(console)
    path, _ = road.trace(console, 400)
    options = ("--limit", "400", "--speed", "1", "--model", "ref-64", "--no-router", "--loop")
    console.background("replay", "replay", str(path), *options)
    query = "SELECT count(*) FROM catalog_heatcolumn WHERE layer = 0 AND families > 0"
    until(lambda: rows(console, query)[0][0] >= 2, 90, "two columns of the heat map")
    return console


@pytest.fixture
def visits(moving: Console, chromium: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Opens pages as an operator, or as nobody; closes them at the end of each block: open pages all move."""
    context = chromium.new_context()
    moving.login(context.new_page())
    state = context.storage_state()
    context.close()
    return functools.partial(opener, chromium, moving.url, state)


def foreign_words(visit: Visit) -> list[str]:
    """Han characters on an English page, but for the button that switches to Chinese; names of phrases unresolved."""
    text = visit.page.evaluate(
        """() => { const copy = document.body.cloneNode(true);
        for (const e of copy.querySelectorAll('[data-lang], script')) e.remove();
        const said = [...copy.querySelectorAll('[aria-label], [title], [placeholder]')].flatMap((e) =>
          ['aria-label', 'title', 'placeholder'].map((n) => e.getAttribute(n) ?? ''));
        return [copy.textContent, ...said].join(' '); }"""
    )
    return re.findall(r"[\u3400-\u9fff]+|\bunit_\w+|%\(\w+\)s", text)


@pytest.mark.timeout(900)
def test_pages_have_no_errors_no_foreign_requests_no_axe_findings_and_no_untranslated_words(
    moving: Console, visits: Any
) -> None:
    """Both languages, both themes, four widths: 0 console errors, 0 requests to other hosts, axe 0, 0 untranslated."""
    begin, axe = time.monotonic(), axe_rules()
    paths, languages = (PAGES, looks.LANGUAGES) if road.LONG else (SHORT, looks.LANGUAGES[1:])
    for path in paths:
        for language in languages:
            with visits() as visit:
                test_browser_axe.test_a_page_is_whole_fits_every_width_and_speaks_one_language(
                    _as(visit, path), axe, path, language
                )
        with visits() as visit:
            one = _as(visit, path)(theme="dark")
            looks.settle(one, path)
            assert foreign_words(one) == []
            if path in LIVE:
                one.wait("document.documentElement.dataset.socket === 'on'")
    assert moving.processes["replay"].poll() is None, moving.log("replay")[-2000:]
    say("pages", pages=len(paths), languages=len(languages), themes=2, widths=WIDTHS, axe_findings=0, console_errors=0,
        foreign_requests=0, untranslated=0, seconds=round(time.monotonic() - begin))  # fmt: skip


def _as(visit: Callable[..., Visit], path: str) -> Callable[..., Visit]:
    """The log-in is a page for those who are not logged in."""
    return functools.partial(visit, user=path != "/login")
