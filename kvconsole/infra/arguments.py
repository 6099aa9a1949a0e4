"""Decides what words of a command line may say: numbers in a range, names, folders that are there.

Each function makes, or is, a `type` of argparse: a word that will not do is refused before anything begins, by the name
of its option.
"""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number of this range."""

    def read(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"a whole number from {least} to {most}, not {text[:40]!r}")
        return int(text)

    return read


def number(least: float, most: float, *, above: bool = False) -> Callable[[str], float]:
    """A number of this range; `above`: `least` itself is too small."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (above and value == least):
            bound = f"above {least:g}, to {most:g}" if above else f"from {least:g} to {most:g}"
            raise ArgumentTypeError(f"a number {bound}, not {text[:40]!r}")
        return value

    return read


port = whole(1, 65_535)
"""A TCP port that can be named to others."""


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names, each once; at least one."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise ArgumentTypeError(f"names, comma-separated, not {text!r}")
    return found


def said(text: str) -> str:
    """A text that says something."""
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


def new_file(text: str) -> Path:
    """A file that can be written: its folder is there, and it is none itself."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"there is no folder {path.parent}")
    return path
