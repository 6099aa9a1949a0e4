"""Decides where blocks of a transfer are between their coming and their commit, so that an erase reaches them too.

Under the pool's lock. Used by `transfer_target` and `transfer_desk`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvcore.blocks import Tier
from kvcore.moves import Party
from nodeagent.runs import Run, Space
from nodeagent.targets import Targets
from nodeagent.tiers.base import RunMeta, content, seal
from nodeagent.transfer import Page, Parcel


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


class Source(Protocol):
    """One connection to who offers: over the network, or to another source of this node."""

    def page(self, after: int) -> Page:
        """The manifest from there on."""
        ...

    def fetch(self, versions: list[int], credit: int) -> Parcel:
        """These runs, as far as the credit goes."""
        ...


Dial = Callable[[Party, str], Source]
"""(who offers, step of the offer) -> a connection. Raises Cut or Denied."""


class Landing(NamedTuple):
    """A run on its way to the tier: what of it is missing here becomes new runs."""

    meta: RunMeta
    space: Space
    new: list[tuple[Run, bytes]]
    blocks: int


def resealed(made: RunMeta, meta: RunMeta, raw: bytes, start: int) -> bytes:
    """Blocks of another node's run from `start` on, headed as this node's own run `made`."""
    at = iter(range(start, start + made.blocks))
    return seal(made, lambda key: content(meta, raw, next(at)))
