"""Decides which steps an operation wants next: from what is intended and what was observed, and nothing else.

`steps` asks for what is missing, so planning after the plan's result asks for nothing. A step's id follows from the
operation, its generation, the kind, the owner, its boot and the attempt: whoever plans it, the agent does it once.
Order: fence → (grace) → erase on every owner → verify on every owner → purge by the console's own source → shred.
Called by the console's engine, which dispatches, and by `kvcore.plan_state`, which says where an operation stands.
"""

import hashlib
from collections import Counter, defaultdict
from typing import Any
from uuid import UUID

import msgspec
import rfc8785

from kvcore.moves import MOVES
from kvcore.plan_kinds import FINALIZERS as FINALIZERS
from kvcore.plan_kinds import KINDS as KINDS
from kvcore.plan_probes import prober
from kvcore.plans import Target
from kvcore.receipts import EraseArgs, EraseTarget
from kvcore.targets import Bound

KEPT_TIERS = frozenset({"ssd", "remote"})
"""Tiers whose objects lie encrypted under keys of the agent's key file."""
LOCAL = frozenset({"purge", "keys"})
"""Steps that the console does itself: the writer purges, the key store destroys."""
DESTROYS = frozenset({"erase", "shred", "fence", *MOVES})
"""Steps that are signed only for the order in the log; a fence is for ever, too, and a move hands blocks out."""


ENDED = ("erase", "verify", "probe", "purge", "shred", "fence")
WAIT_SECONDS, MOST_WAIT_SECONDS = 2.0, 60.0
"""A step that failed is repeated after so long, doubled each time, at most."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `generation` grows with every change of it. Times are in seconds since 1970.

    `finer`: keys of a namespace go, and the namespace lives on (no fence of a generation, no key is destroyed).
    `deadline`: until then leased blocks are waited for; then they are broken. `method` key_destroy: keys first.
    """

    operation: str
    kind: str
    generation: int
    targets: tuple[Target, ...]
    approved: bool = True
    failed: str = ""  # code of what ended it for good
    denied: bool = False
    expired: bool = False
    paused: bool = False
    held: bool = False
    stopped: bool = False
    waits: str = ""  # code of what it waits for before it starts
    finer: bool = False
    crypto_erase: bool = False
    grace_until: float = 0.0
    deadline: float = 0.0
    rate_bytes_per_s: int | None = None


class StepSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A step as its row says. `outcome` is that of its accepted receipt, "" until there is one; `at` when it came.

    `position_…` is the receipt's place in the owner's stream, `found` the blocks a verify found, `left` those an erase
    left. `bad`: the receipt contradicts what else was seen; it is no proof of anything.
    """

    step: str
    kind: str
    owner: int
    boot: str
    attempt: int = 0
    outcome: str = ""  # done | refused | failed | partial; "" = not ended
    at: float = 0.0
    position_boot: str = ""
    position_stream: str = ""
    position_seq: int = -1
    found: int = 0
    left: int = 0
    leased_until: float | None = None
    blocks: int = 0
    bytes: int = 0
    bad: bool = False

    @property
    def good(self) -> bool:
        """Whether it did what it was asked for."""
        return self.outcome == "done" and not self.bad and not self.left


class OwnerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An owner as the directory sees it now. `blocks` and `bytes` of the targets are believed there."""

    owner: int
    node: str
    source: str
    tier: str
    dp_rank: int | None = 0
    host: str = ""  # the machine: who is on the same one can read its memory
    boot: str = ""
    stream: str = ""
    seq: int = -1
    reachable: bool = True
    fenced: bool = False  # the node acknowledged the fences of this operation
    gap: bool = False
    encrypted: bool = False  # it never held anything of a block but ciphertext
    lease_end: float | None = None  # of the node's last lease of the targets' keys, if it never said that it is over
    retired: bool = False  # the owner is gone with its node's leaving: nothing can be asked of it
    blocks: int = 0
    bytes: int = 0
    total_bytes: int = 0  # when the operation began
    last_heard: float = 0.0
    cls: int | None = None  # as graded so far


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when it is planned. `owners` are all, also where nothing is believed to be."""

    now: float
    owners: tuple[OwnerSeen, ...]
    steps: tuple[StepSeen, ...] = ()
    fenced_at: float | None = None
    order_logged: bool = False  # the order is under a signed checkpoint
    probes: bool = True  # others may look; not for single keys, which may be made anew meanwhile
    routers_waiting: int = 0
    gateways_waiting: int = 0
    lease_ends_at: float | None = None  # of the last key lease of the targets, None = none is out
    keys_destroyed: bool = False
    requested_at: float | None = None
    concluded_at: float | None = None
    exceptions: tuple[str, ...] = ()  # flags of the certificate that are exceptions


class StepWish(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is wanted. `args` are those of the command; `not_before` holds a repetition back."""

    step: str
    kind: str
    node: str
    source: str
    dp_rank: int | None
    tier: str
    owner: int
    boot: str
    attempt: int
    args: dict[str, Any]
    not_before: float = 0.0


