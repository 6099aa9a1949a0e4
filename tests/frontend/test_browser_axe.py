"""Every page by the rules of axe-core, in both languages, themes and on two widths."""

import pytest

from tests.frontend.conftest import WIDTHS
from tests.frontend.reaching import FORMS, reach
from tests.frontend.test_browser import LANGUAGES, PAGES, settle

pytestmark = pytest.mark.browser


LOOKS = {"en": [("light", 1440), ("dark", 390)], "zh-hans": [("dark", 1440), ("light", 390)]}
"""Each page has each of its looks once: what theme and width break does not depend on the language."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_axe_finds_nothing(visit, axe, path, language):
    """No violation of any impact, best practices included; in both themes, on a wide and on a narrow page."""
    one = visit(language=language)
    settle(one, path)
    one.page.evaluate(axe)
    for theme, width in LOOKS[language]:
        one.page.set_viewport_size({"width": width, "height": 900})
        one.page.evaluate(
            "(t) => { document.documentElement.dataset.theme = t; document.dispatchEvent(new Event('themechange')); }",
            theme,
        )
        one.page.wait_for_timeout(200)  # buttons change their colour over 120 ms, longer where the machine is busy
        one.wait("!document.getAnimations().some((a) => a instanceof CSSTransition)")
        found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        named = [(v["id"], v["impact"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found]
        assert not named, f"{path}, {theme}, {width}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("language", "theme"), [("en", "dark"), ("zh-hans", "light")])
def test_forms_are_whole_on_every_width_and_without_violations(visit, axe, site, name, language, theme):
    one = visit(language=language, theme=theme, user=FORMS[name].user)
    reach(one, name, site.seed()[FORMS[name].user])
    one.page.evaluate(axe)
    found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert not [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found]
    for width in WIDTHS:
        one.page.set_viewport_size({"width": width, "height": 900})
        wide = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"at {width}: {wide}"
