"""What each role finds: no link leads where it may not go, and each page fits a small screen, in both languages.

`KVC_ACCEPT=full` looks at every page as every role; otherwise a page is looked at as the first who finds it.
"""

import html
import os
import re

import pytest
from django.urls import Resolver404, resolve

from tests.frontend.test_browser import LANGUAGES, english

pytestmark = pytest.mark.browser
ROLES = ("borealis-member", "acme-admin", "auditor", "approver", "viewer", "destroyer")
SAMPLES = 3
"""Links to the same page, of other nodes, tenants or filters, that are followed."""
ABSENT = {"page-verify-keys": 503, "page-audit-download": 410}
"""What is not there beside planted rows: the signer, which has the keys, and the files of exports."""
FULL = os.environ.get("KVC_ACCEPT") == "full"
looked_at: set[str] = set()


def page_of(path: str) -> str:
    try:
        return resolve(path.split("?")[0].split("#")[0]).url_name or path
    except Resolver404:
        return path


def walked(one) -> dict[str, str]:
    """Name of each page that links lead to from the first one → one address of it. Every link is answered."""
    waiting, asked, pages = [("/", "")], {"/"}, {}
    count: dict[str, int] = {}
    while waiting:
        path, origin = waiting.pop(0)
        answer = one.page.request.get(f"{one.url}{path}", headers={"accept": "text/html"})
        assert answer.status == ABSENT.get(page_of(path), 200), f"{path}, to which {origin} leads: {answer.status}"
        if page_of(path) in ABSENT or "text/html" not in answer.headers.get("content-type", ""):
            continue
        pages.setdefault(page_of(path), path)
        for link in re.findall(r'<a\b[^>]*\bhref="(/[^"#]*)', answer.text()):
            link = html.unescape(link)
            name = page_of(link)
            if link not in asked and count.get(name, 0) < SAMPLES:
                count[name] = count.get(name, 0) + 1
                asked.add(link)
                waiting.append((link, path))
    return pages


@pytest.mark.timeout(900 if FULL else 300, func_only=True)
@pytest.mark.parametrize("user", ROLES)
def test_no_link_leads_where_the_role_may_not_go_and_what_it_finds_fits(visit, user):
    pages = walked(visit(user=user))
    assert len(pages) > 3
    mine = {name: path for name, path in pages.items() if FULL or name not in looked_at}
    looked_at.update(mine)
    faults = []
    for language in LANGUAGES if FULL else LANGUAGES[1:]:
        one = visit(user=user, language=language)
        for path in mine.values():
            if path.startswith(("/api/", "/docs/api")):
                continue
            one.go(path)
            for width in (320, 1440):
                one.page.set_viewport_size({"width": width, "height": 900})
                wide = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
                faults += [f"{path} at {width}, {language}: {wide}"] if wide[0] > wide[1] else []
            left = english(one) - set(re.split(r"\W", path)) if language != "en" else set()  # a code is its own name
            faults += [f"{path}: {sorted(left)}"] if left else []
    assert not faults
