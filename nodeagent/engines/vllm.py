"""Decides what vLLM's events (and SGLang's, of the same form) mean as canonical items.

Token ids, salts, adapter names and engine hashes end here: what comes out are keys, and what is counted are codes.
The namespace of a chain is known by the tag of its salt, for which a lease must be there; a chain without a salt
belongs to the source's default namespace. Used by `nodeagent.listen`.
"""

import hashlib
from collections import Counter
from collections.abc import Hashable

import msgspec

from kvcore.blocks import Tier
from kvcore.dialects.engine import Bad, Batch, Cleared, Removed, Stored, extra_digest, token_bytes
from kvcore.events import Add, Clear, Drop, Gap, Item, Refused
from kvcore.keys import KEY_BYTES, ROOT, chain_keys, directory_keys, pack
from nodeagent.keymap import KeyMap, Known, Run, Space, Waiting
from nodeagent.keys import KeyRing, Lease


class KeyMapFull(Exception):
    """The map holds as many blocks as it may; the block was not taken, so the source is no longer fully known."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as the agent is told of it.

    `default`: namespace of chains without a salt, in its newest leased generation; None = they wait. `bytes_per_token`:
    what a token costs on this rank, 0 = unknown. `reannounces`: the engine announces blocks again that it already has,
    so that copies cannot be counted and any removal counts as the last.
    """

    name: str
    default: bytes | None = None
    bytes_per_token: int = 0
    algorithm: str = "vllm"
    reannounces: bool = False


