"""Decides where blocks of a transfer are between their coming and their commit, so that an erase reaches them too.

Under the pool's lock. Used by `transfer_target` and `transfer_desk`.
"""

from kvcore.blocks import Tier
from nodeagent.targets import Targets
from nodeagent.tiers.base import RunMeta


class Staging:
    """Blocks that are here and not committed, so that an erase reaches them too. Under the pool's lock."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], tuple[Tier, RunMeta, bytearray]] = {}

    def put(self, step: str, tier: Tier, meta: RunMeta, raw: bytes) -> None:
        """The run is staged."""
        self._held[step, meta.version] = tier, meta, bytearray(raw)

    def take(self, step: str, version: int) -> bytearray | None:
        """The run is not staged any more; None if an erase took it."""
        found = self._held.pop((step, version), None)
        return found[2] if found else None

    def clear(self, step: str) -> None:
        """Nothing of the step is staged any more."""
        for key in [k for k in self._held if k[0] == step]:
            _, _, raw = self._held.pop(key)
            raw[:] = bytes(len(raw))

    def scour(self, tier: Tier, targets: Targets) -> list[tuple[RunMeta, list[bool]]]:
        """Overwrites what is staged for the tier and is meant; answers what it was."""
        out = []
        for key, (where, meta, raw) in list(self._held.items()):
            if where is tier and (marks := targets.meant(meta)) is not None:
                raw[:] = bytes(len(raw))
                del self._held[key]
                out.append((meta, marks))
        return out

    def __len__(self) -> int:
        return len(self._held)
