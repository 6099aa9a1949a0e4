"""Codes become sentences in both languages; names are escaped."""

from datetime import UTC, datetime

import pytest
from django.utils import translation
from django.utils.safestring import SafeString

from catalog.selectors import Alert, Sentence
from frontend import sentences

NOW = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)
ANSWERS = [
    Sentence(code="nodes-reporting", params={"reporting": 3, "nodes": 4}),
    Sentence(code="node-silent", params={"nodes": ["a1"], "age_ms": 660_000}),
    Sentence(code="tier-high", params={"nodes": ["b1", "c1"], "tier": "dram"}),
]


def test_the_answer_says_the_statements_in_their_order():
    text = sentences.answer(ANSWERS)
    assert text == (
        '<b>3 of 4 nodes report.</b> <a href="/nodes/a1">a1</a> has been silent for 11 min.'
        ' <a href="/nodes/b1">b1</a> and <a href="/nodes/c1">c1</a> went above the high mark on dram'
        " in the last minute."
    )


def test_chinese_sentences_have_no_space_between_them():
    with translation.override("zh-hans"):
        text = sentences.answer(ANSWERS)
    assert text.startswith("<b>4 个节点中有 3 个在上报。</b><a")
    assert "silent" not in text


@pytest.mark.parametrize("code", sorted(sentences.ANSWERS))
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_answer_can_be_said_with_little_known(code, language):
    with translation.override(language):
        assert str(sentences.answer([Sentence(code=code)])).strip()


@pytest.mark.parametrize("code", sorted(sentences.HONESTY))
def test_every_honesty_line_can_be_said(code):
    params = {"nodes": ["x"], "families": 14_203, "rows": 132, "seconds": 60}
    assert sentences.honesty([Sentence(code=code, params=params)])[0]


def test_an_unlisted_code_shows_itself():
    assert sentences.answer([Sentence(code="brand-new")]) == "<code>brand-new</code>"
    assert "brand-new" in sentences.alert_line(Alert(code="brand-new", severity="info", since=NOW)).title


def test_what_comes_from_outside_is_escaped():
    evil = "<img src=x>"
    text = sentences.answer([Sentence(code="tier-high", params={"nodes": [evil], "tier": evil})])
    assert "<img" not in text
    assert (
        "<img" not in sentences.alert_line(Alert(code="node-silent", severity="critical", since=NOW, node=evil)).title
    )
    assert not isinstance(sentences.reason(evil), SafeString), "the template escapes it"


@pytest.mark.parametrize(
    ("code", "params", "part"),
    [
        ("node-silent", {}, "veiled"),
        ("source-recovering", {"reason": "gap"}, "Frames are missing"),
        ("source-degraded", {"reason": "hashes-over-tokens"}, "more hashes than tokens"),
        ("source-unlisted", {}, "cannot list"),
        ("tier-high", {"tier": "dram", "share": 0.912}, "91.2 % used."),
        ("tier-full", {"tier": "dram", "share": 0.6, "peak": 1.0}, "60.0 % used now, up to 100.0 %."),
        ("refused", {"count": 17}, "17 items so far"),
        ("writer-away", {}, "Nothing is lost"),
    ],
)
def test_alerts_have_a_title_and_say_why(code, params, part):
    line = sentences.alert_line(Alert(code=code, severity="warning", since=NOW, node="n1", params=params))
    assert line.title.startswith("<b>")
    assert part in line.detail


def test_many_names_are_counted():
    assert sentences.links([f"n{i}" for i in range(6)]).count("<a ") == 3
    assert "3 more" in sentences.links([f"n{i}" for i in range(6)])
