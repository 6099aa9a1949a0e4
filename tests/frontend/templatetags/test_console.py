"""Parts of a page: status, tiers, bars, sparks, ids."""

import re

import pytest
from django.template import Context, Template

from catalog.selectors import TierView
from frontend.templatetags import console


def tier(**kw):
    base = {"tier": "dram", "used_bytes": 91, "capacity_bytes": 100, "high": 0.9, "low": 0.8, "blocks": 4,
            "emulated": False, "encrypted": False, "state": "high", "age_ms": 5, "stale": False}  # fmt: skip
    return TierView(**(base | kw))


@pytest.mark.parametrize("kind", sorted(console.KINDS))
def test_a_status_is_icon_and_word(kind):
    for code in console.KINDS[kind]:
        drawn = console.status(kind, code)
        assert re.search(r'<use href="#i-\w+"/></svg>\S', drawn)
        assert "data-tone=" in drawn


def test_everything_from_outside_is_escaped():
    evil = '"><script>'
    for drawn in (console.status("node", evil), console.ident(evil), console.status("node", "ready", evil)):
        assert "<script" not in drawn
    shown = Template("{% load console %}<p data-x='{{ v|tojson }}'></p>").render(Context({"v": {"a": "'<b>&\""}}))
    assert shown == "<p data-x='{&quot;a&quot;:&quot;&#x27;&lt;b&gt;&amp;\\&quot;&quot;}'></p>"


def test_a_tier_is_letter_pattern_and_name():
    assert '<i aria-hidden="true">R</i>remote' in console.tier("remote")
    assert '<span class="sr">hbm</span>' in console.tier("hbm", bare=True)
    assert "p-ssd" in console.swatch("ssd")
    assert "p-" not in console.swatch("c-2")
    assert console.swatch("veil").count("rect") == 2


def test_a_bar_shows_known_and_last_known_apart():
    drawn = console.tier_bar("dram", 50, 100, 0.8, 0.9, last_known=20, label="words")
    assert 'data-fill="known" width="50.0%"' in drawn
    assert 'data-fill="veil" x="50.0%" width="20.0%"' in drawn
    assert drawn.count("<line") == 2
    assert 'aria-label="words"' in drawn
    veiled = console.tier_bar("dram", 50, 100, None, None, veiled=True)
    assert 'data-fill="known" width="0.0%"' in veiled
    assert 'data-fill="veil" x="0.0%" width="50.0%"' in veiled
    assert "<line" not in veiled


def test_a_column_without_a_report_is_veiled():
    known, lost = console.column(tier(), "dram", 44, False), console.column(None, "dram", 44, False)
    assert re.search(r'class="t-dram"[^>]*height="91.0%"/>', known)
    assert re.search(r'class="veil"[^>]* hidden/>', known)
    assert re.search(r'class="t-dram"[^>]* hidden/>', lost)
    assert re.search(r'class="veil"[^>]*height="0.0%"/>', lost)


def test_numbers_of_the_strip():
    assert console.num("hit", "71.4", "%") == '<span class="num" data-num="hit">71.4<small>%</small></span>'
    assert "≥ 19" in console.num("blocks", "19", "M", lower_bound=True)
    assert "unknown" in console.num("hit", None)
    assert "unknown" in console.digits(None)


def test_a_spark_without_a_past_is_empty():
    assert "<path" not in console.spark([1.0])
    assert console.spark([1.0, 2.0]).count("<path") == 2
    assert 'class="doubt"' in console.spark([1.0, 2.0], [True, False])
