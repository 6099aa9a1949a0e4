"""An invitation in a browser: its link opens by itself, and its secret is sent in no address."""

import pytest

pytestmark = pytest.mark.browser


def test_the_link_of_an_invitation_opens_by_itself_and_leaves_no_secret_in_an_address(site, visit):
    link = site.manage("person_create", "p4711").strip()
    secret = link.partition("#")[2]
    assert secret.startswith("kvc_invite_")
    made, asked = visit(user=False), []
    made.page.on("request", lambda request: asked.append((request.url, request.headers.get("referer", ""))))
    made.page.goto(link)
    made.wait("document.querySelector('input[name=password1]') !== null")
    assert "p4711" in made.page.inner_text("main")
    assert made.page.url == f"{site.url}/invitation"
    assert asked
    assert not [pair for pair in asked if any(secret in part for part in pair)]
    assert secret not in made.page.content()
    made.page.goto("about:blank")
    made.page.goto(f"{site.url}/invitation#kvc_invite_of_somebody_else")
    made.wait("!document.querySelector('input[name=password1]')")
    made.errors[:] = [e for e in made.errors if "410" not in e]
