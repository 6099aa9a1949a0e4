"""Every command of `kvc` is described, and each of its calls is in the API."""

import re

import pytest
import typer

from kvconsole import apidocs
from kvconsole.cli import commands
from kvconsole.cli.main import app
from tests.architecture.tree import CLONE


def walked(command, path=()):
    found = {path: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= walked(inner, (*path, name))
    return found


def test_every_command_says_what_it_does():
    found = walked(typer.main.get_command(app))
    assert {("tenants", "list"), ("nodes", "show"), ("usage",), ("login",), ("quotas", "set")} <= set(found)
    for path, command in found.items():
        assert command.help, path


def test_every_path_is_in_the_api():
    known = {re.sub(r"\{\w+\}", "{}", path) for path in apidocs.description()["paths"]}
    text = (CLONE / "kvconsole" / "cli" / "commands.py").read_text()
    used = set(re.findall(r'f?"(/[a-z][^"]*)"', text))
    assert len(used) > 12
    for path in used:
        assert f"/api/v1{re.sub(r'{[^}]*}', '{}', path)}" in known, path


def test_words_become_fields():
    assert commands.given(a=1, b=None, c=[]) == {"a": 1, "c": []}
    assert commands.seconds(["a=1", "b=2"]) == {"a": 1, "b": 2}
    assert commands.place("a/b:c?d") == "a%2Fb%3Ac%3Fd"
    with pytest.raises(commands.Failure):
        commands.seconds(["a"])
