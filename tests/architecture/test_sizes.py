"""A file has at most 400 lines, a function 60, a view 15, a task 8; more needs a decision in docs/decisions."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import code, files, name, parsed

FILE_LINES, FUNCTION_LINES, VIEW_LINES, TASK_LINES = 400, 60, 15, 8
LONGER = {"audit/verifier/kvc_verify.py": 900}  # one file by design: who does not trust us copies it and reads it


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length of each function, decorators and docstring not counted."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield f"{name(path)}:{node.lineno} {node.name}", (node.end_lineno or 0) - body[0].lineno + 1


def test_files_are_short() -> None:
    scripts = [p for p in files() if p.suffix in (".py", ".js") and "migrations" not in p.parts]
    long = {name(p): n for p in scripts if (n := len(p.read_text().splitlines())) > LONGER.get(name(p), FILE_LINES)}
    assert not long


def test_functions_are_short() -> None:
    assert not {where: n for p in code() for where, n in functions(p) if n > FUNCTION_LINES}


def test_views_are_thin() -> None:
    views = [p for p in code() if p.stem == "views" or p.parent.name == "views"]
    assert not {where: n for p in views for where, n in functions(p) if n > VIEW_LINES}


def test_tasks_are_thin() -> None:
    tasks = [p for p in code() if p.stem == "tasks" or p.parent.name == "tasks"]
    assert not {where: n for p in tasks for where, n in functions(p) if n > TASK_LINES}
