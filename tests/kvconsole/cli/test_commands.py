"""Every command of `kvc` is described, each of its calls is in the API, and each call about tenancy has a command."""

from typing import Any

import pytest
import typer

from kvconsole import apidocs
from kvconsole.cli import commands
from kvconsole.cli.main import app
from tests.architecture.tree import CLONE
from tests.kvconsole.cli.calling import bare, calls, walked

METHODS = ("get", "post", "put", "patch", "delete")
FLEET = (
    *("/nodes", "/topology", "/ingest", "/blocks", "/prefixes", "/map", "/watermarks", "/fleet-key", "/heat"),
    *("/deletion-plans", "/deletions", "/operations", "/migrations", "/prefetches", "/pins", "/holds", "/receipts"),
    *("/certificates", "/route", "/decisions", "/policies", "/capabilities", "/isolation", "/lab", "/sessions"),
    *("/advisories", "/audit"),
)
"""What is not of tenancy begins like this."""
NOT_FOR_PEOPLE = {
    ("POST", "/key-leases"): "keys are leased to nodes and gateways, which hold them in memory and never show them",
}
"""Calls of tenancy without a command, and why."""


def offered() -> dict[tuple[str, str], dict[str, Any]]:
    """Calls of tenancy that the served schema has: (method, path) → its description."""
    return {
        (method.upper(), bare(path)): entry[method]
        for path, entry in apidocs.description()["paths"].items()
        for method in METHODS
        if method in entry and path.startswith("/api/v1/") and not bare(path).startswith(FLEET)
    }


def fields_of(call: dict[str, Any]) -> set[str]:
    """Names of a call's body and query."""
    queries = {p["name"] for p in call.get("parameters", []) if p["in"] == "query"}
    content = call.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
    schema = apidocs.description()["components"]["schemas"].get(name, {})
    return queries | set(schema.get("properties", {}))


def test_every_command_says_what_it_does():
    found = walked(typer.main.get_command(app))
    assert {("tenants", "list"), ("nodes", "show"), ("usage",), ("login",), ("quotas", "set")} <= set(found)
    assert {("models", "rollout", "set"), ("tenants", "classes", "set"), ("explain-reuse",)} <= set(found)
    for path, command in found.items():
        assert command.help, path


def test_every_call_is_in_the_api():
    known = {
        (method.upper(), bare(path))
        for path, entry in apidocs.description()["paths"].items()
        for method in METHODS
        if method in entry
    }
    used = calls()
    assert len(used) > 40
    for call in used:
        assert (call.method, call.path) in known, call


def test_every_call_of_tenancy_has_a_command():
    used = {(call.method, call.path) for call in calls()}
    wanted = offered()
    assert len(wanted) > 40
    assert not set(wanted) - used - set(NOT_FOR_PEOPLE)
    assert set(NOT_FOR_PEOPLE) <= set(wanted), "an exception for what is not there any more"
    assert not set(NOT_FOR_PEOPLE) & used


def test_every_field_of_such_a_call_can_be_given():
    said: dict[tuple[str, str], set[str]] = {}
    whole = set()
    for call in calls():
        said.setdefault((call.method, call.path), set()).update(call.fields)
        if call.document:
            whole.add((call.method, call.path))
    for place, call in offered().items():
        missing = fields_of(call) - said.get(place, set()) - {"limit", "cursor", "validate_only"}
        assert not missing or place in whole or place in NOT_FOR_PEOPLE, place


def test_every_command_that_changes_something_can_be_rehearsed():
    known = walked(typer.main.get_command(app))
    for call in calls():
        if call.method != "GET" and "validate_only" in fields_of(offered().get((call.method, call.path), {})):
            assert "--validate-only" in [o for p in known[call.command].params for o in p.opts], call


def test_words_become_fields():
    assert commands.given(a=1, b=None, c=[]) == {"a": 1, "c": []}
    assert commands.seconds(["a=1", "b=2"]) == {"a": 1, "b": 2}
    assert commands.numbers(["1=90"], "x") == {"1": 90}
    assert commands.numbers(None, "x") is None
    assert commands.place("a/b:c?d") == "a%2Fb%3Ac%3Fd"
    with pytest.raises(commands.Failure):
        commands.seconds(["a"])


def test_the_page_about_kvc_names_every_command():
    text = (CLONE / "docs" / "kvc.md").read_text()
    found = walked(typer.main.get_command(app))
    for words in (words for words, command in found.items() if not hasattr(command, "commands")):
        row = next(line for line in text.splitlines() if line.startswith("| ") and f"`{words[0]}`" in line)
        assert f"`{' '.join(words[1:])}`" in row or f"`{' '.join(words)}" in row or len(words) == 1, words
