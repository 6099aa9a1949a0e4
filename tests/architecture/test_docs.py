"""The documents are true where a machine can tell."""

import re
import tomllib

import pytest

from tests.architecture.tree import CLONE, files, name

DOCS = CLONE / "docs"
ADR = re.compile(r"\d{4}-[a-z0-9-]+\.md")


def _names_in(text: str) -> set[str]:
    """Paths in backticks that look like files of the tree."""
    words = re.findall(r"`([\w./\-]+\.(?:py|sql|md|js|html|yml|toml|txt))`", text)
    return {w for w in words if "/" in w}


@pytest.mark.parametrize(
    "document",
    ["docs/architecture.md", "docs/nodes.md", "docs/routing.md", "docs/runbook.md", "docs/threat_model.md",
     "CONTRIBUTING.md"],
)  # fmt: skip
def test_files_named_in_documents_exist(document: str) -> None:
    missing = sorted(w for w in _names_in((CLONE / document).read_text()) if not (CLONE / w).exists())
    assert not missing


def test_the_four_walks_are_there() -> None:
    text = (DOCS / "architecture.md").read_text()
    assert all(f"## Walk {n}" in text for n in (1, 2, 3, 4))
    assert len(_names_in(text)) >= 12


def test_every_dependency_has_a_reason_and_a_licence() -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for group in project["optional-dependencies"].values() for d in group)]
    names = {re.split(r"[\[<>=;~! ]", d)[0].lower() for d in wanted}
    rows = [line.split("|") for line in (DOCS / "dependencies.md").read_text().splitlines() if line.startswith("| `")]
    listed = {row[1].strip(" `").lower(): row for row in rows}
    assert names - set(listed) == set(), "not in docs/dependencies.md"
    assert set(listed) - names == set(), "in docs/dependencies.md, but not a dependency"
    assert all(len(row) >= 5 and all(cell.strip() for cell in row[1:4]) for row in listed.values())


def test_decisions_are_numbered_and_whole() -> None:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    assert all(ADR.fullmatch(p.name) for p in decisions)
    assert [int(p.name[:4]) for p in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text()
        assert all(f"## {part}" in text for part in ("Context", "Decision", "Consequences", "Alternatives")), path.name
        assert len(text.splitlines()) <= 60, f"{path.name}: at most a page"


def test_the_readme_starts_with_what_a_bare_machine_needs() -> None:
    assert "git make python3-venv" in (CLONE / "README.md").read_text().splitlines()[0]


def test_make_targets_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CLONE / "Makefile").read_text(), re.MULTILINE))
    documents = [p for p in files() if p.suffix == ".md" and not name(p).startswith("tests/")]
    named = {t for p in documents for t in re.findall(r"`make ([a-z-]+)", p.read_text())}
    assert named <= targets, named - targets


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in (p for p in files() if p.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            if not (path.parent / target).exists():
                broken.append(f"{name(path)} → {target}")
    assert not broken


def test_protocol_and_problem_pages_agree_on_what_is_sent_again() -> None:
    from catalog.ingest.codes import STATUS
    from frontend.problems import PROBLEMS, SAME

    text = (DOCS / "protocol.md").read_text()
    rows = re.findall(r"^\| (\d{3})[^|]*\| (.*) \|$", text[text.index("## Refusals") :], re.MULTILINE)
    refused = [codes for status, codes in rows if status in ("400", "413", "422")]
    final = {code for codes in refused for code in re.findall(r"`([a-z-]+)`", codes)}
    assert "truncated-frame" in final
    assert {code for code in final if STATUS.get(code, 400) not in (400, 413, 422)} == set()
    assert {code for code in final if PROBLEMS[code].retry == SAME} == set()
    pages = {code: (DOCS / "problems" / f"{code}.md").read_text() for code in final}
    assert {code for code, page in pages.items() if "safe?** Yes" in page} == set()
