"""Decides which tiers of which nodes may hold a namespace's blocks: data class, region, protection, isolation.

A rule only ever narrows: what the tenant's residency, its class and its isolation say holds together. Called by the
console (leases, placement, the check of what is told) and thereby by agents, which are told what is barred.
"""

from collections.abc import Collection, Mapping

import msgspec

from kvcore.blocks import TIERS, VOLATILE, Tier

PROTECTIONS = ("plain", "encrypted", "tee")
"""From weak to strong. Memory counts as encrypted, as nothing of it outlives its power; no tier is a TEE yet."""
PLACE = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""How a region, zone, rack or node may be called: what a tenant's residency names has to be the name of a region."""
DATA_CLASS, RESIDENCY, PROTECTION, ISOLATION, QUOTA = "data-class", "residency", "protection", "isolation", "quota"
REASONS = frozenset({DATA_CLASS, RESIDENCY, PROTECTION, ISOLATION, QUOTA})
"""Why a block is not taken somewhere."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Where blocks of a data class may be. None = anywhere."""

    tiers: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    min_protection: str = "plain"

    def and_(self, other: "Rule") -> "Rule":
        """Both rules together."""
        return Rule(
            tiers=_both(self.tiers, other.tiers),
            regions=_both(self.regions, other.regions),
            min_protection=max(self.min_protection, other.min_protection, key=PROTECTIONS.index),
        )

    def widens(self, before: "Rule") -> bool:
        """Whether a block may be somewhere where the rule before did not let it be."""
        weaker = PROTECTIONS.index(self.min_protection) < PROTECTIONS.index(before.min_protection)
        return weaker or _more(self.tiers, before.tiers) or _more(self.regions, before.regions)


ANYWHERE = Rule()
BUILT_IN: dict[str, Rule] = {
    "restricted": Rule(tiers=frozenset(t for t in TIERS if Tier(t) in VOLATILE)),
}
"""Rules of classes that a tenant has said nothing about."""


def _more(now: frozenset[str] | None, before: frozenset[str] | None) -> bool:
    return before is not None and (now is None or not now <= before)


def _both(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return b if a is None else a if b is None else a & b


def rule_for(
    rules: Mapping[str, Rule], *, data_class: str, classes: Collection[str], separable: bool, residency: str
) -> Rule:
    """The rule of a namespace.

    Args:
        rules: the tenant's, by class.
        data_class: of the namespace.
        classes: the tenant's.
        separable: whether the class is part of the namespace. Where it is not, a namespace may hold blocks of any
            class of the tenant, and all rules hold together.
        residency: the tenant's region; "" = any.
    """
    out = Rule(regions=frozenset({residency})) if residency else ANYWHERE
    for name in [data_class] if separable else sorted({*classes, *rules}):
        out = out.and_(rules.get(name) or BUILT_IN.get(name) or ANYWHERE)
    return out


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A node as rules see it. `encrypted`: tiers that say they are. `dedicated_to`: the one tenant it serves, or ""."""

    region: str
    encrypted: frozenset[str] = frozenset()
    dedicated_to: str = ""


def refusal(rule: Rule, place: Place, tier: str, *, tenant: str, isolation: str) -> str:
    """Why a block may not be on this tier of this node, "" if it may. The widest reason is told.

    Args:
        rule: of its namespace.
        place: the node.
        tier: of the node.
        tenant: whose block it is, in the words of `place.dedicated_to`.
        isolation: of that tenant: shared, arena or node.
    """
    if place.dedicated_to != tenant and (place.dedicated_to or isolation == "node"):
        return ISOLATION
    if rule.regions is not None and place.region not in rule.regions:
        return RESIDENCY
    if rule.tiers is not None and tier not in rule.tiers:
        return DATA_CLASS
    offered = "encrypted" if Tier(tier) in VOLATILE or tier in place.encrypted else "plain"
    if PROTECTIONS.index(offered) < PROTECTIONS.index(rule.min_protection):
        return PROTECTION
    return ""


def barred(rule: Rule, place: Place, *, tenant: str, isolation: str) -> dict[str, str]:
    """Tier → reason, for all tiers of the node that may not hold the namespace's blocks."""
    found = {tier: refusal(rule, place, tier, tenant=tenant, isolation=isolation) for tier in TIERS}
    return {tier: why for tier, why in found.items() if why}


def shut(bars: Mapping[str, str]) -> str:
    """Why nothing of a namespace may be on the node at all, "" if something may."""
    if len(bars) < len(TIERS):
        return ""
    return min(bars.values(), key=lambda why: (why not in (ISOLATION, RESIDENCY), why))
