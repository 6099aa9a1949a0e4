"""Reads settings from the environment: typed, with `<NAME>_FILE` for secrets, and all problems listed at once."""

import os
from pathlib import Path


class Env:
    """Typed access to environment variables; `check()` reports everything that is wrong in one error."""

    def __init__(self, source: dict[str, str] | None = None) -> None:
        self.source = dict(os.environ) if source is None else source
        self.problems: list[str] = []
        self.seen: set[str] = set()

    def text(self, name: str, default: str | None = None) -> str:
        """The value, from `<NAME>_FILE` if that is set. Missing without a default is a problem."""
        self.seen.add(name)
        path = self.source.get(f"{name}_FILE")
        if path:
            try:
                return Path(path).read_text().strip()
            except OSError as e:
                self.problems.append(f"{name}_FILE: {e.strerror}: {path}")
                return default or ""
        if name in self.source:
            return self.source[name]
        if default is None:
            self.problems.append(f"{name} (or {name}_FILE) is not set")
            return ""
        return default

    def number(self, name: str, default: int | None = None) -> int:
        """The value as a whole number."""
        text = self.text(name, None if default is None else str(default))
        try:
            return int(text)
        except ValueError:
            if text:
                self.problems.append(f"{name} is not a whole number: {text!r}")
            return default or 0

    def flag(self, name: str, default: bool = False) -> bool:
        """1, true, yes, on or 0, false, no, off."""
        text = self.text(name, "on" if default else "off").lower()
        if text in ("1", "true", "yes", "on"):
            return True
        if text not in ("0", "false", "no", "off", ""):
            self.problems.append(f"{name} is neither on nor off: {text!r}")
        return False

    def items(self, name: str, default: str | None = "") -> list[str]:
        """Comma-separated values without blanks."""
        return [x.strip() for x in self.text(name, default).split(",") if x.strip()]

    def check(self) -> None:
        """Raise one error that names every problem; the process does not start."""
        if self.problems:
            from django.core.exceptions import ImproperlyConfigured

            lines = "\n  ".join(self.problems)
            raise ImproperlyConfigured(f"the configuration is incomplete; nothing was started:\n  {lines}")
