"""Decides how answers look: a table or `name: value` lines for people, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def printable(value: Any) -> str:
    """The value on one line; control characters, which could drive a terminal, are shown as escapes."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(v, str | int) for v in value):
        value = ", ".join(map(str, value))
    if isinstance(value, dict) and isinstance(value.get("kind"), str):  # an actor or an object of the log
        value = f"{value['kind']} {value.get('id') or value.get('ref') or ''}".strip()
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def show_json(value: Any) -> None:
    """One JSON document on standard output."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def show_table(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """One line a row; columns as wide as they must be, cut at the width of a terminal."""
    head = [c.upper().replace("_", " ") for c in columns]
    cells = [head, *([printable(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    most = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 100_000
    for line in cells:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(text if len(text) <= most else text[: most - 1] + "…")


def show_one(value: dict[str, Any]) -> None:
    """One line a member."""
    width = max(map(len, value), default=0)
    for name, member in value.items():
        print(f"{name.ljust(width)}  {printable(member)}")
