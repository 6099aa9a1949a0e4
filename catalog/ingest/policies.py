"""Decides for the writer where blocks may be, and notices when that changes: what nodes tell is checked against it.

A fact is never refused: blocks that are where they must not be are folded, counted and told. Read again every ten
seconds, and as soon as somebody is woken for it. Called by the fold thread only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from catalog.ingest.nodes import NodeBook
from catalog.pins import pins_in_force
from catalog.placing import class_rules, rule_of
from kvcore.residency import Place, Rule, refusal
from tenants.placing import NamespacePlace, namespace_places

FRESH_S = 10.0
UNKNOWN_MOST = 100_000


@dataclass(slots=True)
class PolicyBook:
    """Rules of classes and what they need of namespaces. `version` grows when nodes must hear of a change."""

    nodes: NodeBook
    version: int
    rules: dict[UUID, dict[str, Rule]] = field(default_factory=dict)
    known: dict[bytes, NamespacePlace] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    pins: frozenset[tuple[UUID]] = frozenset()
    as_of: float = 0.0
    dirty: bool = True
    _places: dict[UUID, Place] = field(default_factory=dict)
    _refusals: dict[tuple[UUID, bytes, str], str] = field(default_factory=dict)

    def due(self, now: float) -> bool:
        """Whether `refresh` would read."""
        return self.dirty or not 0 <= now - self.as_of < FRESH_S

    def refresh(self, now: float) -> None:
        """Rules, and the namespaces that were asked for, are as in the tables."""
        if self.due(now):
            before = self.rules, self.known
            self.rules = class_rules()
            self.known = namespace_places([*self.known, *self.unknown])
            self.unknown.difference_update(self.known)
            self.as_of, self.dirty = now, False
            pins, self.pins = self.pins, frozenset(pins_in_force(datetime.fromtimestamp(now, UTC)).values_list("id"))
            changed = self.rules != before[0] or self.pins != pins
            if changed or any(self.known.get(d) != n for d, n in before[1].items()):
                self._changed(now)
        places = {row.id: row.place for row in self.nodes.rows.values()}
        if places != self._places:
            told = {n: p.dedicated_to for n, p in self._places.items()}
            self._places = places
            if any(p.dedicated_to != told.get(n, p.dedicated_to) for n, p in places.items()):
                self._changed(now)
            self._refusals.clear()

    def _changed(self, now: float) -> None:
        self.version = max(self.version + 1, int(now * 1000))
        self._refusals.clear()

    def ask(self, digests: Iterable[bytes]) -> None:
        """The namespaces are known, as far as somebody registered them."""
        new = {d for d in digests if d not in self.known and d not in self.unknown}
        if not new:
            return
        found = namespace_places(new)
        self.known.update(found)
        if len(self.unknown) + len(new) > UNKNOWN_MOST:
            self.unknown.clear()
        self.unknown.update(new - found.keys())
        if found:
            self._refusals.clear()

    def refusal(self, node: UUID, digest: bytes, tier: str) -> str:
        """Why blocks of the namespace may not be on the node's tier, "" if they may, or nobody registered it."""
        at = node, digest, tier
        found = self._refusals.get(at)
        if found is None:
            found = self._refusals[at] = self._judge(node, digest, tier)
        return found

    def _judge(self, node: UUID, digest: bytes, tier: str) -> str:
        namespace, place = self.known.get(digest), self._places.get(node)
        if namespace is None or place is None:
            return ""
        tenant = namespace.tenant
        rule = rule_of(namespace, self.rules)
        return refusal(rule, place, tier, tenant=str(tenant.id), isolation=tenant.isolation)
