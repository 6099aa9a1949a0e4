"""Statements, forecasts, plans and addresses of the pages of tenancy."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.quotas import QuotaView, TierQuota
from catalog.usage import Hits, UsageView
from frontend.tenancy import acts, epochs, pictures, sentences, urls, wording
from tenants.directory import TenantView
from tenants.reading import Point, RolloutEpoch, RolloutView

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GIB = 1 << 30


def tenant(slug="acme-code", state="active"):
    return TenantView(None, slug, slug.title(), "", "shared", [], "label", {}, state, NOW)


def use(hits=None, complete=True):
    return UsageView(NOW, NOW, NOW, complete, [], {}, hits, [])


def quotas(**tiers):
    rest = {t: TierQuota(None, 0, 0, 0, None) for t in ("hbm", "pinned", "dram", "ssd", "remote")}
    return QuotaView({**rest, **tiers}, None, None, NOW)


def test_the_statement_of_a_tenant_begins_with_the_worst():
    steps = pictures.steps(quotas(hbm=TierQuota(GIB, 0, 0, GIB, None), dram=TierQuota(100, 50, 25, 95, None)))
    said = sentences.tenant(tenant(state="closed"), steps, use(Hits(75, 0, 9_000.0, 1, 100, 1), False), 7)
    order = [
        "closed",
        "quota of hbm is used up",
        "dram is at 95 %",
        "guarantee of dram",
        "75.0 % of prompt tokens",
        "≥ 9.0 s",
    ]
    assert [said.index(part) for part in order] == sorted(said.index(part) for part in order)


def test_what_was_not_counted_is_said_and_no_requests_are_no_zero_per_cent():
    assert "was not counted" in sentences.worth(use(), 7)
    assert sentences.worth(use(Hits(0, 0, 0.0, 0, 0, 0)), 7) == "No request came in 7 days."


def test_the_statement_of_the_list():
    assert "no tenant yet" in sentences.tenants([], {}, "", True)
    assert "&lt;b&gt;" in sentences.tenants([], {}, "<b>", True)
    assert sentences.tenants([tenant()], {}, "", True) == "<b>1 tenant.</b> Nobody has used up a quota."
    assert "from a to b" in sentences.tenants([tenant("a"), tenant("b")], {}, "", False)
    assert "has used up a quota" in sentences.tenants([tenant()], {"acme-code": ["hbm"]}, "acme", True)


def test_settings_say_what_waits_first():
    assert sentences.settings(2, 1).startswith("<b>1 share group waits</b>")
    assert sentences.settings(None, 0) == "Your own tokens, and what tenants share."


def test_a_plan_of_quotas_has_what_changes_and_what_leaves():
    before = quotas(hbm=TierQuota(4 * GIB, 0, 0, 3 * GIB, None))
    after = quotas(hbm=TierQuota(GIB, 0, 0, 3 * GIB, None), dram=TierQuota(9, 5, 2, None, None))
    plan = acts.quota_plan(before, after)
    assert [(line["tier"], line["evicts"], line["scaled"]) for line in plan] == [
        ("hbm", 2 * GIB, False),
        ("dram", 0, True),
    ]
    assert acts.evicted(plan) == 2 * GIB
    assert acts.quota_plan(before, before) == []


def test_the_forecast_is_straight_between_its_points():
    line = [Point(NOW, 100, 100), Point(NOW + timedelta(minutes=10), 50, 100)]
    at = [epochs.expected(line, NOW + timedelta(minutes=m)) for m in (-5, 0, 5, 10, 60)]
    assert at == [100, 100, 75, 50, 50]


def rollout(shares, stale=0, measured=()):
    held = [RolloutEpoch(e, "open", shares.get(str(e), 0), 1, 1, stale, NOW) for e in (1, 2)]
    return RolloutView("m", 1, shares, {}, NOW, 1800, held, [Point(NOW, 100, 100)], 100, list(measured), None)


def test_the_statement_of_a_roll_out():
    assert "All new requests of <b>m</b> go to epoch 2." in epochs.sentence(rollout({"2": 100}))
    shared = epochs.sentence(rollout({"1": 90, "2": 10}, measured=[Point(NOW, 80, 100)]))
    assert "10 % to epoch 2 and 90 % to epoch 1" in shared
    assert "Old epochs hold 80 B; 100 B were expected" in shared
    assert epochs.sentence(rollout({"2": 100}, stale=3)).startswith(
        "<b>6 tokens were read from fenced generations.</b>"
    )
    assert epochs.stale([RolloutEpoch(1, "open", 0, None, None, None, None)]) is None


def test_what_a_change_of_shares_means():
    assert epochs.means({"1": 100}, {"1": 90, "2": 10}) == [(2, 0, 10), (1, 100, 90)]
    assert [share for share, _link in epochs.quick("m", rollout({"2": 100}), [1, 2], "x")] == [0, 10, 50, 100]
    assert epochs.quick("m", rollout({"2": 100}), [2], "x") == []


def test_every_address_is_a_page_and_what_cannot_be_taken_back_asks_for_a_proof():
    from kvconsole.infra.access import rule_for

    assert all(p.name.startswith("page-") for p in urls.urlpatterns)
    for name in (
        "page-tenant-close",
        "page-tenant-quotas-evict",
        "page-person-remove",
        "page-token-new",
        "page-person-new",
    ):
        assert rule_for(name, "POST").step_up, name


@pytest.mark.parametrize(
    "code", ["weights-epoch", "adapter", "scope", "kv-scales", "tokenizer", "block-size", "session"]
)
def test_codes_of_explaining_are_worded(code):
    assert code in wording.REUSE_FIELDS
