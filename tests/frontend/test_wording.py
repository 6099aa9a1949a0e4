"""Words of codes: every code the catalog uses has one, in both languages."""

import re
from pathlib import Path

import pytest
from django.utils import translation

from catalog.heat import UNITS
from catalog.ingest.sources import REPAIRABLE
from catalog.models.fleet import NODE_ROLES, NODE_STATES
from catalog.models.pictures import METRICS
from frontend import wording
from frontend.tenancy.wording import INCOMPLETE
from kvcore.blocks import TIERS
from kvcore.events import GAPS, REASONS

SCRIPTS = Path(wording.__file__).parent / "static" / "frontend" / "js"


def test_every_code_of_the_catalog_has_a_word():
    assert set(NODE_STATES) <= wording.NODE_STATES.keys()
    assert set(NODE_ROLES) <= wording.NODE_ROLES.keys()
    assert set(REASONS) <= wording.EVICTION_REASONS.keys()
    assert set(METRICS) == wording.METRICS.keys()
    assert [str(t) for t in TIERS] == list(wording.TIERS) == list(wording.LETTERS)
    assert wording.SOURCE_REASONS.keys() >= REPAIRABLE
    assert {f"engine-{gap}" for gap in GAPS} <= wording.SOURCE_REASONS.keys()
    assert {f"unit_{unit}" for unit in UNITS.values()} <= wording.SCRIPT.keys()


def test_an_unlisted_code_keeps_its_name():
    assert wording.word(wording.NODE_ROLES, "proxy") == "proxy"
    assert wording.state(wording.NODE_STATES, "dreaming").word == "dreaming"
    assert wording.state(wording.NODE_STATES, None).tone == "unknown"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_scripts_get_every_phrase_they_ask_for(language):
    with translation.override(language):
        words = wording.script_words()
    asked = set()
    for script in SCRIPTS.glob("*.js"):
        asked |= {m for m in re.findall(r"\bt\(\s*'([a-z_]+)'", script.read_text())}
    assert asked - {"theme_"} <= words.keys()
    assert all(words.values())


def test_every_reason_for_which_use_was_not_counted_has_words():
    """Codes that the writer notes (`days.gap`), and a tenant's people read."""
    noted = set()
    for path in (Path(__file__).parents[2] / "catalog" / "ingest").glob("*.py"):
        noted |= set(re.findall(r'days\.gap\([^"]*"([a-z-]+)"\)', path.read_text()))
    assert {"node-restarted", "frames-missing"} <= noted
    assert noted <= INCOMPLETE.keys()
