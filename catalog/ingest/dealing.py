"""Deals what tenants may hold to nodes: every ten seconds, by the one writer, in its own commits.

PostgreSQL has the truth: a writer that takes over goes on from the rows. The rules are `kvcore.quotas`: what is taken
from one node is given to another only once the first has said that it let go, so the allowances of all nodes together
are never above the limit. Called by `folding` in the fold thread; documents ride on answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from catalog.index.memory import Memory
from catalog.ingest import dealing_rows as sql
from catalog.ingest.nodes import GONE, SHUT, NodeBook, NodeRow
from catalog.ingest.policies import PolicyBook
from catalog.models import Allowance, NodeDeal, Quota
from catalog.quotas import guarantees
from kvcore.quotas import ANYTHING, NOTHING, Grant, Room, applied, redeal, scale, share, targets
from kvcore.residency import Rule, refusal
from tenants.constants import PLATFORM_TENANT
from tenants.placing import TenantPlace, tenant_places, tenants_with_arena

EVERY_S, TALLY_S = 10.0, 2.5
AGAIN_S = 0.5
AHEAD = 2**24
"""A node cannot have been told so many versions more than the table knows (two a second for 97 days): it is wrong."""
QUIET_S = 5.0
"""What a node that was not heard for so long has is counted as used: nobody can take it back."""
Pair = tuple[UUID, str]
Rows = list[tuple[str, Sequence[Any]]]


@dataclass(slots=True)
class Told:
    """What a node was told: the version, the latest it has applied, and the document."""

    version: int
    applied: int
    document: dict[str, Any]


class Dealer:
    """Grants of all tenants that have quotas or arenas, on all nodes that keep to them."""

    def __init__(self, memory: Memory, nodes: NodeBook, policies: PolicyBook) -> None:
        self.memory, self.nodes, self.policies = memory, nodes, policies
        self.limits: dict[Pair, tuple[int | None, int]] = {}
        self.effective: dict[Pair, int] = {}
        self.tenants: dict[UUID, TenantPlace] = {}
        self.arenas: dict[UUID, TenantPlace] = {}
        self.grants: dict[Pair, dict[UUID, Grant]] = {}
        self.floors: dict[Pair, dict[UUID, int]] = {}
        self.told: dict[UUID, Told] = {}
        self.dirty, self.read_at, self.tally_at = True, 0.0, 0.0
        self.waits = False
        """Something could not be given yet because it was not let go elsewhere."""
        self._again = False
        self._unread = False
        self._dealt: Rows = []
        self._now = 0.0
        self._fresh: set[tuple[UUID, UUID, str]] = set()
        self._applied: set[UUID] = set()
        self._tallied: dict[Pair, tuple[int, int]] | None = None
        for a in Allowance.objects.all():
            self.grants.setdefault((a.tenant_id, a.tier), {})[a.node_id] = Grant(a.given, a.ceiling)
            self.floors.setdefault((a.tenant_id, a.tier), {})[a.node_id] = a.floor
        for d in NodeDeal.objects.all():
            self.told[d.node_id] = Told(d.version, d.applied, {})

    # ------------------------------------------------------------------ reads
    def due(self, now: float) -> bool:
        """Whether there is something to deal or to count."""
        return self._deals(now) or not 0 <= now - self.tally_at < TALLY_S

    def _deals(self, now: float) -> bool:
        age = now - self.read_at
        return self.dirty or not 0 <= age < EVERY_S or (self._again and age >= AGAIN_S) or self._unmet()

    def _unmet(self) -> bool:
        """A node has joined that was told nothing yet: until it is told, it takes no block of a limited tenant."""
        return any(n.keeps_allowances and n.id not in self.told for n in self.nodes.rows.values())

    def read(self, now: float) -> None:
        """Quotas and their tenants are as in the tables, if it is time to deal."""
        if not self._deals(now):
            return
        columns = ("tenant_id", "tier", "limit_bytes", "guaranteed_bytes", "effective_bytes")
        rows = list(Quota.objects.values_list(*columns))
        self.limits = {(t, tier): (limit, guaranteed) for t, tier, limit, guaranteed, _ in rows}
        self.effective = {(t, tier): worth for t, tier, _, _, worth in rows}
        self.arenas = tenants_with_arena()
        self.tenants = {**tenant_places({t for t, _ in self.limits}), **self.arenas}
        shared = (k.digest for k in self.memory.keyspaces.values() if k.claimed and k.tenant_id == PLATFORM_TENANT)
        self.policies.ask(shared)  # an earlier writer's: who pays for them
        self.read_at, self.dirty, self._again, self._unread = now, False, False, True

    # ------------------------------------------------------------------ nodes
    def heard(self, node: UUID, version: int) -> None:
        """A node has said which allowances it has applied: of the latest, nothing older is in force there now."""
        told = self.told.get(node)
        if told is None or version == told.applied:
            return
        if version > told.version + AHEAD:
            return
        if version > told.version:  # of a database that was restored: what it was told last is not known any more
            told.version, told.document = version, {}  # so it is told anew, with the next version
            self.dirty = True
            return
        if version != told.version:
            return
        told.applied = version
        self._applied.add(node)
        for (tenant, tier), of in self.grants.items():
            if node in of and of[node].ceiling != of[node].given:
                of[node] = applied(of[node])
                self._fresh.add((tenant, node, tier))
        self._again = self._again or self.waits

    def document(self, node: UUID, version: int) -> dict[str, Any]:
        """The node's allowances, {} where it has applied them."""
        told = self.told.get(node)
        if told is None or not told.document or told.version == version:
            return {}
        return {"version": told.version, **told.document}

    # ------------------------------------------------------------------- deal
    def deal(self, now: float) -> None:
        """What was read is dealt; answers of this batch tell it, since they are given when it is committed."""
        if self._unread:
            self._unread, self._now = False, now
            self._dealt += self._deal()

    def rows(self, now: float, when: datetime) -> Rows:
        """Statements for this commit: what was dealt, applied and counted."""
        out, self._dealt = self._dealt, []
        if not 0 <= now - self.tally_at < TALLY_S:
            self.tally_at = now
            out += self._tally(when)
        return out + self._written(when)

    def _deal(self) -> Rows:
        used = self._used()
        nodes = [n for n in self.nodes.rows.values() if n.keeps_allowances]
        tiers = sorted({tier for n in nodes for tier in n.tiers} | {tier for _, tier in self.limits})
        pairs = {*self.limits, *((tenant, tier) for tenant in self.arenas for tier in tiers)}
        worth = self._worth(tiers, nodes)
        self.waits = False
        for pair in sorted(pairs, key=str):
            self._pair(pair, [n for n in nodes if pair[1] in n.tiers], used.get(pair, {}), worth)
        for tier in tiers:
            self._lay_floors(tier, [p for p in pairs if p[1] == tier], nodes, worth)
        self._documents(nodes, pairs)
        changed = {p: worth.get(p, 0) for p in self.limits if worth.get(p, 0) != self.effective.get(p)}
        self.effective.update(changed)
        return [sql.effective(changed)] if changed else []

    def _worth(self, tiers: Iterable[str], nodes: Sequence[NodeRow]) -> dict[Pair, int]:
        """What each guarantee is worth in the tier."""
        out: dict[Pair, int] = {}
        for tier in tiers:
            capacity = sum(n.tiers.get(tier, 0) for n in self.nodes.rows.values() if n.joined and n.state not in SHUT)
            rows = {t: limits for (t, of), limits in self.limits.items() if of == tier}
            scaled = scale(capacity, guarantees(tier, rows, self.arenas, capacity))
            out.update({(tenant, tier): size for tenant, size in scaled.items()})
        return out

    def _pair(self, pair: Pair, nodes: Sequence[NodeRow], used: Mapping[UUID, int], worth: Mapping[Pair, int]) -> None:
        """One tenant's limit on a tier is dealt; what was unlimited until now is in force until nodes say otherwise."""
        tenant, tier = pair
        limit = self.limits.get(pair, (None, 0))[0]
        if tenant in self.arenas:
            arena = worth.get(pair, 0)
            limit = arena if limit is None else min(limit, arena)
        before = self.grants.setdefault(pair, {n.id: ANYTHING for n in nodes})
        rooms: dict[UUID, Room] = {}
        for node in nodes:
            if not self._open(node, tenant, tier):
                continue
            held = used.get(node.id, 0)
            if node.state in GONE or self._now - max(node.heard, self.nodes.started) > QUIET_S:
                held = max(held, before.get(node.id, NOTHING).ceiling or 0)
            rooms[node.id] = Room(node.tiers[tier], held)
        wanted = {} if limit is None else targets(limit, rooms)
        after = redeal(limit, {n: g for n, g in before.items() if n in self.nodes.rows}, wanted)
        for node_id in after.keys() | before.keys():
            if after.get(node_id) != before.get(node_id):
                self._fresh.add((tenant, node_id, tier))
        self.waits = self.waits or any(size > (after[n].given or 0) for n, size in wanted.items())
        self.grants[pair] = after

    def _open(self, node: NodeRow, tenant: UUID, tier: str) -> bool:
        """Whether the tenant's blocks may be on the node at all; classes of data are judged by namespace."""
        place = self.tenants.get(tenant)
        if place is None or node.state in SHUT or place.state != "active":
            return False
        rule = Rule(regions=frozenset({place.residency}) if place.residency else None)
        return not refusal(rule, node.place, tier, tenant=str(tenant), isolation=place.isolation)

    def _lay_floors(
        self, tier: str, pairs: Sequence[Pair], nodes: Sequence[NodeRow], worth: Mapping[Pair, int]
    ) -> None:
        """Guarantees lie on nodes: together never more than a node has, those with the fewest nodes first."""
        left = {n.id: n.tiers[tier] for n in nodes if tier in n.tiers}
        where = {p: [n.id for n in nodes if n.id in left and self._open(n, p[0], tier)] for p in pairs}
        for pair in sorted(pairs, key=lambda p: (len(where[p]), str(p))):
            grants = self.grants[pair]
            room = {n: left[n] for n in where[pair]}
            if pair[0] in self.arenas:  # an arena is as large as what it may hold there
                room = {n: min(size, grants.get(n, NOTHING).given or 0) for n, size in room.items()}
            floors = share(worth.get(pair, 0), room, room)
            for node, floor in floors.items():
                left[node] -= floor
            before = self.floors.get(pair, {})
            for node in floors.keys() | before.keys():
                if floors.get(node, 0) != before.get(node, 0):
                    self._fresh.add((pair[0], node, tier))
            self.floors[pair] = floors

    def _documents(self, nodes: Sequence[NodeRow], pairs: Iterable[Pair]) -> None:
        """Each node's allowances as they are told; a changed document has the next version."""
        made: dict[UUID, dict[str, dict[str, list[int | None]]]] = {n.id: {} for n in nodes}
        for pair in pairs:
            tenant, tier = pair
            grants, floors = self.grants[pair], self.floors.get(pair, {})
            for node in nodes:
                if tier in node.tiers:
                    given = grants.get(node.id, NOTHING).given
                    made[node.id].setdefault(tenant.hex, {})[tier] = [given, floors.get(node.id, 0)]
        arenas = sorted(t.hex for t in self.arenas)
        for node_id, tenants in made.items():
            document = {"tenants": tenants, "arenas": arenas, "policy": self.policies.version}
            told = self.told.get(node_id)
            if told is None:
                told = self.told[node_id] = Told(0, -1, {})
            if document != told.document:
                told.document = document
                told.version += 1
                self._applied.add(node_id)

    def _used(self) -> dict[Pair, dict[UUID, int]]:
        out: dict[Pair, dict[UUID, int]] = {}
        for tenant, tier, node, _, size in self._held():
            of = out.setdefault((tenant, tier), {})
            of[node] = of.get(node, 0) + size
        return out

    def _held(self) -> Iterable[tuple[UUID, str, UUID, int, int]]:
        """(tenant, tier, node, blocks, bytes) of every holding; what a share group holds is its owner's."""
        m = self.memory
        for (source, tier), owner in m.owner_of.items():
            for keyspace, sums in m.holding.get(owner, {}).items():
                if sums[0]:
                    of = m.keyspaces[keyspace]
                    shared = self.policies.known.get(of.digest) if of.tenant_id == PLATFORM_TENANT else None
                    whose = shared.payer if shared else of.tenant_id
                    yield whose, tier, m.sources[source].node_id, sums[0], sums[0] * of.block_bytes

    # ------------------------------------------------------------------ tally
    def _tally(self, when: datetime) -> Rows:
        """What each tenant holds of each tier, where that has changed."""
        now: dict[Pair, tuple[int, int]] = {}
        for tenant, tier, _, blocks, size in self._held():
            before = now.get((tenant, tier), (0, 0))
            now[tenant, tier] = before[0] + blocks, before[1] + size
        last = self._tallied
        self._tallied = now
        if last is None:  # whatever an earlier writer left
            return [sql.FORGET_TIERS, *([sql.tiers(now, when)] if now else [])]
        changed = {p: now.get(p, (0, 0)) for p in now.keys() | last.keys() if now.get(p) != last.get(p)}
        return [sql.tiers(changed, when)] if changed else []

    def _written(self, when: datetime) -> Rows:
        out: Rows = []
        if self._fresh:
            rows = [
                (t, n, tier, g.given, g.ceiling, self.floors.get((t, tier), {}).get(n, 0))
                for t, n, tier in self._fresh
                if (g := self.grants.get((t, tier), {}).get(n)) is not None
            ]
            gone = [(t, n, tier) for t, n, tier in self._fresh if n not in self.grants.get((t, tier), {})]
            out += [sql.allowances(rows)] if rows else []
            out += [sql.without(gone)] if gone else []
            self._fresh = set()
        if self._applied:
            deals = [(n, self.told[n].version, self.told[n].applied, when) for n in self._applied]
            out.append(sql.deals(deals))
            self._applied = set()
        return out
