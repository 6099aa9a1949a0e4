"""Use and quotas as they are drawn: chart and table say the same, and what is unknown is never a zero."""

from datetime import UTC, date, datetime, timedelta

import pytest

from catalog.quotas import QuotaView, TierQuota
from catalog.usage import Hits, UsageLine, UsageView
from frontend.tenancy import pictures

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GIB = 1 << 30


def use(days, complete=True, hits=True, span=7):
    lines = [
        UsageLine(date(2026, 11, 30) - timedelta(days=back), tier, 10, 100, tokens, tokens * 1024, tokens / 2)
        for back, tokens in days.items()
        for tier in ("", "hbm")
    ]
    since = NOW.replace(hour=0) - timedelta(days=span - 1)
    totals = Hits(sum(days.values()), 0, 0.0, 0, 0, 0) if hits else None
    return UsageView(since, since + timedelta(days=span), NOW, complete, [] if complete else ["gap"], {}, totals, lines)


def test_the_table_sums_up_to_the_chart():
    chart = pictures.usage(use({0: 40, 1: 60}), "tokens")
    assert chart.legend == [("hbm", "hbm", "100")]
    assert chart.rows[-1][1:] == ["20", "100", "100 KiB", "50 ms"]
    assert len(chart.rects) == 2
    assert not chart.veils
    assert [row[0] for row in chart.rows[:2]] == ["2026-11-30", "2026-11-29"]


def test_a_day_that_nobody_counted_is_veiled_and_sums_are_bounds():
    chart = pictures.usage(use({0: 40}, complete=False), "bytes")
    assert len(chart.veils) == 6
    assert "unknown" in str(chart.rows[1][1])
    assert chart.rows[-1][2] == "≥ 40"
    assert chart.label == "Use by day, stacked by tier. In all ≥ 40 KiB."


def test_nothing_in_a_complete_time_is_zero_and_empty():
    chart = pictures.usage(use({}), "saved")
    assert chart.empty
    assert chart.rows[0][1] == "0"


def test_long_times_have_five_dates():
    assert len(pictures.usage(use({0: 1}, span=90), "tokens").x) == 5


@pytest.mark.parametrize(
    ("used", "limit", "state"),
    [
        (None, 5, "unknown"),
        (None, None, "unknown"),
        (5, None, "free"),
        (5, 5, "full"),
        (6, 5, "full"),
        (9, 10, "high"),
        (1, 10, "ok"),
        (0, 0, "ok"),
        (1, 0, "full"),
    ],
)
def test_states_of_quotas(used, limit, state):
    assert pictures.tier_state(used, limit) == state


def test_steps_word_limits_guarantees_and_what_is_unknown():
    tiers = {t: TierQuota(None, 0, 0, 0, None) for t in ("pinned", "dram", "ssd", "remote")}
    tiers["hbm"] = TierQuota(4 * GIB, 2 * GIB, GIB, 3 * GIB, False)
    hbm, pinned, *_rest = pictures.steps(QuotaView(tiers, None, None, NOW))
    assert (hbm.share, hbm.scaled, hbm.mark, hbm.state) == ("75 %", True, 0.25, "ok")
    assert hbm.label == "hbm: 3 GiB used, quota: 4 GiB, of which others cannot evict 1 GiB"
    assert (pinned.limit, pinned.state, pinned.part) == ("no limit", "free", None)