def step_id(operation: str, generation: int, kind: str, owner: int, boot: str, attempt: int = 0) -> UUID:
    """The id (UUIDv8) of a step, the same whoever plans it."""
    named: dict[str, Any] = {
        "attempt": attempt,
        "boot": boot,
        "generation": generation,
        "kind": kind,
        "operation": operation,
    }
    found = hashlib.sha256(b"kvconsole/step/v1\n" + rfc8785.dumps({**named, "owner": owner})).digest()
    number = int.from_bytes(found[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    return UUID(int=number & ~(0x3 << 62) | 2 << 62)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one owner stands. Erasing and verifying come in turns; what a verify finds asks for another turn.

    `turns`: good erases. `purges`: how often the directory was cleared of it. `came_back`: it was announced again
    after that, so one more turn is wanted.
    """

    seen: OwnerSeen
    ended: dict[str, tuple[StepSeen, ...]]  # by kind, in the order of their attempts
    started: bool
    turns: int
    looks: int
    came_back: bool
    last: StepSeen | None  # verify that counts
    looked: bool = True  # a look is wanted; else an erase is all

    @property
    def asked(self) -> bool:
        """Whether there is somebody to ask. Who left for good is never asked, and the certificate says so."""
        return self.seen.reachable and not self.seen.retired

    @property
    def erased(self) -> bool:
        """Nothing of it is left by what the node said."""
        return self.turns > self.looks or self.clean

    @property
    def clean(self) -> bool:
        """Erased, and the last look found nothing."""
        if not self.looked:  # what is in use stays
            return any(step.outcome in ("done", "partial") and not step.bad for step in self.ended["erase"])
        found_none = self.last is not None and self.last.found == 0
        return self.turns == self.looks and found_none and not self.came_back

    @property
    def passed(self) -> bool:
        """Whether the directory has heard of the owner beyond the last look."""
        if self.last is None:
            return False
        here, was = self.seen, self.last
        return (here.boot, here.stream) != (was.position_boot, was.position_stream) or here.seq >= was.position_seq

    @property
    def leased(self) -> StepSeen | None:
        """The last erase, if it left blocks because of their leases."""
        last = self.ended["erase"][-1] if self.ended["erase"] else None
        return last if last is not None and last.outcome == "partial" else None

    @property
    def shredded(self) -> bool:
        """Whether the node dropped the keys of what it kept."""
        return self.seen.tier not in KEPT_TIERS or any(step.good for step in self.ended["shred"])

    @property
    def contradicted(self) -> bool:
        """Whether the last receipt of something that is repeated until it is good does not agree with what was seen."""
        return any(self.ended[kind][-1].bad for kind in ("erase", "verify", "shred") if self.ended[kind])


def standings(observed: Observed, *, looks: bool = True) -> list[Standing]:
    """Every owner that can be asked or is believed to hold something, in the order of their numbers."""
    of: defaultdict[int, list[StepSeen]] = defaultdict(list)
    for step in observed.steps:
        of[step.owner].append(step)
    owners = [o for o in observed.owners if not o.retired or o.blocks or of[o.owner]]
    return [_standing(owner, of[owner.owner], looks) for owner in sorted(owners, key=lambda o: o.owner)]


def _standing(owner: OwnerSeen, seen: list[StepSeen], looked: bool) -> Standing:
    ended: dict[str, tuple[StepSeen, ...]] = {kind: () for kind in ENDED}
    for step in sorted(seen, key=lambda s: s.attempt):
        if step.outcome:
            ended[step.kind] += (step,)
    looks = [step for step in ended["verify"] if step.outcome == "done" and not step.bad]
    purges = sum(step.good for step in ended["purge"])
    clean = sum(step.found == 0 for step in looks)
    return Standing(
        seen=owner,
        ended=ended,
        started=any(step.kind == "erase" for step in seen),
        turns=sum(step.good for step in ended["erase"]),
        looks=len(looks),
        came_back=owner.blocks > 0 and purges >= clean > 0,
        last=looks[-1] if looks else None,
        looked=looked,
    )


def steps(intent: Intent, observed: Observed) -> list[StepWish]:
    """The steps that are wanted now and have not ended, in the order of their owners."""
    kind = KINDS[intent.kind]
    over = intent.stopped or intent.denied or intent.expired or intent.failed or not intent.approved
    if over or observed.concluded_at is not None or observed.fenced_at is None:
        return []
    found = standings(observed, looks=kind.looks)
    waits = intent.paused or intent.held or observed.now < intent.grace_until or not observed.order_logged
    if waits:
        fences = kind.fences and not intent.finer and observed.order_logged
        return _fences(_goals(intent), found) if fences else []
    goals, shreds = _goals(intent), kind.keys and not intent.finer
    wishes: list[StepWish] = []
    busy = Counter(one.seen.node for one in found if one.asked and not one.erased)
    for one in found:
        asked = one.asked
        if asked and not one.erased:
            wishes.append(_erase(goals, observed, one, busy[one.seen.node]))
        elif asked and not one.clean and one.seen.node not in busy:
            wishes.append(_wish(goals, one, "verify", not_before=_later(one, "verify")))
        if other := prober(one, observed):
            wishes.append(_wish(goals, one, "probe", node=other))
        if kind.looks and one.seen.blocks and (one.seen.retired or (one.clean and one.passed)):
            wishes.append(_wish(goals, one, "purge", not_before=_later(one, "purge")))
        if asked and shreds and not one.shredded and (one.clean or intent.crypto_erase):
            wishes.append(_wish(goals, one, "shred", not_before=_later(one, "shred")))
    done = all(one.clean and one.shredded for one in found if one.asked)
    if shreds and not observed.keys_destroyed and (done or intent.crypto_erase):
        wishes.append(_keys(goals))
    return wishes


class _Goals(msgspec.Struct, frozen=True):
    """An intent, and its targets as commands name them: made once, as there can be thousands, for every owner."""

    intent: Intent
    targets: list[dict[str, Any]]
    root: str


def _goals(intent: Intent) -> _Goals:
    bound = Bound(erase_targets(intent.targets))
    return _Goals(intent, msgspec.to_builtins(list(bound.targets)), bound.root)


def _fences(goals: _Goals, found: list[Standing]) -> list[StepWish]:
    """One for each node that can be reached and has not acknowledged; an erase would bring the fence itself."""
    told = {one.seen.node for one in found if one.seen.fenced or one.ended["fence"]}
    first: dict[str, Standing] = {}
    for one in found:
        if one.asked and one.seen.node not in told:
            first.setdefault(one.seen.node, one)
    return [_wish(goals, one, "fence") for one in first.values()]


def _erase(goals: _Goals, observed: Observed, one: Standing, sharing: int) -> StepWish:
    """Leased blocks are waited for until the deadline, then their leases are broken. `sharing` owners share a rate."""
    deadline = goals.intent.deadline
    later = _later(one, "erase")
    if one.leased is not None:
        until = max(later, one.leased.leased_until or 0.0)
        later = min(until, deadline) if deadline else until
    return _wish(goals, one, "erase", not_before=later, force=0 < deadline <= observed.now, sharing=sharing)


def _later(one: Standing, kind: str) -> float:
    """When a step of a kind may be repeated: later each time that it failed, or that a look found something again."""
    last = one.ended[kind][-1] if one.ended[kind] else None
    if last is None:
        return 0.0
    if not last.good:
        times = len(one.ended[kind]) - sum(step.good for step in one.ended[kind])
    elif kind == "erase" and one.last is not None:
        last, times = one.last, one.looks
    else:
        return 0.0
    return last.at + min(MOST_WAIT_SECONDS, WAIT_SECONDS * 2.0 ** min(times - 1, 8))


def _wish(
    goals: _Goals, one: Standing, kind: str, *, not_before: float = 0.0, force: bool = False, node: str = "",
    sharing: int = 1,
) -> StepWish:  # fmt: skip
    intent, seen, attempt = goals.intent, one.seen, len(one.ended[kind])
    args: dict[str, Any] = msgspec.to_builtins(
        EraseArgs(
            operation=intent.operation,
            generation=intent.generation,
            source=seen.source,
            dp_rank=seen.dp_rank,
            tier=seen.tier,
            owner=seen.owner,
            targets=[],
            force=force,
            deadline=intent.deadline,
            rate_bytes_per_s=intent.rate_bytes_per_s and max(1, intent.rate_bytes_per_s // sharing),
            fencing=KINDS[intent.kind].fences and not intent.finer,
        )
    )
    args["targets"], args["targets_root"] = goals.targets, goals.root
    if kind == "purge" and one.last is not None:
        last = one.last
        args["position"] = {"boot": last.position_boot, "stream": last.position_stream, "seq": last.position_seq}
    return StepWish(
        step=str(step_id(intent.operation, intent.generation, kind, seen.owner, seen.boot, attempt)),
        kind=kind,
        node="" if kind in LOCAL else node or seen.node,
        source=seen.source,
        dp_rank=seen.dp_rank,
        tier=seen.tier,
        owner=seen.owner,
        boot=seen.boot,
        attempt=attempt,
        args=args,
        not_before=not_before,
    )


def _keys(goals: _Goals) -> StepWish:
    """The console's own share: the generations' keys are destroyed in its key store."""
    intent = goals.intent
    args = {"operation": intent.operation, "targets": goals.targets}
    name = str(step_id(intent.operation, intent.generation, "keys", 0, ""))
    return StepWish(
        step=name, kind="keys", node="", source="", dp_rank=None, tier="", owner=0, boot="", attempt=0, args=args
    )  # fmt: skip


def erase_targets(targets: tuple[Target, ...]) -> list[EraseTarget]:
    """The targets as a command names them."""
    return [
        EraseTarget(ns=t.ns, gen_upto=t.gen_upto, group=t.group, attached=t.keys, count=t.key_count, below=t.below)
        for t in targets
    ]
