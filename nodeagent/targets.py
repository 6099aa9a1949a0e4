"""Decides which blocks an order means: namespaces up to a generation, and of them a group or single keys.

Pure. A run may be meant as a whole, in part or not at all; what is not meant is never touched where it can be kept.
Called by `erasing` and `verifying`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kvcore.keys import KEY_BYTES
from kvcore.messages import Command
from kvcore.receipts import EraseArgs, EraseTarget
from nodeagent.tiers.base import RunMeta


class Malformed(Exception):
    """The arguments of a command cannot be read. Nothing was done."""


class _Target:
    def __init__(self, target: EraseTarget) -> None:
        try:
            self.gen_upto = int(target.gen_upto)
            keys = None if target.keys is None else frozenset(map(bytes.fromhex, target.keys))
        except ValueError as e:
            raise Malformed(str(e)) from None
        if not 0 <= self.gen_upto <= 2**63:
            raise Malformed("a generation is below 2^63")
        if keys is not None and any(len(k) != KEY_BYTES for k in keys):
            raise Malformed("a key has 32 bytes")
        self.group, self.keys = target.group, keys

    def covers(self, gen: int, group: int) -> bool:
        return gen < self.gen_upto and self.group in (None, group)


class Targets:
    """What an order names."""

    def __init__(self, targets: Iterable[EraseTarget]) -> None:
        self._of: dict[bytes, list[_Target]] = {}
        for target in targets:
            try:
                ns = bytes.fromhex(target.ns)
            except ValueError:
                ns = b""
            if len(ns) != 32:
                raise Malformed("a namespace has 32 bytes")
            self._of.setdefault(ns, []).append(_Target(target))

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
        wanted = [t.keys for t in found if t.keys]  # not put together: there may be a million keys
        keys = [meta.keys[at : at + KEY_BYTES] for at in range(0, len(meta.keys), KEY_BYTES)]
        marks = [any(key in one for one in wanted) for key in keys]
        return marks if any(marks) else None

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
