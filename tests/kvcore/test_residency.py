"""Which tiers of which nodes may hold a namespace's blocks: refusals first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.blocks import TIERS
from kvcore.residency import ANYWHERE, BUILT_IN, PROTECTIONS, Place, Rule, barred, refusal, rule_for, shut

FRA = Place(region="eu-fra")
RULES = st.builds(
    Rule,
    tiers=st.none() | st.frozensets(st.sampled_from(list(map(str, TIERS)))),
    regions=st.none() | st.frozensets(st.sampled_from(["eu-fra", "us-east"])),
    min_protection=st.sampled_from(PROTECTIONS),
)
PLACES = st.builds(
    Place,
    region=st.sampled_from(["eu-fra", "us-east"]),
    encrypted=st.frozensets(st.sampled_from(["ssd", "remote"])),
    dedicated_to=st.sampled_from(["", "a", "b"]),
)


def why(rule, place, tier, *, tenant="a", isolation="shared"):
    return refusal(rule, place, tier, tenant=tenant, isolation=isolation)


def test_restricted_blocks_stay_in_memory():
    rule = rule_for({}, data_class="restricted", classes=["restricted"], separable=True, residency="")
    assert {t: why(rule, FRA, t) for t in TIERS} == {
        "hbm": "", "pinned": "", "dram": "", "ssd": "data-class", "remote": "data-class",
    }  # fmt: skip


def test_a_region_holds_for_all_tiers():
    rule = rule_for({}, data_class="", classes=[], separable=True, residency="us-east")
    bars = barred(rule, FRA, tenant="a", isolation="shared")
    assert set(bars.values()) == {"residency"}
    assert shut(bars) == "residency"


def test_where_classes_cannot_be_told_apart_all_their_rules_hold():
    classes = ["public", "restricted"]
    assert rule_for({}, data_class="", classes=classes, separable=False, residency="") == BUILT_IN["restricted"]
    assert rule_for({}, data_class="public", classes=classes, separable=True, residency="") == ANYWHERE


def test_a_rule_of_the_tenant_replaces_the_built_in_one():
    own = {"restricted": Rule(min_protection="encrypted")}
    found = rule_for(own, data_class="restricted", classes=["restricted"], separable=True, residency="")
    assert found == own["restricted"]


@pytest.mark.parametrize(
    ("wanted", "sealed", "tier", "found"),
    [
        ("plain", False, "ssd", ""),
        ("encrypted", False, "ssd", "protection"),
        ("encrypted", True, "ssd", ""),
        ("encrypted", False, "hbm", ""),
        ("tee", True, "ssd", "protection"),
        ("tee", True, "hbm", "protection"),
    ],
)
def test_protection(wanted, sealed, tier, found):
    place = Place(region="eu-fra", encrypted=frozenset({"ssd"} if sealed else ()))
    assert why(Rule(min_protection=wanted), place, tier) == found


@pytest.mark.parametrize(
    ("owner", "tenant", "isolation", "found"),
    [
        ("", "a", "shared", ""),
        ("", "a", "arena", ""),
        ("", "a", "node", "isolation"),
        ("a", "a", "node", ""),
        ("a", "b", "shared", "isolation"),
        ("b", "a", "node", "isolation"),
    ],
)
def test_a_node_of_ones_own(owner, tenant, isolation, found):
    place = Place(region="eu-fra", dedicated_to=owner)
    assert why(ANYWHERE, place, "hbm", tenant=tenant, isolation=isolation) == found


@given(RULES, RULES, PLACES, st.sampled_from(list(TIERS)), st.sampled_from(["shared", "arena", "node"]))
def test_two_rules_together_refuse_whatever_one_refuses(one, other, place, tier, isolation):
    single = [why(r, place, tier, isolation=isolation) for r in (one, other)]
    assert bool(why(one.and_(other), place, tier, isolation=isolation)) == any(single)
    assert one.and_(other) == other.and_(one)
    assert one.and_(ANYWHERE) == one


def test_something_that_is_barred_in_part_is_not_shut():
    assert shut({"ssd": "data-class"}) == ""
    assert shut({}) == ""
