"""What must not be in any tracked file: this machine, addresses of package indexes, words that promise too much."""

import re

from tests.architecture.tree import files, name, texts

# Put together here, so that this file does not contain what it looks for.
HOMES = ("wo" + "rk", "ro" + "ot", "op" + "t", "ho" + r"me/\w+")
MACHINE = re.compile(r"(?<![\w.\-/}])/(?:" + "|".join(HOMES) + ")/")
HOSTS = (r"py" + r"pi\.org", r"python" + r"hosted", r"npm" + r"js\.org", r"--(?:extra-)?index" + "-url")
INDEXES = re.compile("|".join(HOSTS))
TOO_STRONG = re.compile(r"\b(?:erased|wiped|destroyed|purged|guaranteed|unrecoverable)\b", re.IGNORECASE)


def test_no_path_of_a_machine() -> None:
    found = [f"{where}: {m.group()}" for where, text in texts() for m in MACHINE.finditer(text)]
    assert not found


def test_no_address_of_a_package_index() -> None:
    found = [f"{where}: {m.group()}" for where, text in texts() for m in INDEXES.finditer(text)]
    requirements = [p for p in files() if name(p).startswith("requirements/") and p.suffix == ".txt"]
    found += [name(p) for p in requirements if "://" in p.read_text() or "--index" in p.read_text()]
    assert not found


def test_requirements_are_pinned_with_hashes() -> None:
    for path in (p for p in files() if name(p).startswith("requirements/") and p.suffix == ".txt"):
        entries = re.split(r"\n(?=[a-z])", path.read_text())
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries if entry.strip()), name(path)


def test_pages_promise_no_more_than_a_class_says() -> None:
    """Words that only classes E3 and above allow come from kvcore's approved sentences, never from a template."""
    pages = [(w, t) for w, t in texts() if w.startswith("frontend/") and w.endswith((".html", ".js", ".po"))]
    assert pages
    assert not [f"{where}: {m.group()}" for where, text in pages for m in TOO_STRONG.finditer(text)]
