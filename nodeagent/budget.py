"""Decides what tenants may hold on this node: which tiers bar their blocks, what is charged, whose blocks may leave.

Policies come with leases, allowances with every answer of the console. Bytes are charged when a place is reserved and
given back when the copy goes or the reservation comes to nothing, so what is charged is what is held, always. A tenant
whose bytes are limited and whose allowance is not known yet may reserve nothing. Under the pool's lock; called by
`pool` and `demotion`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kvcore.blocks import TIERS, Tier
from kvcore.keys import KEY_BYTES
from kvcore.quotas import Verdict, verdict
from kvcore.residency import QUOTA, shut
from nodeagent.runs import Run, Space

STALE, ERASING = "stale-generation", "erasing"
"""Why a place is not given, besides policy: the generation is fenced; what is being erased there gets no new blocks."""
COMMON = ""
"""Line of all tenants that have no share of their own."""


class Pin(NamedTuple):
    """Kept where it lies until then (seconds since 1970): these keys' runs, or with None the whole namespace."""

    until: float
    keys: frozenset[bytes] | None


class Policy(NamedTuple):
    """What is known of a namespace: whose it is, tiers that bar it and why, whether its tenant is limited, its pins."""

    tenant: str
    barred: Mapping[str, str]
    metered: bool
    pins: tuple[Pin, ...] = ()


class Share(NamedTuple):
    """A tenant's allowance on a tier here, and what of it others may not evict. Bytes of blocks; None = unlimited."""

    limit: int | None
    floor: int


NONE, FREE = Share(0, 0), Share(None, 0)


