"""Pages of operations in a real browser: whole by axe on wide and narrow pages, live, and printed on paper.

`KVC_ACCEPT=full` has axe look at each page in both languages, otherwise in one of them, in turn.
"""

import os

import pytest

from tests.frontend.reaching import OPERATIONS
from tests.frontend.test_browser import english

pytestmark = pytest.mark.browser
FULL = os.environ.get("KVC_ACCEPT") == "full"
LOOKS = {"en": ("light", (1440, 320)), "zh-hans": ("dark", (320, 1440))}


def look(one, site, path, user):
    """The page of what is planted; a proof that is asked for is given."""
    one.go(path.format(**{name: str(pk) for name, pk in site.planted.items()}))
    if "/account/confirm" in one.page.url:
        one.page.fill("#id_password", site.seed()[user])
        with one.page.expect_navigation():
            one.page.click("form:has(#id_password) button[type=submit]")
        one.page.wait_for_selector("html[data-ready]", state="attached")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("language", LOOKS)
def test_every_page_is_whole_fits_and_speaks_one_language(visit, axe, site, language):
    theme, widths = LOOKS[language]
    visits, faults = {}, []
    for n, (_page, path, user) in enumerate(OPERATIONS):
        one = visits[user] = visits.get(user) or visit(language=language, theme=theme, user=user)
        look(one, site, path, user)
        for width in widths:
            one.page.set_viewport_size({"width": width, "height": 900})
            wide = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            faults += [f"{path} at {width}: {wide}"] if wide[0] > wide[1] else []
        found = []
        if FULL or n % 2 == list(LOOKS).index(language):
            one.page.evaluate(axe)
            found = one.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        faults += [f"{path}: {v['id']} {[n['html'][:140] for n in v['nodes'][:2]]}" for v in found]
        left = english(one) if language != "en" else set()
        faults += [f"{path}: {sorted(left)}"] if left else []
    assert not faults


@pytest.mark.timeout(120)
def test_a_run_moves_by_the_socket_and_keys_reach_it(visit, site):
    one = visit(user="destroyer")
    look(one, site, "/operations/{erasing}", "destroyer")
    one.wait("document.documentElement.dataset.socket === 'on'", 30)
    one.wait("Number(document.documentElement.dataset.operationFrames ?? 0) > 0", 30)
    before = one.page.get_attribute("#pagehead", "data-as-of")
    one.wait(f"document.querySelector('#pagehead').dataset.asOf !== '{before}'", 30)
    one.page.keyboard.press("g")
    one.page.keyboard.press("i")
    one.page.wait_for_url("**/approvals")


@pytest.mark.timeout(120)
def test_the_sheet_can_be_read_on_a_narrow_page(visit, site):
    """No value stands a few characters a line beside its bilingual name."""
    one = visit(language="zh-hans", theme="dark", user="auditor")
    one.page.set_viewport_size({"width": 320, "height": 900})
    look(one, site, "/certificates/{certificate-completed}", "auditor")
    narrowest = "Math.min(...[...document.querySelectorAll('.sheet .facts dd')].map((d) => d.clientWidth))"
    assert one.page.evaluate(narrowest) > 200
    assert one.page.evaluate("document.documentElement.scrollHeight") < 5_000


@pytest.mark.timeout(120)
def test_a_plan_that_no_longer_holds_offers_to_plan_it_anew_and_no_start(visit, site):
    one = visit(user="destroyer")
    look(one, site, "/plans/{plan}", "destroyer")
    one.page.wait_for_selector("#drift [data-void] a[href^='/deletions/new?']")
    assert one.page.locator(".begin").count()
    assert not one.page.locator(".begin").locator("visible=true").count()


@pytest.mark.timeout(120)
def test_the_sheet_is_printed_without_the_console_around_it(visit, site):
    one = visit(user="auditor", theme="dark")
    look(one, site, "/certificates/{certificate-completed}", "auditor")
    one.page.emulate_media(media="print")
    assert not one.page.is_visible("#rail")
    assert not one.page.is_visible(".topbar")
    assert one.page.is_visible(".qr")
    assert one.page.is_visible(".emblem")
