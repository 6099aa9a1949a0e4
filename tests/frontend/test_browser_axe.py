"""Every page by the rules of axe-core, in both languages, themes and on two widths."""

import pytest

from tests.frontend.test_browser import LANGUAGES, PAGES, THEMES, settle

pytestmark = pytest.mark.browser


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_axe_finds_nothing(visit, axe, path, language):
    """No violation of any impact, best practices included; in both themes, on a wide and on a narrow page."""
    one = visit(language=language)
    settle(one, path)
    one.page.evaluate(axe)
    for theme in THEMES:
        one.page.evaluate(
            "(t) => { document.documentElement.dataset.theme = t; document.dispatchEvent(new Event('themechange')); }",
            theme,
        )
        one.page.wait_for_timeout(200)  # buttons change their colour over 120 ms, longer where the machine is busy
        one.wait("!document.getAnimations().some((a) => a instanceof CSSTransition)")
        for width in (1440, 390):
            one.page.set_viewport_size({"width": width, "height": 900})
            found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            named = [(v["id"], v["impact"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found]
            assert not named, f"{path}, {theme}, {width}"
