"""Plotly under a strict policy: its style sheet as a static file is the one the wheel's script would insert."""

import re
from pathlib import Path

import plotly
import pytest

ROOT = Path(__file__).parents[2] / "frontend"
SCRIPT = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


@pytest.mark.browser
def test_the_static_style_sheet_is_plotlys(chromium):
    page = chromium.new_page()
    page.set_content("<div id=x></div>")
    page.add_script_tag(path=str(SCRIPT))
    page.evaluate("Plotly.newPlot('x', [{y: [1, 2]}])")
    inserted = page.evaluate(
        "[...document.getElementById('plotly.js-style-global').sheet.cssRules].map((r) => r.cssText)"
    )
    page.set_content(f"<style>{(ROOT / 'static/frontend/css/plotly.css').read_text()}</style>")
    ours = page.evaluate("[...document.styleSheets[0].cssRules].map((r) => r.cssText)")
    page.close()
    assert ours == inserted


def test_the_page_names_the_style_element_that_the_script_would_make():
    made = re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', SCRIPT.read_text())
    assert len(made) == 1
    assert f'id="{made[0]}"' in (ROOT / "templates/frontend/node.html").read_text()


def test_scripts_stay_small():
    scripts = list((ROOT / "static/frontend/js").glob("*.js"))
    assert sum(len(p.read_text().splitlines()) for p in scripts) <= 1500
    for path in scripts:
        text = path.read_text()
        assert not re.search(r"\beval\(|new Function|innerHTML|https?://(?!www\.w3\.org)", text), path.name
