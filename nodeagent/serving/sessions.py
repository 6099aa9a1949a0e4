"""Decides what a session's next turn must find: never less than the session wrote, whoever serves it.

A node remembers how far a session has written here. Its next turn waits until what was held back is committed; what is
gone meanwhile is computed again and said. A session that moves is flushed, acknowledged and fenced: from then on this
node takes no turn of it that was not told of the move. Safe from any thread: what
was written is said by the thread that wrote it.
"""

import threading
from collections import OrderedDict

import msgspec

KEPT = 65_536


class Written(msgspec.Struct):
    """How far a session has written here."""

    blocks: int
    last: bytes
    """Key of the last block."""
    version: int = 0
    """How often the session has moved; a turn that knows of fewer moves is late."""
    moved: bool = False


class Sessions:
    """The sessions that wrote here last, by (namespace, name)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._of: OrderedDict[tuple[bytes, str], Written] = OrderedDict()
        self.waited = self.recomputed = 0
        """Turns that waited for what was held back; turns for which something had to be computed again."""

    def wrote(self, ns: bytes, name: str, blocks: int, last: bytes) -> None:
        """The session has written so many blocks, the last of them this one."""
        with self._lock:
            known = self._of.get((ns, name))
            if known is None:
                self._of[ns, name] = Written(blocks, last)
            elif blocks >= known.blocks:
                known.blocks, known.last = blocks, last
            self._of.move_to_end((ns, name))
            while len(self._of) > KEPT:
                self._of.popitem(last=False)

    def of(self, ns: bytes, name: str) -> Written | None:
        """What is remembered of the session."""
        return self._of.get((ns, name))

    def fence(self, ns: bytes, name: str, version: int) -> Written:
        """The session has moved away as its move `version`: turns that know of fewer moves are refused here."""
        with self._lock:
            known = self._of.setdefault((ns, name), Written(0, b""))
            known.version, known.moved = max(known.version, version), True
            return known

    def admitted(self, ns: bytes, name: str, version: int) -> bool:
        """Whether a turn that knows of so many moves may be taken; one that knows of more brings the session back."""
        known = self._of.get((ns, name))
        if known is None or not known.moved:
            return True
        if version <= known.version:
            return False
        known.version, known.moved = version, False
        return True

    def drop(self, ns: bytes) -> None:
        """Nothing is remembered of the namespace's sessions."""
        with self._lock:
            for key in [k for k in self._of if k[0] == ns]:
                del self._of[key]
