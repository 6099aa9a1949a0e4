"""Decides when all of an order is there: its targets come in parts, each with the proof that it is of the order's.

What reaches blocks is carried out only when every target of the order has come, and the keys that they name. What is
gathered lies in memory alone: after a restart the parts are sent again. Called by `executor`.
"""

from collections.abc import Mapping

import msgspec

from kvcore.messages import Command
from kvcore.receipts import EraseTarget, TargetsPart
from kvcore.targets import MOST_TARGETS, attached_of, check_attached, part_root

BOUND = frozenset({"erase", "shred", "fence", "verify"})
"""Kinds of commands whose targets have to be proved."""
MOST_AT_ONCE = 64
"""Orders that are gathered at a time; the oldest gives way."""
MOST_BYTES = 256 * 2**20
"""Keys that are held at a time."""


class _Part(msgspec.Struct, frozen=True):
    targets: list[EraseTarget]
    part: TargetsPart
    targets_root: str


class _Gathered:
    """The parts of one step that have come, by their place."""

    def __init__(self, root: str, count: int) -> None:
        self.root, self.count = root, count
        self.parts: dict[int, list[EraseTarget]] = {}
        self.keys: dict[str, bytes] = {}

    @property
    def wants(self) -> int | None:
        """Place of the first target that has not come, None where all have."""
        at = 0
        while self.parts.get(at):
            at += len(self.parts[at])
        return at if at < self.count else None


class Gatherer:
    """What is gathered of all steps. Under the executor's lock."""

    def __init__(self) -> None:
        self._steps: dict[str, _Gathered] = {}

    def take(self, command: Command, keys: Mapping[str, bytes]) -> Command | int | str:
        """The command with all targets of its order and their keys, or which target is wanted next, or a refusal."""
        if command.kind not in BOUND and command.args.get("part") is None:
            return command
        try:
            told = msgspec.convert(command.args, _Part)
            if len(told.targets) > MOST_TARGETS or part_root(told.targets, told.part) != told.targets_root:
                return "targets-unproven"
        except (msgspec.ValidationError, ValueError):
            return "targets-unproven"
        wanted = attached_of(told.targets)
        mine = {name: keys[name] for name in wanted if name in keys}
        if not check_attached(told.targets, mine):
            return "keys-missing"
        found = self._steps.get(command.step)
        if found is None or (found.root, found.count) != (told.targets_root, told.part.count):
            found = self._begin(command.step, told)
        found.parts[told.part.first] = told.targets
        found.keys |= mine
        if found.wants is not None:
            return found.wants
        del self._steps[command.step]
        whole = [target for at in sorted(found.parts) for target in found.parts[at]]
        args = {**command.args, "targets": msgspec.to_builtins(whole), "keys": found.keys, "part": None}
        return msgspec.structs.replace(command, args=args)

    def _begin(self, step: str, told: _Part) -> _Gathered:
        self._steps.pop(step, None)
        while self._steps and (len(self._steps) >= MOST_AT_ONCE or self._bytes() > MOST_BYTES):
            del self._steps[next(iter(self._steps))]
        found = self._steps[step] = _Gathered(told.targets_root, told.part.count)
        return found

    def _bytes(self) -> int:
        return sum(len(keys) for one in self._steps.values() for keys in one.keys.values())
