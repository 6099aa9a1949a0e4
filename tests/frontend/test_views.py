"""Pages as the server writes them: who may, what is in them, how many queries they cost."""

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db
PAGES = ("/", "/map", "/nodes", "/nodes/fra-p2", "/docs/ui", "/docs/problems", "/docs/problems/queue-full")
BUDGET = {"/": 30, "/map": 40, "/nodes": 16, "/nodes/fra-p2": 45}
"""Queries of a page, with session and principal; independent of the number of nodes and blocks."""


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_page_is_complete_without_scripts(planted, person, path, language):
    client = person("viewer")
    client.cookies["django_language"] = language
    answer = client.get(path)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert f'lang="{"zh-Hans" if language != "en" else "en"}"' in text
    assert text.count("<h1") == 1
    assert "style=" not in text.replace("data-style=", "")
    assert "<script>" not in text
    assert "onclick" not in text


@pytest.mark.parametrize("path", list(BUDGET))
def test_a_page_stays_in_its_budget_of_queries(planted, person, path):
    client = person("viewer")
    client.get(path)
    with CaptureQueriesContext(connections["default"]) as spent:
        assert client.get(path).status_code == 200
    assert len(spent) <= BUDGET[path], "\n".join(q["sql"][:110] for q in spent)


def test_what_nodes_say_is_escaped(planted, person):
    text = person("viewer").get("/nodes/fra-p2").content.decode()
    assert "<b>not markup" not in text
