"""What the checks of this folder look at: the tracked files, and the packages among them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
PACKAGES = ("kvcore", "nodeagent", "kvconsole", "audit", "tenants", "catalog", "routing", "frontend")


@cache
def files() -> tuple[Path, ...]:
    """All files of the project: tracked, or new and not ignored. In an export without git, all but the ignored ones."""
    command = ["git", "-C", str(CLONE), "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
        return tuple(CLONE / name for name in sorted(set(names)) if (CLONE / name).is_file())
    hidden = {".venv", ".dev", ".git", "__pycache__", "build", ".mypy_cache", ".ruff_cache"}
    return tuple(p for p in sorted(CLONE.rglob("*")) if p.is_file() and not hidden & set(p.relative_to(CLONE).parts))


def name(path: Path) -> str:
    """Path from the top of the clone."""
    return path.relative_to(CLONE).as_posix()


def code() -> list[Path]:
    """The Python files of the packages."""
    return [p for p in files() if p.suffix == ".py" and name(p).split("/")[0] in PACKAGES]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def texts() -> list[tuple[str, str]]:
    """Name and content of every tracked text file except the pinned requirements."""
    found = []
    for path in files():
        if path.suffix in {".bin", ".png", ".ico", ".mo", ".woff2"} or name(path).startswith("requirements/"):
            continue
        try:
            found.append((name(path), path.read_text()))
        except UnicodeDecodeError:
            continue
    return found
