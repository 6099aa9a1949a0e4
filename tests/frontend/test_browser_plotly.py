"""Plotly under a strict policy: its style sheet as a static file is the one the wheel's script would insert."""

import pytest

from tests.frontend.test_plotly import ROOT, SCRIPT


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
