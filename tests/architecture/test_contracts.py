"""The import contracts hold, and each of them notices a violation: on a copy of the tree that holds only imports."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.tree import CLONE, PACKAGES, code, name

CONTRACTS = tomllib.loads((CLONE / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
VIOLATIONS = {
    "1": ("tenants/constants.py", "import catalog.store"),
    "2": ("kvcore/keys.py", "import random"),
    "3": ("nodeagent/outbox.py", "import django.db"),
    "4": ("catalog/services.py", "import nodeagent.config"),
    "5": ("catalog/store.py", "import catalog.ingest.pipeline"),
    "6": ("tenants/constants.py", "import audit.models"),
    "7": ("catalog/trace.py", "import tenants.models"),
    "8": ("frontend/views.py", "import catalog.models"),
    "9": ("frontend/views.py", "import routing.models"),
    "10": ("catalog/replay.py", "import catalog.store"),
    "11": ("frontend/views.py", "import catalog.tasks"),
}
"""A contract's number → where an import is planted, and which."""


def lint(tree: Path) -> tuple[set[str], str]:
    """Numbers of the broken contracts."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", "pyproject.toml"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tree)})
    return set(re.findall(r"^(\d+) .* BROKEN$", done.stdout, re.MULTILINE)), done.stdout + done.stderr


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """All modules by name, all of them empty."""
    for path in code():
        copy = tmp_path / name(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    for package in PACKAGES:
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text((CLONE / "pyproject.toml").read_text())
    return tmp_path


def test_the_code_keeps_all_contracts() -> None:
    broken, output = lint(CLONE)
    assert not broken, output
    assert "0 broken" in output, output


def test_an_empty_tree_keeps_all_contracts(skeleton: Path) -> None:
    broken, output = lint(skeleton)
    assert not broken, output
    assert "0 broken" in output, output


@pytest.mark.parametrize("number", [contract["id"] for contract in CONTRACTS])
def test_a_seeded_violation_is_noticed(number: str, skeleton: Path) -> None:
    place, line = VIOLATIONS[number]
    target = skeleton / place
    if not target.exists():  # became a package
        target = target.with_suffix("") / "__init__.py"
    assert target.exists(), f"{place} is gone: plant the violation somewhere else"
    target.write_text(line + "\n")
    broken, output = lint(skeleton)
    assert number in broken, output


def test_every_contract_of_the_architecture_is_there() -> None:
    assert {contract["id"] for contract in CONTRACTS} == set(VIOLATIONS)
