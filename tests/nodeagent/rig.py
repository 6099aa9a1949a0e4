"""A pool with its engine and outboxes, without HTTP, whose every told item can be folded."""

import secrets
from pathlib import Path

from kvcore.events import Item, decode_item
from kvcore.fold import IllegalTransition, Place, UnknownKey, apply, fold
from nodeagent.config import Home, TierConfig
from nodeagent.engines.base import Request, Result
from nodeagent.engines.reference import ReferenceEngine
from nodeagent.keys import KeyRing, Lease
from nodeagent.media import Media
from nodeagent.watermarks import Curve
from tests.nodeagent.conftest import config, lease

SLOT = 80 + 1024


def blocks(count: int, **more: float) -> TierConfig:
    """A tier for so many blocks of `ref-64`."""
    return TierConfig(capacity_bytes=count * SLOT, **more)


class Rig:
    """Time stands still unless `now` is moved."""

    def __init__(self, path: Path, tiers: dict[str, TierConfig], *, tpot_ms: float = 0.0, **more) -> None:
        self.now = 1_800_000_000.0
        self.ring = KeyRing(clock=lambda: self.now)
        self.config = config(tiers, **more)
        self.media = Media(Home(path), self.config, self.ring, boot="boot-1")
        self.pool, self.relief = self.media.pool, self.media.relief
        self.pool.clock = lambda: self.now
        self.media.open(self.now)
        self.engine = ReferenceEngine(
            self.pool, self.ring, block_tokens=16, block_bytes=self.config.block_bytes,
            curve=Curve(*self.config.prefill_curve), tpot_ms=tpot_ms,
        )  # fmt: skip
        self.ring.on_fence = self.pool.fence
        self.told: dict[str, list[Item]] = {b.source: [] for b in self.media.outboxes}
        self.places: dict[str, dict[Place, str]] = {b.source: {} for b in self.media.outboxes}
        self.bad: list[object] = []

    def lease(self, gen: int = 1, ns: bytes | None = None, **policy) -> Lease:
        made = lease(ns, gen, **policy)
        self.ring.grant([Lease(**{f: getattr(made, f) for f in made.__struct_fields__} | {"until": self.now + 300})])
        return self.ring.lease(made.ns, gen)

    def ask(
        self, key: Lease, hash_ids: list[int], *, tokens: int | None = None, output: int = 0, size: int = 64
    ) -> Result:
        request = Request(
            request=secrets.token_hex(8), ns=key.ns, gen=key.gen, hash_ids=hash_ids, hash_tokens=size,
            input_length=len(hash_ids) * size if tokens is None else tokens, output_length=output,
        )  # fmt: skip
        (result,) = self.engine.handle([request], self.now)
        return result

    def allow(self, **shares: dict[str, tuple[int | None, int]]) -> bool:
        """The next allowances: tenant → tier → (blocks at most, blocks guaranteed)."""
        tenants = {
            tenant: {t: [None if most is None else most * 1024, floor * 1024] for t, (most, floor) in tiers.items()}
            for tenant, tiers in shares.items()
            if tenant != "arenas"
        }
        arenas = list(shares.get("arenas", ()))
        return self.relief.allow({"version": self.relief.version + 1, "tenants": tenants, "arenas": arenas})

    def settle(self) -> None:
        while self.relief.work(self.now):
            pass

    def drain(self) -> None:
        """Takes everything that was told out of the outboxes and folds it."""
        for box in self.media.outboxes:
            for lane in box.lanes:
                lane.cut(self.now)
                for held in lane.frames:
                    for raw in held.items:
                        item = decode_item(raw)
                        self.told[box.source].append(item)
                        changes, notes = fold(self.places[box.source], item)
                        apply(self.places[box.source], changes)
                        self.bad += [n for n in notes if isinstance(n, UnknownKey | IllegalTransition)]
                lane.ack(lane.seq)

    def folded(self, source: str) -> set[tuple[str, bytes, int, bytes]]:
        self.drain()
        return {(p.tier, p.ns, p.gen, p.key) for p in self.places[source]}

    def items(self, kind: type, source: str = "reference") -> list:
        self.drain()
        return [i for i in self.told[source] if isinstance(i, kind)]

    def close(self) -> None:
        self.media.close()
