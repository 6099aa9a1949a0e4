"""Decides what a source is called: exact, recovering, degraded or lost, why, and when it is asked for its inventory.

A source is one (node, name, dp_rank). It is exact only while every frame came in order and nothing casts doubt on
what the catalog believes of it. Doubts are kept by reason; the state is computed from them, never set. Called by
`pipeline`; the row is written in the transaction that commits what the state speaks of.
"""

from dataclasses import dataclass, field
from uuid import UUID

from kvcore.fold import Cursor, Duplicate, Gap, Next, Reset, Verdict

EXACT, RECOVERING, DEGRADED, LOST = "exact", "recovering", "degraded", "lost"

SILENT = "silent"
REPAIRABLE = frozenset({"gap", "unverified", "returned", "digest-differs", "behind", "resync", "clear", SILENT})
"""Doubts that an agent repairs by itself or by listing: the source is recovering, not degraded.

gap: frames are missing · unverified: persistent tiers after a new boot · returned: the node was lost ·
digest-differs · behind: the node's heartbeat is ahead of its frames · resync: an operator asked · clear: a clear of
unknown scope · silent: nothing is heard of it, though its node may be heard. Engine gaps (`engine-<reason>`) belong
here too. Everything else is a refusal's code."""

SOURCES_MOST = 64
"""Sources (name and rank) of one node."""
RANKS_MOST = 1024
"""Ranks of one source."""
GAP_PATIENCE_S = 1.0
"""A gap that rewinding has not closed by then is answered with `inventory`."""
BEHIND_S = 2.0
"""How long a heartbeat may be ahead of the frames before the source is called recovering."""
FOREIGN_MOST = 16
"""Lives that wait beside the present one and are told apart."""
ASK_AGAIN_S = 2.0
"""An inventory that was asked for and does not begin by then is asked for again: the answer may have been lost."""
ASKS_MOST = 4
"""Asked so often in vain, a source is taken for one that cannot list, until it does."""
REST_FIRST_S, REST_MOST_S, REST_FUTILE_S = 0.5, 8.0, 60.0
"""How long after an inventory the next may be asked for: doubling with each inventory that did not keep the source
exact for a minute, up to the second, or the third if it could not be applied whole. So recovery never loops."""