class Vllm:
    """One (source, dp_rank) of vLLM: batches in, items out. Not safe for several threads."""

    def __init__(self, source: Source, ring: KeyRing, keymap: KeyMap | None = None) -> None:
        self.source, self.ring = source, ring
        self.map = KeyMap() if keymap is None else keymap
        self.counts: Counter[str] = Counter()
        """Events by what came of them, and refusals by code."""
        self.last_ts = 0.0
        self._drops: list[tuple[Space, Tier, bytes]] = []
        self._leases: dict[tuple[bytes, int], Lease] = {}
        self._by_tag: dict[bytes, Lease] = {}
        self._adapters: dict[tuple[bytes, int], str | None] = {}

    def items(self, batch: Batch) -> list[Item]:
        """What the batch says, in order. Afterwards nothing of its tokens is kept but what waits in quarantine."""
        self._look_at_leases()
        self.last_ts = max(0.0, batch.ts)
        out: list[Item] = []
        lost = ""
        for event in batch.events:
            match event:
                case Removed():
                    self._removed(event)
                case Stored():
                    self._flush(out)
                    lost = self._work([event], out) or lost
                case Cleared():
                    self._flush(out)
                    self.map.clear(event.tiers)
                    self.counts["cleared"] += 1
                    out.append(Clear(tiers=tuple(t.value for t in event.tiers)))
                case Bad():
                    self.counts[event.code] += 1
                    lost = "decode"
        self._flush(out)
        if lost:
            out.append(Gap(since=self.last_ts, reason=lost))
        return out

    def adopt(self) -> list[Item]:
        """Items of what waited for a lease that has come since."""
        if not self.map.waiting:
            return []
        self._look_at_leases()
        out: list[Item] = []
        lost = ""
        for cause in self.map.causes():
            if self._found(cause):
                lost = self._work(list(reversed(self.map.take(cause))), out) or lost
        if lost:
            out.append(Gap(since=self.last_ts, reason=lost))
        return out

    def _look_at_leases(self) -> None:
        live = self.ring.live()
        self._leases = {(x.ns, x.gen): x for x in live}
        self._by_tag = {x.salt_tag: x for x in live if x.salt_tag}

    def _found(self, cause: Hashable) -> bool:
        match cause:
            case ("tag", b""):
                return self._default() is not None
            case ("tag", bytes(tag)):
                return tag in self._by_tag
            case ("lease", bytes(ns), int(gen)):
                return (ns, gen) in self._leases
            case _:
                return False

    def reset(self) -> None:
        """A new life of the engine begins: nothing of the old one is known any more."""
        self.map.reset()
        self._drops.clear()

    # Stored

    def _work(self, todo: list[Stored | Waiting], out: list[Item]) -> str:
        """Puts the events' items, last event first, into `out`, and what now has its parent behind them.

        What still misses something goes to quarantine. Returns the reason of a gap, "" for none.
        """
        lost = ""
        while todo:
            at = todo.pop()
            event, gone = (at.event, at.gone) if isinstance(at, Waiting) else (at, set())
            self.counts["adopted"] += isinstance(at, Waiting)
            try:
                cause = self._key(event, gone, out)
            except Refused as e:
                self.counts[e.code] += 1
                lost = "decode"
                continue
            except KeyMapFull:
                self.counts["map-full"] += 1
                lost = "map"
                continue
            if cause is not None:
                lost = self._wait(event, gone, cause) or lost
                continue
            self.counts["stored"] += 1
            if self.map.waiting:
                for h in event.hashes:
                    todo += reversed(self.map.take((event.group, h)))
        return lost

    def _wait(self, event: Stored, gone: set[bytes], cause: Hashable) -> str:
        """Puts the event into quarantine, with a copy of its own tokens and not of the batch it came in."""
        tokens, kept = event.tokens, event
        if isinstance(tokens, msgspec.Raw):
            tokens = bytes(tokens)
            kept = msgspec.structs.replace(event, tokens=msgspec.Raw(tokens))
        given_up = self.map.wait(kept, cause, len(event.hashes) * 64 + len(tokens or b""), gone)
        self.counts["quarantined"] += 1
        self.counts["given-up"] += given_up
        return "map" if given_up else ""

    def _key(self, event: Stored, gone: set[bytes], out: list[Item]) -> Hashable | None:
        """Holds the event's blocks under their keys; what it has to wait for instead, if anything."""
        if event.tokens is None:
            return self._placeholder(event, gone, out)
        parent: Known | None = None
        if event.parent is not None:
            parent = self.map.find(event.group, event.parent)
            if parent is None:
                return (event.group, event.parent)
            lease = self._leases.get((parent.space.ns, parent.space.gen))
            if lease is None:
                return ("lease", parent.space.ns, parent.space.gen)
        else:
            lease, tag = self._root_lease(event)
            if lease is None:
                return ("tag", tag)
        keys = self._keys(event, lease, parent)
        space = Space(lease.ns, lease.gen, event.group, event.block_tokens)
        self._hold(event, space, keys, parent.key if parent else None, gone, out)
        return None

    def _default(self) -> Lease | None:
        leases = [x for x in self._leases.values() if x.ns == self.source.default]
        return max(leases, key=lambda x: x.gen, default=None)

    def _root_lease(self, event: Stored) -> tuple[Lease | None, bytes]:
        """The lease whose salt began the chain, and the tag that is waited for where there is none."""
        if not event.salt_tags:
            return self._default(), b""
        for tag in event.salt_tags:
            if tag in self._by_tag:
                return self._by_tag[tag], b""
        return None, event.salt_tags[0]

    def _keys(self, event: Stored, lease: Lease, parent: Known | None) -> list[bytes]:
        """Keys of the event's blocks: of their tokens, or of the engine's hashes where it skipped blocks."""
        if not event.exact:
            return directory_keys(
                lease.blk, engine=self.source.name, algorithm=self.source.algorithm, hashes=event.hashes
            )
        assert event.tokens is not None  # placeholders went another way
        tokens, above = token_bytes(event.tokens), parent.key if parent else None
        adapter = self._foreign_adapter(event, lease) if parent is None else None
        if event.extras is None and adapter is None:
            return chain_keys(tokens, block_tokens=event.block_tokens, blk=lease.blk, parent=above)
        step, at, out = 4 * event.block_tokens, above or ROOT, []
        extras = list(event.extras or (None,) * len(event.hashes))
        if adapter is not None:
            extras[0] = extra_digest([adapter, extras[0]])
        for i, extra in enumerate(extras):
            content = at + tokens[i * step : (i + 1) * step] + (extra or b"")
            at = hashlib.blake2b(content, key=lease.blk, digest_size=KEY_BYTES).digest()
            out.append(at)
        return out

    def _foreign_adapter(self, event: Stored, lease: Lease) -> str | None:
        """The adapter's name where the namespace does not stand for it: it must keep equal tokens apart.

        A salted namespace is of one adapter (or none), the one it is first seen with; the default one is of none.
        """
        own = self._adapters.setdefault((lease.ns, lease.gen), event.lora) if event.salt_tags else None
        if event.lora == own:
            return None
        self.counts["adapter-mismatch"] += bool(event.salt_tags)
        return event.lora or "no adapter"

    def _hold(
        self, event: Stored, space: Space, keys: list[bytes], parent: bytes | None, gone: set[bytes], out: list[Item]
    ) -> None:
        """Counts the copies; tells runs of blocks that are new on the tier."""
        runs, whole = self.map.hold(
            space, event.hashes, keys, parent, event.tier, gone=gone, presence=self.source.reannounces
        )
        self._tell(runs, event.tier, out)
        if not whole:
            raise KeyMapFull

    def _tell(self, runs: list[Run], tier: Tier, out: list[Item]) -> None:
        for space, parent, keys in runs:
            size = self.source.bytes_per_token * space.block_tokens
            out.append(
                Add(ns=space.ns, gen=space.gen, group=space.group, keys=pack(keys), parent=parent, tier=tier.value,
                    tokens=space.block_tokens, bytes=size)
            )  # fmt: skip

    def _placeholder(self, event: Stored, gone: set[bytes], out: list[Item]) -> Hashable | None:
        """The blocks are in another tier as well; which blocks they are was announced before, or is waited for."""
        for h in event.hashes:
            if self.map.find(event.group, h) is None:
                return (event.group, h)
        for h in event.hashes:
            known = self.map.find(event.group, h)
            assert known is not None  # just found
            runs, _ = self.map.hold(known.space, [h], [known.key], known.parent, event.tier, gone=gone)
            self._tell(runs, event.tier, out)
        return None

    # Removed

    def _removed(self, event: Removed) -> None:
        for h in event.hashes:
            self.counts["removed"] += 1
            self._release(event.group, h, event.tier)

    def _release(self, group: int, engine_hash: bytes, tier: Tier) -> None:
        known, last = self.map.release(group, engine_hash, tier)
        if known is not None:
            if last:
                self._drops.append((known.space, tier, known.key))
        elif not self.map.gone(group, engine_hash, tier):
            self.counts["removed-unknown"] += 1

    def _flush(self, out: list[Item]) -> None:
        """Removals that follow each other are told together."""
        at = 0
        while at < len(self._drops):
            space, tier, _ = self._drops[at]
            end = at
            while end < len(self._drops) and self._drops[end][:2] == (space, tier):
                end += 1
            keys = pack(dict.fromkeys(key for _, _, key in self._drops[at:end]))
            out.append(Drop(ns=space.ns, gen=space.gen, group=space.group, keys=keys, tier=tier.value, reason="engine"))
            at = end
        self._drops.clear()
