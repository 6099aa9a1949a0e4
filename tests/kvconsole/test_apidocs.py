"""The served description is the routes', and its page needs no inline script and nothing from elsewhere."""

import re

import pytest
from django.urls import URLResolver, get_resolver

from catalog.ingest import hot as ingest
from kvconsole import apidocs
from kvconsole.infra import access, rest
from routing import hot as routers
from tests.architecture.tree import CLONE

METHODS = ("get", "post", "put", "patch", "delete")


def routed(patterns=None, prefix="/"):
    """(method, path as OpenAPI writes it) of each call of the registry."""
    found = set()
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        where = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            found |= routed(entry.url_patterns, where)
        elif where.startswith("/api/v1/"):
            path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", where)
            found |= {(method.lower(), path) for method in access.registry()[entry.name]}
    return found


def described():
    return {
        (m, path): op for path, ops in apidocs.description()["paths"].items() for m, op in ops.items() if m in METHODS
    }


def test_what_is_routed_is_described_and_nothing_else():
    assert set(described()) == routed()


def test_the_description_says_where_the_calls_of_other_processes_are_described():
    said = apidocs.description()["info"]["description"]
    raw = [ingest.EVENTS, ingest.INVENTORY, routers.ROUTE, routers.DECISIONS, f"{routers.DECISIONS}/{{id}}/outcome"]
    for path in raw:
        assert f"{path}`" in said
        assert ("post", path) not in routed(), "that is described as all others are"
    documents = re.findall(r"docs/\w+\.md", said)
    assert len(documents) == 2
    text = "".join((CLONE / document).read_text() for document in documents)
    assert all(path in text for path in raw)


def test_each_call_names_its_own_problems_and_each_problem_is_known():
    for call, operation in described().items():
        codes = operation.get("x-problem-codes")
        assert codes, f"{call} is not made by kvconsole.infra.calls.call"
        assert set(codes) <= set(rest.CODES), call
        for code in codes:
            response = operation["responses"][str(rest.CODES[code][0])]
            assert f"`{code}`" in response["description"], (call, code)


def test_each_write_can_be_rehearsed_and_repeated_and_each_change_is_conditional():
    for (method, path), operation in described().items():
        names = {p["name"] for p in operation.get("parameters", [])}
        if method != "get":
            assert {"Idempotency-Key", "validate_only"} <= names, path
        if method in ("put", "patch"):
            assert "If-Match" in names, path
            assert {"412", "428"} <= set(operation["responses"]), path
        if method == "get" and operation["responses"]["200"].get("content", {}).get("application/json"):
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            if schema.get("$ref", "").endswith("Page"):
                assert {"limit", "cursor"} <= names, path


def test_operation_ids_are_unique():
    ids = [operation["operationId"] for operation in described().values()]
    assert len(ids) == len(set(ids))


@pytest.mark.django_db
def test_the_page_has_no_inline_script_and_nothing_from_elsewhere(client):
    page = client.get("/api/docs")
    text = page.content.decode()
    assert page.status_code == 200
    assert "script-src 'self'" in page["Content-Security-Policy"]
    assert "unsafe" not in page["Content-Security-Policy"]
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", text)
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text)
    script = client.get("/api/docs?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert "/api/schema" in script.content.decode()
    assert '"validatorUrl": null' in script.content.decode()


@pytest.mark.django_db
def test_the_description_is_served(client):
    answer = client.get("/api/schema")
    assert answer.json()["openapi"].startswith("3.")
    assert client.get("/api/schema?x=1").status_code == 400