class Budget:
    """Charges and shares of one node. `refused` counts blocks that were not taken, since it was last taken over."""

    def __init__(self, *, block_bytes: int, slot_bytes: int) -> None:
        self.policies: dict[bytes, Policy] = {}
        self.shares: dict[str, dict[Tier, Share]] = {}
        self.arenas: frozenset[str] = frozenset()
        self.pins: dict[bytes, tuple[Pin, ...]] = {}
        self.charged: Counter[tuple[str, Tier]] = Counter()
        """Bytes of blocks, reserved ones too."""
        self.physical: Counter[tuple[str, Tier]] = Counter()
        """Bytes with headers of what is stored."""
        self.refused: Counter[tuple[bytes, Tier, str]] = Counter()
        self.refused_ever: Counter[tuple[Tier, str]] = Counter()
        self._block_bytes, self._slot_bytes = block_bytes, slot_bytes

    # What the console says

    def learn(self, policies: Mapping[bytes, Policy]) -> set[bytes]:
        """The policies hold; answers the namespaces for which that changes something."""
        changed = {ns for ns, policy in policies.items() if self.policies.get(ns) != policy}
        self.policies.update(policies)
        for ns, policy in policies.items():
            self._pin(ns, policy.pins)
        return changed

    def allow(self, allowances: Mapping[str, Any]) -> None:
        """The shares are these. What is malformed is left out, which leaves a limited tenant nothing."""
        given, arenas = allowances.get("tenants"), allowances.get("arenas")
        shares: dict[str, dict[Tier, Share]] = {}
        for tenant, tiers in given.items() if isinstance(given, dict) else ():
            of: dict[Tier, Share] = {}
            for tier, share in tiers.items() if isinstance(tiers, dict) else ():
                if tier in TIERS and _good(share):
                    of[Tier(tier)] = Share(share[0], share[1])
            shares[str(tenant)] = of
        self.shares = shares
        self.arenas = frozenset(map(str, arenas)) & shares.keys() if isinstance(arenas, list) else frozenset()

    def tenant(self, ns: bytes) -> str:
        """Whose the namespace is, "" where that is not known."""
        policy = self.policies.get(ns)
        return policy.tenant if policy else ""

    def shut(self, ns: bytes) -> str:
        """Why nothing of the namespace may be here, "" if something may or nothing is known of it."""
        policy = self.policies.get(ns)
        return shut(policy.barred) if policy else ""

    def barred(self, ns: bytes, tier: Tier) -> str:
        """Why the tier may not hold the namespace's blocks, "" if it may."""
        policy = self.policies.get(ns)
        return policy.barred.get(tier.value, "") if policy else ""

    def pinned(self, run: Run) -> bool:
        """Whether a pin keeps the run where it is. What is fenced is kept by nothing."""
        pins = self.pins.get(run.space.ns)
        if not pins or run.space.fenced:
            return False
        keys = run.keys
        return any(
            pin.keys is None or any(keys[at : at + KEY_BYTES] in pin.keys for at in range(0, len(keys), KEY_BYTES))
            for pin in pins
        )

    def unpin(self, now: float) -> None:
        """Pins whose time is over keep nothing."""
        over = [ns for ns, pins in self.pins.items() if any(pin.until <= now for pin in pins)]
        for ns in over:
            self._pin(ns, tuple(pin for pin in self.pins[ns] if pin.until > now))

    def _pin(self, ns: bytes, pins: tuple[Pin, ...]) -> None:
        if pins:
            self.pins[ns] = pins
        else:
            self.pins.pop(ns, None)

    def share(self, space: Space, tier: Tier) -> Share:
        """What the space's tenant has of the tier."""
        of = self.shares.get(space.tenant)
        if of is not None:
            return of.get(tier, FREE)
        policy = self.policies.get(space.ns)
        return NONE if policy and policy.metered else FREE

    # Charges

    def verdict(self, space: Space, tier: Tier, blocks: int) -> Verdict:
        """Whether so many more blocks of the space may be reserved on the tier."""
        return verdict(self.share(space, tier).limit, self.charged[space.tenant, tier], blocks * space.block_bytes)

    def excess(self, tenant: str, tier: Tier, more: int = 0) -> int:
        """Bytes of blocks that the tenant is above its limit, once it has `more`."""
        limit = self.shares.get(tenant, {}).get(tier, FREE).limit
        return 0 if limit is None else max(0, self.charged[tenant, tier] + more - limit)

    def charge(self, space: Space, tier: Tier, blocks: int) -> None:
        """So many blocks more (less, if negative) are the tenant's."""
        at = space.tenant, tier
        self.charged[at] += blocks * space.block_bytes
        if not self.charged[at]:
            del self.charged[at]

    def store(self, space: Space, tier: Tier, blocks: int) -> None:
        """So many blocks of the tenant's more (less, if negative) are stored."""
        at = space.tenant, tier
        self.physical[at] += blocks * (space.block_bytes + self._slot_bytes - self._block_bytes)
        if not self.physical[at]:
            del self.physical[at]

    def move(self, space: Space, tenant: str) -> None:
        """The space is another tenant's than was known."""
        for sign, name in ((-1, space.tenant), (+1, tenant)):
            space.tenant = name
            for tier, (blocks, _, _) in space.totals.items():
                self.charge(space, tier, sign * blocks)
                self.store(space, tier, sign * blocks)

    def refuse(self, ns: bytes, tier: Tier, reason: str, blocks: int) -> None:
        """So many blocks were not taken."""
        if blocks:
            self.refused[ns, tier, reason] += blocks
            self.refused_ever[tier, reason] += blocks

    # Whose blocks leave

    def line(self, tenant: str) -> str:
        """The queue that the tenant's blocks stand in."""
        return tenant if tenant in self.shares else COMMON

    def kept(self, tier: Tier) -> int:
        """Bytes with headers that arenas keep from all others on the tier, whether they are full or not."""
        limits = [self.shares[t].get(tier, FREE).limit or 0 for t in self.arenas]
        return sum(limit // self._block_bytes * self._slot_bytes for limit in limits)

    def common_used(self, tier: Tier, used_bytes: int) -> int:
        """What of the used bytes is in no arena."""
        return used_bytes - sum(self.physical[t, tier] for t in self.arenas)

    def most(self, tenant: str, tier: Tier, capacity_bytes: int) -> int:
        """Bytes with headers that could be the tenant's if nobody else had any: all but what arenas keep from it."""
        return capacity_bytes if tenant in self.arenas else max(0, capacity_bytes - self.kept(tier))

    def over(self, tenant: str, tier: Tier, used_bytes: int, capacity_bytes: int, size_bytes: int) -> int:
        """Bytes that must leave before `size_bytes` more of the tenant fit (headers included)."""
        whole = used_bytes + size_bytes - capacity_bytes
        if not self.arenas or tenant in self.arenas:
            return whole
        return max(whole, self.common_used(tier, used_bytes) + size_bytes - self.most(tenant, tier, capacity_bytes))

    def pressed(self, tenant: str, tier: Tier, used_bytes: int, capacity_bytes: int) -> str | None:
        """Whose blocks make room for the tenant: its own line's name, or None = everybody's that may lose some.

        An arena makes its own room, except where others are in it that were there before it.
        """
        if tenant not in self.arenas or self.common_used(tier, used_bytes) > capacity_bytes - self.kept(tier):
            return None
        return tenant

    def may_lose(self, line: str, tier: Tier, size: int, asker: str) -> bool:
        """Whether somebody else's need may take `size` bytes of blocks from a line: never below its floor."""
        if line in self.arenas:
            return False
        if line in (COMMON, asker):
            return True
        return self.charged[line, tier] - size >= self.shares[line].get(tier, FREE).floor


def policies_of(lines: Iterable[tuple[bytes, str, Mapping[str, str], bool, tuple[Pin, ...]]]) -> dict[bytes, Policy]:
    """By namespace; reasons of tiers that are not ours are left out."""
    return {ns: Policy(tenant, {t: why for t, why in bars.items() if t in TIERS}, metered, pins)
            for ns, tenant, bars, metered, pins in lines}  # fmt: skip


def content(run: Run) -> int:
    """Bytes of the run's blocks, without headers: what is charged for it."""
    return run.blocks * run.space.block_bytes


def _good(share: object) -> bool:
    if not isinstance(share, list | tuple) or len(share) != 2:
        return False
    limit, floor = share
    counts = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (floor, limit or 0))
    return counts and not isinstance(limit, bool)


__all__ = ["COMMON", "QUOTA", "Budget", "Pin", "Policy", "Share", "content", "policies_of"]
