"""Charts and their tables come from the same folded rows."""

import re
from datetime import UTC, datetime, timedelta

from catalog.selectors import EvictionRow, Sample, TokenRow
from frontend import pictures
from frontend.templatetags.fleet import fills_words

UNTIL = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)
SINCE = UNTIL - timedelta(hours=1)


def evicted(*reasons, step=300):
    return [
        EvictionRow(t=SINCE + timedelta(seconds=step * i), step_seconds=step, reasons=r) for i, r in enumerate(reasons)
    ]


def test_evictions_are_rates_by_reason_in_a_fixed_order():
    chart = pictures.evictions(evicted({"ttl": 600, "watermark": 300}, {"watermark": 900}), SINCE, UNTIL, 12)
    assert [str(row[0]) for row in chart.rows] == ["watermark", "expired"]
    assert [row[3] for row in chart.rows] == ["1,200", "600"]
    assert chart.rows[0][1] == "2"
    assert chart.rows[0][2] == "3"
    assert len(chart.rects) == 3


def test_a_column_nobody_reported_is_veiled_and_sums_become_lower_bounds():
    chart = pictures.evictions(evicted({"value": 30}, None, {"value": 30}), SINCE, UNTIL, 12)
    assert ("8.33", "8.33") in chart.veils
    assert chart.rows[0][3] == "≥ 60"
    assert "≥ 60" in chart.label


def test_a_half_reported_column_is_the_mean_of_what_is_known():
    rows = evicted({"value": 100}, None, step=150)
    chart = pictures.evictions(rows, SINCE, UNTIL, 12)
    assert chart.rows[0][1] == "0.67"


def test_an_unlisted_reason_is_shown_as_itself():
    chart = pictures.evictions(evicted({"brand_new": 5}), SINCE, UNTIL, 12)
    assert chart.rows[0][0] == "brand_new"


def test_nothing_evicted_is_an_empty_picture():
    assert pictures.evictions(evicted({}, {}), SINCE, UNTIL, 12).empty


def used(*rows):
    return [
        TokenRow(
            t=SINCE + timedelta(minutes=i), step_seconds=60, requests=1, prompt_tokens=p, hit_tokens=h, saved_ms=1.0
        )
        for i, (p, h) in enumerate(rows)
    ]


def test_token_shares_add_up_to_all_prompt_tokens():
    chart = pictures.tokens(used((100, {"hbm": 50, "dram": 20}), (100, {"hbm": 30})), SINCE, UNTIL)
    assert [(row[0], row[1]) for row in chart.rows] == [
        ("hbm", "80"), ("pinned", "0"), ("dram", "20"), ("ssd", "0"), ("remote", "0"), ("computed", "100"),
    ]  # fmt: skip
    assert sum(float(row[2].rstrip(" %")) for row in chart.rows) == 100
    assert [value for _css, _name, value in chart.legend] == [row[2] for row in chart.rows]


def test_bands_are_broken_where_nothing_is_known():
    paths = pictures.stacked([[10, 0, 0, 0, 0], [20, 0, 0, 0, 0], None, [5, 0, 0, 0, 0], [5, 0, 0, 0, 0]])
    assert paths[0].count("M") == 2
    assert paths[0].count("z") == 2
    assert paths[1:] == ["", "", "", ""]
    assert all(0 <= float(n) <= 100 for n in re.findall(r"\d+\.\d+", paths[0]))


def sample(minute, used_bytes, capacity=1000):
    at = SINCE + timedelta(minutes=minute)
    return Sample(t=at, used_bytes=used_bytes, peak_bytes=None, capacity_bytes=capacity, high=0.9, low=0.8)


def test_fills_keep_gaps_and_the_table_says_how_long_above_the_mark():
    history = {"hbm": [sample(0, 500), sample(1, None), sample(2, 950)], "ssd": [sample(0, None)]}
    drawn = pictures.fills(history)
    assert [d["tier"] for d in drawn] == ["hbm"]
    assert drawn[0]["full"] == [50.0, None, 95.0]
    assert drawn[0]["high"] == 0.9
    assert pictures.fill_rows(history) == [["hbm", 0.5, 0.725, 0.95, 0.95, 0.5], ["ssd", None, None, None, None, None]]


def test_now_is_unknown_where_the_last_time_was_not_reported():
    history = {"hbm": [sample(0, 500), sample(1, 950), sample(2, None)]}
    rows = pictures.fill_rows(history)
    assert rows == [["hbm", 0.5, 0.725, 0.95, None, 0.5]]
    assert fills_words(rows) == "hbm between 50 % and 95 %, now unknown"


def test_ticks_have_dates_where_the_time_is_long():
    assert pictures.ticks(SINCE, UNTIL, 3) == ["13:00", "13:30", "14:00"]
    assert pictures.ticks(UNTIL - timedelta(days=7), UNTIL, 2) == ["11-22", "11-29"]


def test_tokens_nobody_reported_are_veiled_and_no_letter_floats():
    rows = used((100, {"hbm": 50}))
    rows += [
        TokenRow(
            t=SINCE + timedelta(minutes=i),
            step_seconds=60,
            requests=None,
            prompt_tokens=None,
            hit_tokens=None,
            saved_ms=None,
        )
        for i in range(1, 60)
    ]
    chart = pictures.tokens(rows, SINCE, UNTIL)
    assert len(chart.veils) == 59
    assert not chart.letters
    assert pictures.tokens(used(*[(100, {"hbm": 50})] * 60), SINCE, UNTIL).letters == [("hbm", "H", 75.0)]
