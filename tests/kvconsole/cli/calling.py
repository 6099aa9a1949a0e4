"""Reads from the code of `kvc` which calls of the API its commands make, and with which fields."""

import ast
import re
from typing import Any, NamedTuple

import typer

from kvconsole.cli.main import app
from tests.architecture.tree import CLONE

CLI = CLONE / "kvconsole" / "cli"
METHODS = {"one": "GET", "many": "GET", "post": "POST", "remove": "DELETE", "pages": "GET", "start": "POST"}
NOT_FIELDS = frozenset({"match", "key", "limit", "rehearse", "validate_only"})


class Call(NamedTuple):
    """One call: the command that makes it, method, path with `{}` for what varies, and names of fields and queries."""

    command: tuple[str, ...]
    method: str
    path: str
    fields: frozenset[str]
    document: bool
    """The person gives the whole body as JSON."""


def walked(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every group and command of `command`, by its words."""
    found = {path: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= {} if inner.hidden else walked(inner, (*path, name))
    return found


def commands() -> dict[str, tuple[str, ...]]:
    """Function → words of the command that runs it."""
    found = walked(typer.main.get_command(app))
    return {command.callback.__name__: words for words, command in found.items() if words and command.callback}


def calls() -> list[Call]:
    """All calls that commands make."""
    known, found = commands(), []
    for path in sorted(CLI.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in known:
                found += _calls(node, known[node.name])
    return found


def _calls(function: ast.FunctionDef, words: tuple[str, ...]) -> list[Call]:
    nodes = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
    paths = {
        n.targets[0].id: n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    names = {k.arg for n in nodes for k in n.keywords if k.arg} - NOT_FIELDS
    for dictionary in (n for n in ast.walk(function) if isinstance(n, ast.Dict)):
        names |= {key.value for key in dictionary.keys if isinstance(key, ast.Constant)}
    whole = any(_name(n.func) == "document" for n in nodes) and not any(_name(n.func) == "given" for n in nodes)
    found = []
    for node in nodes:
        texts = [_path(paths.get(a.id, a) if isinstance(a, ast.Name) else a) for a in node.args]
        path = next((t for t in texts if t.startswith("/")), "")
        name = _name(node.func)
        if path and name in METHODS:
            found.append(Call(words, METHODS[name], path, frozenset(names), whole))
        elif path and name in ("change", "call"):
            method = next(t for t in texts if t in ("GET", "PUT", "PATCH", "POST", "DELETE"))
            found.append(Call(words, method, path, frozenset(names), whole))
    return found


def _name(of: ast.expr) -> str:
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""


def _path(of: ast.expr) -> str:
    if isinstance(of, ast.Constant) and isinstance(of.value, str):
        return of.value
    if isinstance(of, ast.JoinedStr):
        return "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in of.values)
    return ""


def bare(path: str) -> str:
    """A path of the API as `Call.path` has it."""
    return re.sub(r"{\w+}", "{}", path.removeprefix("/api/v1"))
