"""Decides when single blocks of decoding chains are told: a few of a chain together, or many chains packed.

An engine announces every block of a running request alone; told so, each would cost the catalog as much as a whole
prompt. A chain's blocks are held back until six have come, two seconds have passed, or something is said that must not
come before them. Used by `nodeagent.listen`.
"""

from collections.abc import Sequence

from kvcore.events import Add, Adds, Clear, Drop, Gap, Item, Move, State
from kvcore.keys import ROOT, pack, unpack

CHAIN_BLOCKS = 6
HOLD_SECONDS = 2.0


class _Chain:
    """Blocks of one chain that are held back."""

    __slots__ = ("first", "keys", "since")

    def __init__(self, first: Add, since: float) -> None:
        self.first, self.keys, self.since = first, list(unpack(first.keys)), since

    def fits(self, item: Add) -> bool:
        a = self.first
        return (a.ns, a.gen, a.group, a.tier, a.tokens, a.bytes) == (
            item.ns, item.gen, item.group, item.tier, item.tokens, item.bytes
        )  # fmt: skip

    def item(self) -> Add:
        f = self.first
        return Add(ns=f.ns, gen=f.gen, group=f.group, keys=pack(self.keys), parent=f.parent, tier=f.tier,
                   tokens=f.tokens, bytes=f.bytes)  # fmt: skip


class Gatherer:
    """Items go through it in order; what it holds back comes out in front of whatever depends on it."""

    def __init__(self, *, chain_blocks: int = CHAIN_BLOCKS, hold_seconds: float = HOLD_SECONDS) -> None:
        self.chain_blocks, self.hold_seconds = chain_blocks, hold_seconds
        self._by_key: dict[bytes, _Chain] = {}
        self._chains: dict[int, _Chain] = {}  # by identity, oldest first

    @property
    def held(self) -> int:
        """Blocks that are held back."""
        return len(self._by_key)

    def put(self, items: list[Item], now: float) -> list[Item]:
        """What can be told now."""
        out: list[Item] = []
        for item in items:
            match item:
                case Add() if item.parent is not None:
                    self._add(item, now, out)
                case Drop() | Move() | State():
                    self._let_go(unpack(item.keys), out)
                    out.append(item)
                case Clear() | Gap():
                    out += self.flush()
                    out.append(item)
                case _:
                    out.append(item)
        return out

    def due(self, now: float) -> list[Item]:
        """What has been held back long enough."""
        return self._packed([c for c in self._chains.values() if now - c.since >= self.hold_seconds])

    def flush(self) -> list[Item]:
        """Everything that is held back."""
        return self._packed(list(self._chains.values()))

    def forget(self) -> None:
        """Nothing is held back any more, and nothing of it is told: the engine's life is over."""
        self._by_key.clear()
        self._chains.clear()

    def _add(self, item: Add, now: float, out: list[Item]) -> None:
        keys = unpack(item.keys)
        self._let_go([k for k in keys if k in self._by_key], out)
        assert item.parent is not None
        chain = self._by_key.get(item.parent)
        if chain is not None and chain.keys[-1] == item.parent and chain.fits(item):
            chain.keys += keys
        elif len(keys) >= self.chain_blocks:
            self._let_go([item.parent], out)
            out.append(item)
            return
        else:
            self._let_go([item.parent], out)
            chain = _Chain(item, now)
            self._chains[id(chain)] = chain
        self._by_key.update((k, chain) for k in keys)
        if len(chain.keys) >= self.chain_blocks:
            self._drop(chain)
            out.append(chain.item())

    def _let_go(self, keys: Sequence[bytes], out: list[Item]) -> None:
        for key in keys:
            chain = self._by_key.get(key)
            if chain is not None:
                self._drop(chain)
                out.append(chain.item())

    def _drop(self, chain: _Chain) -> None:
        del self._chains[id(chain)]
        for key in chain.keys:
            self._by_key.pop(key, None)

    def _packed(self, chains: list[_Chain]) -> list[Item]:
        """The chains as few items: those of one namespace and tier in one `adds`."""
        groups: dict[tuple[object, ...], list[_Chain]] = {}
        for chain in chains:
            self._drop(chain)
            f = chain.first
            groups.setdefault((f.ns, f.gen, f.group, f.tier, f.tokens, f.bytes), []).append(chain)
        out: list[Item] = []
        for same in groups.values():
            f = same[0].first
            if len(same) == 1:
                out.append(same[0].item())
                continue
            keys = [k for c in same for k in c.keys]
            parents = [p for c in same for p in (c.first.parent or ROOT, *c.keys[:-1])]
            out.append(Adds(ns=f.ns, gen=f.gen, group=f.group, keys=pack(keys), parents=pack(parents), tier=f.tier,
                            tokens=f.tokens, bytes=f.bytes))  # fmt: skip
        return out
