"""Every page and form is whole: no violation of axe-core's rules, no sideways scrolling, one language.

Each is loaded once in a language, and everything is looked at there. `KVC_ACCEPT=full` has axe look at pages in both
languages, both themes, wide and narrow, and at forms in both of their looks. Otherwise a page has one look in each
language, which differ in everything, and a form one of its two, in turn: what theme and width break does not depend on
the language.
"""

import itertools
import os
import re

import pytest

from tests.frontend.conftest import WIDTHS
from tests.frontend.reaching import FORMS, reach
from tests.frontend.test_browser import LANGUAGES, PAGES, THEMES, english, settle

pytestmark = pytest.mark.browser
FULL = os.environ.get("KVC_ACCEPT") == "full"
LOOKS = {"en": ("light", 1440), "zh-hans": ("dark", 390)}
FORM_THEMES = {"en": "dark", "zh-hans": "light"}


def looks(language: str) -> list[tuple[str, int]]:
    """Theme and width of each look that a page has in this language; its own first."""
    own = LOOKS[language]
    return [own, *(look for look in itertools.product(THEMES, (1440, 390)) if FULL and look != own)]


def violations(one) -> list[str]:
    """What the rules of axe-core find in the page, of any impact, best practices included. The rules are loaded."""
    found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"axe: {v['id']}, {v['impact']}, {[n['html'][:160] for n in v['nodes'][:3]]}" for v in found]


def sideways(one) -> list[str]:
    """Widths at which the page is wider than the window."""
    faults = []
    for width in WIDTHS:
        one.page.set_viewport_size({"width": width, "height": 900})
        wide = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        faults += [f"scrolls sideways at {width}: {wide}"] if wide[0] > wide[1] else []
    return faults


def foreign_words(one, language: str) -> list[str]:
    """English words of a Chinese page."""
    left = english(one) if language == "zh-hans" else set()
    return [f"English words: {sorted(left)}"] if left else []


def unnamed(one) -> list[str]:
    """What a service said in English and what stands there under no title in the page's language."""
    own = [
        said.evaluate("(e) => (e.closest('.notice, .hint, td') ?? e.parentElement).innerText.replace(e.innerText, '')")
        for said in one.page.locator("main [lang=en]").all()
        if not said.evaluate("(e) => Boolean(e.closest('td'))")
    ]
    return [f"English under no title: {text!r}" for text in own if not re.search(r"[\u4e00-\u9fff]", text)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_is_whole_fits_every_width_and_speaks_one_language(visit, axe, path, language):
    one = visit(language=language, theme=LOOKS[language][0])
    settle(one, path)
    faults = foreign_words(one, language) + sideways(one)
    one.page.evaluate(axe)
    for theme, width in looks(language):
        one.page.set_viewport_size({"width": width, "height": 900})
        one.page.evaluate(
            "(t) => { document.documentElement.dataset.theme = t; document.dispatchEvent(new Event('themechange')); }",
            theme,
        )
        one.page.wait_for_timeout(200)  # buttons change their colour over 120 ms, longer where the machine is busy
        one.wait("!document.getAnimations().some((a) => a instanceof CSSTransition)")
        faults += [f"{theme}, {width}: {fault}" for fault in violations(one)]
    assert not faults, f"{path}, {language}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_form_is_whole_fits_every_width_and_speaks_one_language(visit, axe, site, name, language):
    """What a service said in English stands behind a title in the page's language, and is marked as English."""
    one = visit(language=language, theme=FORM_THEMES[language], user=FORMS[name].user)
    reach(one, name, site.seed()[FORMS[name].user])
    faults = foreign_words(one, language) + (unnamed(one) if language == "zh-hans" else [])
    if FULL or list(FORMS).index(name) % 2 == LANGUAGES.index(language):
        one.page.evaluate(axe)
        faults += violations(one)
    assert not faults + sideways(one), f"{name}, {language}"
