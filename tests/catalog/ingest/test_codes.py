"""Every code of the event road has a page that says what was not done and whether a retry is safe."""

from pathlib import Path

import pytest

from catalog.ingest.codes import CODES, HARMLESS, STATUS

PAGES = Path(__file__).resolve().parents[3] / "docs" / "problems"


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_code_has_a_page(code):
    text = (PAGES / f"{code}.md").read_text()
    assert text.startswith(f"# {code}\n")
    for part in ("**What was not done.**", "**Is a retry safe?**", "**What to do.**"):
        assert part in text


def test_statuses_and_exceptions_are_of_known_codes():
    assert set(STATUS) <= set(CODES)
    assert set(CODES) >= HARMLESS
