"""Scripts and style sheets as files: small, and what a strict policy lets through."""

import re
from pathlib import Path

import plotly

ROOT = Path(__file__).parents[2] / "frontend"
SCRIPT = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def test_the_page_names_the_style_element_that_the_script_would_make():
    made = re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', SCRIPT.read_text())
    assert len(made) == 1
    assert f'id="{made[0]}"' in (ROOT / "templates/frontend/node.html").read_text()


SCRIPTS = ROOT / "static/frontend/js"
EVERYWHERE = {"theme.js", "twin.js", "keys.js"}
"""What `base.html` loads."""


def loaded(page: str) -> set[str]:
    """The modules that a page with this script loads."""
    found, ahead = set[str](), {page, *EVERYWHERE}
    while ahead:
        found |= ahead
        imports = (re.findall(r"from '\./([\w-]+\.js)'", (SCRIPTS / name).read_text()) for name in ahead)
        ahead = {name for names in imports for name in names} - found
    return found


def test_scripts_stay_small():
    """No page loads more than 1,500 lines of ours."""
    lines = {path.name: len(path.read_text().splitlines()) for path in SCRIPTS.glob("*.js")}
    pages = {
        name for text in ROOT.rglob("*.html") for name in re.findall(r"frontend/js/([\w-]+\.js)", text.read_text())
    }
    assert {"map.js", "overview.js", "node.js"} | EVERYWHERE <= pages
    assert set().union(*map(loaded, pages)) == set(lines), "a script that no page loads"
    assert {page: n for page in pages if (n := sum(lines[name] for name in loaded(page))) > 1500} == {}
    for path in SCRIPTS.glob("*.js"):
        text = path.read_text()
        assert not re.search(r"\beval\(|new Function|innerHTML|https?://(?!www\.w3\.org)", text), path.name
