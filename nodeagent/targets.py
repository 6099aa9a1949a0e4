"""Decides which blocks an order means: namespaces up to a generation, and of them a group or single keys.

Pure. A run may be meant as a whole, in part or not at all; what is not meant is never touched where it can be kept. An
order names keys by their first 16 bytes. Called by `erasing` and `orders`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kvcore.keys import KEY_BYTES
from kvcore.messages import Command
from kvcore.receipts import EraseArgs, EraseTarget
from kvcore.targets import KEY, packed
from nodeagent.tiers.base import RunMeta


class Malformed(Exception):
    """The arguments of a command cannot be read. Nothing was done."""


class _Keys(Sequence[bytes]):
    """Packed keys, looked up where they lie: there may be a million."""

    def __init__(self, keys: bytes) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys) // KEY

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        return self._keys[at * KEY : (at + 1) * KEY]

    def __contains__(self, key: object) -> bool:
        short = bytes(key)[:KEY] if isinstance(key, bytes) else b""
        at = bisect_left(self, short)
        return at < len(self) and self[at] == short


class _Target:
    def __init__(self, target: EraseTarget, attached: Mapping[str, bytes]) -> None:
        try:
            self.gen_upto = int(target.gen_upto)
            named = None if target.keys is None else [bytes.fromhex(key) for key in target.keys]
            found = packed(named) if named is not None else None
            if target.attached is not None:
                found = attached[target.attached]
        except ValueError as e:
            raise Malformed(str(e)) from None
        except KeyError:
            raise Malformed("the keys of a target did not come with it") from None
        if not 0 <= self.gen_upto <= 2**63:
            raise Malformed("a generation is below 2^63")
        if named is not None and any(len(key) not in (KEY, KEY_BYTES) for key in named):
            raise Malformed("a key has 32 bytes, or the first 16 of them")
        self.group, self.below = target.group, target.below and found is not None
        self.keys = None if found is None else _Keys(found)
        self.grown: set[bytes] = set()
        """Keys of this node that continue those that are named."""

    def covers(self, gen: int, group: int) -> bool:
        return gen < self.gen_upto and self.group in (None, group)

    def means(self, key: bytes) -> bool:
        return self.keys is None or key in self.keys or key in self.grown

    def marks(self, meta: RunMeta) -> list[bool]:
        """Block by block. What continues a block that is meant cannot be used without it, and goes with it."""
        found = [self.means(meta.keys[at : at + KEY_BYTES]) for at in range(0, len(meta.keys), KEY_BYTES)]
        if not self.below:
            return found
        first = 0 if meta.parent is not None and self.means(meta.parent) else found.index(True) if any(found) else None
        return found if first is None else [at >= first for at in range(len(found))]

    def grow(self, metas: Sequence[RunMeta]) -> None:
        mine = [meta for meta in metas if self.covers(meta.gen, meta.group)]
        after: dict[bytes, list[RunMeta]] = {}
        for meta in mine:
            if meta.parent is not None:
                after.setdefault(meta.parent, []).append(meta)
        todo = [meta for meta in mine if any(self.marks(meta))]
        while todo:
            meta = todo.pop()
            for at, meant in enumerate(self.marks(meta)):
                key = meta.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES]
                if meant and key not in self.grown:
                    self.grown.add(key)
                    todo += after.get(key, ())


class Targets:
    """What an order names."""

    def __init__(self, targets: Iterable[EraseTarget], attached: Mapping[str, bytes] | None = None) -> None:
        self._of: dict[bytes, list[_Target]] = {}
        for target in targets:
            try:
                ns = bytes.fromhex(target.ns)
            except ValueError:
                ns = b""
            if len(ns) != 32:
                raise Malformed("a namespace has 32 bytes")
            self._of.setdefault(ns, []).append(_Target(target, attached or {}))

    @property
    def namespaces(self) -> list[bytes]:
        """All that are named, in the order of the command."""
        return list(self._of)

    def whole(self, ns: bytes, gen: int, group: int) -> bool:
        """Whether everything of the space is meant."""
        return any(t.keys is None and t.covers(gen, group) for t in self._of.get(ns, ()))

    def meant(self, meta: RunMeta) -> list[bool] | None:
        """Block by block whether it is meant; None if none of the run is."""
        found = [t for t in self._of.get(meta.ns, ()) if t.covers(meta.gen, meta.group)]
        if not found:
            return None
        if any(t.keys is None for t in found):
            return [True] * meta.blocks
        marks = [any(each) for each in zip(*(t.marks(meta) for t in found), strict=True)]
        return marks if any(marks) else None

    @property
    def finer(self) -> bool:
        """Whether only keys are meant: the namespaces live on, and what is made anew is not meant."""
        return all(t.keys is not None for targets in self._of.values() for t in targets)

    def grow(self, metas: Iterable[RunMeta]) -> None:
        """What continues the keys that are named is meant too, as far as these runs of the node say what does."""
        of: dict[bytes, list[RunMeta]] = {}
        for meta in metas:
            if meta.ns in self._of:
                of.setdefault(meta.ns, []).append(meta)
        for ns, found in of.items():
            for target in self._of[ns]:
                if target.below:
                    target.grow(found)

    def upto(self) -> list[tuple[bytes, int]]:
        """(namespace, generation) of what is meant as a whole: all generations below go."""
        return [
            (ns, t.gen_upto) for ns, targets in self._of.items() for t in targets if t.keys is None and t.group is None
        ]


def arguments(command: Command) -> EraseArgs:
    """The command's arguments.

    Raises:
        Malformed: they are not those of `erase`, `verify` or `shred`.
    """
    try:
        return msgspec.convert(command.args, EraseArgs)
    except msgspec.ValidationError as e:
        raise Malformed(str(e)) from None


def pieces(marks: Sequence[bool]) -> list[tuple[int, int]]:
    """[from, to) of each stretch of blocks that is not meant."""
    out: list[tuple[int, int]] = []
    start: int | None = None
    for at, meant in enumerate([*marks, True]):
        if meant and start is not None:
            out.append((start, at))
            start = None
        elif not meant and start is None:
            start = at
    return out