@dataclass(slots=True)
class Source:
    """What the writer knows of one source besides its blocks. Times are UNIX seconds.

    ahead: the highest frame seen of the present stream · foreign: frames of other lives wait, their highest ·
    inherited: the gap was open when this writer took over, so how far it reaches is not known · blind: its agent has
    listed all it knows, and that events of the engine are lost for good · spoke_at: when a present life of it last sent
    anything or stood in a heartbeat, 0 = not to this writer.
    """

    id: int
    node: UUID
    name: str
    dp_rank: int
    cursor: Cursor = field(default_factory=Cursor)
    can_list: bool = True
    doubts: dict[str, float] = field(default_factory=dict)
    lost_since: float | None = None
    lost_reason: str = "silent"
    last_verified_at: float | None = None
    last_frame_at: float | None = None
    gaps: int = 0
    ahead: int = -1
    gap_since: float | None = None
    foreign: dict[tuple[str, str], int] = field(default_factory=dict)
    inherited: bool = False
    blind: bool = False
    behind_since: float | None = None
    ask_at: float = 0.0
    asked: int = 0
    rest: float = REST_FIRST_S
    inventory_at: float = 0.0
    since: float = 0.0
    spoke_at: float = 0.0
    shown: tuple[str, str] = (RECOVERING, "new")

    # ------------------------------------------------------------------ state
    @property
    def state(self) -> tuple[str, str]:
        """(state, reason); the reason is "" for exact. The worst doubt wins, then the engine's, then the oldest.

        The engine's loss outlives an open gap, and the next writer knows only the reason that was shown last.
        """
        if self.lost_since is not None:
            return LOST, self.lost_reason
        for code in self.doubts:
            if not _repairable(code):
                return DEGRADED, code
        if not self.cursor.boot:
            return RECOVERING, "gap" if "gap" in self.doubts else "new"
        if not self.can_list and self.doubts.keys() - {"gap", SILENT}:
            return DEGRADED, "cannot-list"
        for code in sorted(self.doubts, key=lambda code: not _of_engine(code)):
            return RECOVERING, code
        return EXACT, ""

    def changed(self, now: float) -> bool:
        """Whether the state is another than was shown last; it is shown from now on."""
        state = self.state
        if state == self.shown:
            return False
        if state[0] != self.shown[0]:
            self.since = now
        self.shown = state
        return True

    def doubt(self, code: str, now: float) -> None:
        """What the catalog believes of the source may be wrong, for this reason."""
        self.doubts.setdefault(code, now)

    def verified(self, now: float, *, gap: str = "") -> None:
        """The source has listed what it holds and the catalog agrees; only a gap that is still open remains.

        Args:
            now: UNIX seconds.
            gap: why the source itself does not know all that its engine holds; "" = it does.
        """
        remains = [f"engine-{gap}"] if gap else []
        remains += ["gap"] if self.gap_open else []
        self.doubts = {code: self.doubts.get(code, now) for code in remains}
        self.blind = bool(gap)
        self.last_verified_at, self.lost_since, self.behind_since = now, None, None

    def lose(self, now: float, reason: str = "silent") -> None:
        """The node is gone: nothing it held may be routed to, and the next thing it says must be what it holds."""
        if self.lost_since is None:
            self.lost_since, self.lost_reason = now, reason

    def spoke(self, boot: str, stream: str, now: float) -> None:
        """Something came of this life; what an ended one says does not tell that the present one lives."""
        if boot not in self.cursor.old_boots and stream not in self.cursor.old_boots:
            self.spoke_at = now

    # --------------------------------------------------------------- position
    @property
    def gap_open(self) -> bool:
        """Frames are known to exist that are not folded."""
        return self.ahead > self.cursor.seq or bool(self.foreign) or self.inherited

    def advance(self, boot: str, stream: str, seq: int, now: float, *, declared: bool = False) -> Verdict:
        """The verdict on a frame; the position, the gap and the doubts follow it.

        Args:
            boot, stream, seq: the frame's position.
            now: UNIX seconds.
            declared: the frame opens with a `gap` item: a source that cannot list begins a new stream so, instead of
                an inventory. The old stream's end is lost, which the item itself says.
        """
        before = self.cursor
        if declared and seq == 0 and boot == before.boot and stream != before.stream:
            before, moved = before.listed(boot, stream, -1)
            if not isinstance(moved, Duplicate):
                self.cursor, self.can_list = before, False
                self._enter(boot, stream)
        cursor, verdict = before.advance(boot, stream, seq)
        if isinstance(verdict, Next) and self.lost_since is not None:
            if self.can_list:  # what it held was retired: it lists before it goes on
                return Gap(before.seq + 1, inventory=True)
            self.lost_since = None
            self.doubt("returned", now)
        self.cursor, self.last_frame_at = cursor, now
        match verdict:
            case Gap():
                self._gap(boot, stream, seq, now)
            case Reset():
                self._begin(boot, stream, now)
            case Duplicate():
                pass
            case _:
                self._close_gap(now)
        return verdict

    def listed(self, boot: str, stream: str, seq: int, now: float) -> Verdict:
        """The verdict on a whole inventory; on Next and Reset the position is set to it."""
        before = self.cursor
        cursor, verdict = before.listed(boot, stream, seq)
        self.last_frame_at = now
        if isinstance(verdict, Duplicate):
            return verdict
        self.cursor = cursor
        if (boot, stream) != (before.boot, before.stream):
            self._enter(boot, stream)
        self.foreign, self.inherited = {}, False
        self._close_gap(now)
        return verdict

    def heard(self, boot: str, stream: str, seq: int, now: float) -> None:
        """A heartbeat named the last frame the source has numbered."""
        if (boot, stream, seq) == (self.cursor.boot, self.cursor.stream, self.cursor.seq):
            self.behind_since = None
            self._doubtless("behind", SILENT)
            if self.inherited and now - (self.last_frame_at or 0.0) > BEHIND_S:
                self.inherited = False
                self._close_gap(now)
            return
        if boot in self.cursor.old_boots or stream in self.cursor.old_boots:
            return
        if (boot, stream) == (self.cursor.boot, self.cursor.stream) and seq < self.cursor.seq:
            self._doubtless(SILENT)
            return
        if self.behind_since is None:
            self.behind_since = now
        elif now - max(self.behind_since, self.last_frame_at or 0.0) > BEHIND_S:
            self.doubt("behind", now)

    def revealed(self, boot: str, stream: str, seq: int, now: float) -> None:
        """The source said that it has numbered frames up to here; those that are not folded are a gap."""
        if boot in self.cursor.old_boots or stream in self.cursor.old_boots:
            return
        if (boot, stream) != (self.cursor.boot, self.cursor.stream) or seq > self.cursor.seq:
            self._gap(boot, stream, seq, now)

    def _gap(self, boot: str, stream: str, seq: int, now: float) -> None:
        if (boot, stream) == (self.cursor.boot, self.cursor.stream):
            self.ahead = max(self.ahead, seq)
        elif len(self.foreign) < FOREIGN_MOST or (boot, stream) in self.foreign:
            self.foreign[boot, stream] = max(self.foreign.get((boot, stream), -1), seq)
        if self.gap_since is None:
            self.gap_since = now
            self.gaps += 1
        self._doubtless(SILENT)  # it is heard again, and the gap outlives this writer only as the reason that is shown
        self.doubt("gap", now)

    def _begin(self, boot: str, stream: str, now: float) -> None:
        """A new boot: what was doubted of the old life is void, volatile tiers are known to be empty."""
        self.behind_since = self.lost_since = None
        self.doubts, self.blind = {}, False
        self._enter(boot, stream)
        self.gap_since = None
        if self.ahead > self.cursor.seq:
            self.gap_since = now
            self.doubt("gap", now)
        self.ask_at, self.rest, self.inventory_at = 0.0, REST_FIRST_S, 0.0
        self.last_verified_at = now

    def _enter(self, boot: str, stream: str) -> None:
        """A new life is the present one; of others that were seen, it is the newest."""
        self.ahead = self.foreign.get((boot, stream), -1)
        self.foreign, self.inherited = {}, False

    def _close_gap(self, now: float) -> None:
        """A frame was folded: the gap is closed if nothing that was seen is still missing, else it made progress."""
        if self.gap_open:
            self.gap_since = now
            return
        self.gap_since = None
        self.behind_since = None
        self._doubtless("gap", "behind", SILENT)

    def _doubtless(self, *codes: str) -> None:
        for code in codes:
            self.doubts.pop(code, None)

    # -------------------------------------------------------------- inventory
    def asks(self, now: float, *, verdict: Verdict | None = None) -> bool:
        """Whether this answer asks for an inventory; asking is remembered, so that it is not repeated at once."""
        if not self.can_list or now < self.ask_at or not self._needs(now, verdict):
            return False
        if self.asked >= ASKS_MOST:
            self.can_list = False
            return False
        self.ask_at, self.asked = now + ASK_AGAIN_S, self.asked + 1
        return True

    def inventoried(self, now: float, *, whole: bool) -> None:
        """An inventory was applied; the next one may be asked for after a rest."""
        soon = now - self.inventory_at < 2 * REST_FUTILE_S
        most = REST_MOST_S if whole else REST_FUTILE_S
        self.rest = min(self.rest * 2, most) if soon else REST_FIRST_S
        self.inventory_at, self.ask_at = now, now + self.rest

    def listing(self, now: float) -> None:
        """A page of an inventory or a digest has come: the source can list, and asking again waits."""
        self.can_list, self.asked = True, 0
        self.ask_at = max(self.ask_at, now + 2.0)

    def _needs(self, now: float, verdict: Verdict | None) -> bool:
        doubts = self.doubts.keys() - {"gap", SILENT}  # the first has its time, the second ends with the next word
        if self.lost_since is not None or any(not (self.blind and _of_engine(code)) for code in doubts):
            return True
        if isinstance(verdict, Gap) and verdict.inventory:
            return True
        return self.gap_since is not None and now - self.gap_since >= GAP_PATIENCE_S


def _repairable(code: str) -> bool:
    return code in REPAIRABLE or _of_engine(code)


def _of_engine(code: str) -> bool:
    return code.startswith("engine-")
