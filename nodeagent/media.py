"""Decides which tiers an agent has and who speaks for them: built from the config, found again after a restart.

`hbm`, `pinned`, `dram` and `ssd` are of the source `reference`, whose boot is this process. `remote` is a source of its
own whose boot is the store's life: losing it must not reset the rest. Called by `agent`.
"""

import time
import uuid

from kvcore.blocks import VOLATILE, Tier
from nodeagent.budget import Budget
from nodeagent.config import Config, Home
from nodeagent.demotion import Relief
from nodeagent.keys import KeyRing
from nodeagent.outbox import Outbox
from nodeagent.pool import Listing, Pool
from nodeagent.tiers.base import HEADER_BYTES, TierDown, TierReset, TierStore
from nodeagent.tiers.disk import DiskTier
from nodeagent.tiers.memory import MemoryTier
from nodeagent.tiers.objects import KeyFile
from nodeagent.tiers.valkey import ValkeyTier
from nodeagent.watermarks import Curve, Policy

ENGINE_SOURCE, REMOTE_SOURCE = "reference", "remote"


class Media:
    """The pool with its tiers and outboxes."""

    def __init__(self, home: Home, config: Config, ring: KeyRing, *, boot: str) -> None:
        self.keys = KeyFile(home.key_file)
        self.key_path, self.ssd_dir = home.key_file, home.ssd_dir
        self.remote: ValkeyTier | None = None
        stores = [self._store(Tier(name), home, config, ring) for name in Tier if name in config.tiers]
        names = [s.name for s in stores]
        limit = config.outbox_bytes
        engine_box = Outbox(ENGINE_SOURCE, 0, boot=boot, shards=config.shards, limit_bytes=limit)
        remote_box = Outbox(REMOTE_SOURCE, 0, boot="", shards=config.shards, limit_bytes=limit)
        boxes = {n: remote_box if n is Tier.REMOTE else engine_box for n in names}
        configs = {Tier(n): t for n, t in config.tiers.items()}
        policy = Policy(config.policy, Curve(*config.prefill_curve))
        budget = Budget(block_bytes=config.block_bytes, slot_bytes=HEADER_BYTES + config.block_bytes)
        self.pool = Pool(stores, configs, boxes, policy, is_fenced=ring.fenced, budget=budget)
        self.pool.on_reset = self._new_life
        self.relief = Relief(self.pool)
        ring.on_policies = self.relief.learn
        self.outboxes = [engine_box] + ([remote_box] if self.remote is not None else [])
        for box in self.outboxes:
            box.lister = Listing(self.pool, [n for n in names if boxes[n] is box])
        self._remote_box = remote_box
        self.opened = self._heard = False
        """What outlived the last process was found again; before that nothing of it is served or told."""

    def _store(self, name: Tier, home: Home, config: Config, ring: KeyRing) -> TierStore:
        capacity = config.tiers[name].capacity_bytes
        if name in VOLATILE:
            slot = HEADER_BYTES + config.block_bytes
            pinned, label = name is Tier.PINNED, f"{config.node}:{name}"
            return MemoryTier(name, capacity_bytes=capacity, slot_bytes=slot, lock_memory=pinned, label=label)
        if name is Tier.SSD:
            return DiskTier(home.ssd_dir, capacity_bytes=capacity, keys=self.keys, enc_key=ring.enc)
        self.remote = ValkeyTier(
            config.remote_url, node=config.node, capacity_bytes=capacity, keys=self.keys, enc_key=ring.enc
        )
        return self.remote

    def open(self, now: float) -> None:
        """Finds again what outlived the last process, tells it, and destroys the keys of what is nowhere any more.

        What is fenced by then is erased and never told: so the fences of the journal and those that the console has
        raised meanwhile have to be known before.
        """
        pool, self._heard = self.pool, True
        with pool.lock:
            if Tier.SSD in pool.tiers:
                pool.adopt(Tier.SSD, now)
            reached = self.remote is None or self.probe(now)
            if reached:
                placed = {c.place for r in pool.runs.values() for t, c in r.copies.items() if t not in VOLATILE}
                self.keys.destroy(sorted(self.keys.names() - placed))
        self.opened = True

    def probe(self, now: float) -> bool:
        """Whether the remote store answers; a new life of it is taken note of. At most one try per pause."""
        pool = self.pool
        if self.remote is None or not self._heard or not pool.up(Tier.REMOTE, now):
            return False
        try:
            self.remote.probe()
        except TierDown:
            pool.down(Tier.REMOTE)
            return False
        except TierReset as e:
            with pool.lock:
                pool.reset(Tier.REMOTE, e.boot)
                pool.teller.flush()
        return True

    def _new_life(self, tier: Tier, boot: str) -> None:
        """The remote store is another one than before, or is met for the first time by this process."""
        assert self.remote is not None  # only this tier resets
        first = not self.remote.boot
        self.remote.adopt(boot)
        self._remote_box.reborn(boot)
        self._remote_box.put(*self.pool.marks(REMOTE_SOURCE))
        if first:
            try:
                self.pool.adopt(tier, time.time())
            except (TierDown, TierReset):
                self.remote.boot = ""  # met again at the next probe
                self.pool.down(tier)
                return
        else:
            placed = {c.place for r in self.pool.runs.values() if (c := r.copies.get(Tier.SSD)) is not None}
            self.keys.destroy(sorted(self.keys.names() - placed))

    def close(self) -> None:
        """Gives the media back."""
        with self.pool.lock:
            for store in self.pool.tiers.values():
                store.close()
            self.keys.close()


def new_boot() -> str:
    """Names one life of this process's memory."""
    return str(uuid.uuid4())
