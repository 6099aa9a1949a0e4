"""Pages of routing as the server writes them: complete without scripts, in both languages, nothing inline."""

import re

import pytest

pytestmark = pytest.mark.django_db
PATHS = (
    "/routing",
    "/routing/compare",
    "/routing/policies",
    "/routing/policies/default",
    "/prefixes",
    "/economics",
    "/topology",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_pages_are_complete_without_scripts(made, person, language):
    client = person("viewer")
    client.cookies["django_language"] = language
    for path in (*PATHS, f"/routing/decisions/{made.held}?without=0", f"/routing/decisions/{made.nobody}"):
        answer = client.get(path)
        text = answer.content.decode()
        assert answer.status_code == 200, path
        assert text.count("<h1") == 1, path
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert sorted(set(ids)) == sorted(ids), path
        assert "style=" not in text, path
        assert "<script>" not in text, path


def test_plotly_s_styles_are_allowed_on_the_page_of_a_decision_alone(made, person):
    who = person("viewer")
    policy = {path: who.get(path).headers["Content-Security-Policy"] for path in PATHS}
    one = who.get(f"/routing/decisions/{made.held}").headers["Content-Security-Policy"]
    assert "style-src-attr 'unsafe-inline'" in one
    assert not [path for path, said in policy.items() if "unsafe-inline" in said]
