"""Sends what is wanted: steps become rows, due ones are leased and go out to all their nodes at once, signed.

A step that destroys goes with the proof that its order is in the log, under the head that the signer signed last. No
transaction is open while nodes are asked, and threads that ask touch no database. Called by `engine`.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connections

from audit.proving import decision_of, evidence_of
from audit.signing import NotAnswered
from audit.tree import checkpoint_latest
from catalog import agents
from catalog.models import Node, Step
from catalog.operation_reach import keys_of
from catalog.operations.observing import Seen
from catalog.operations.probing import keys_before, node_of, probes_of
from catalog.operations.receipts import Came, receipts_keep
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from kvcore.messages import PROTOCOL, Command, Signed
from kvcore.plan_steps import DESTROYS, LOCAL, OwnerSeen, StepWish, erase_targets
from kvcore.targets import Bound, attached_of

LEASE_SECONDS = 30.0
COMMAND_SECONDS = 20.0
"""How long a node goes on with a step that nobody repeats: a pause takes hold within that."""
AGAIN_SECONDS = 0.1
"""After which a node that is under way is asked again."""
BACKOFF_SECONDS = (0.3, 1.0, 2.0, 5.0)
MOST_AT_ONCE, MOST_THREADS = 512, 64
STALE_TRIES = 6
_ANSWER = agents.Answered | agents.UnderWay | NotAnswered


class Dispatched(NamedTuple):
    """What one round came to: receipts that are new, steps under way, steps that nobody answered."""

    kept: int
    running: int
    failed: int


class _Sent(NamedTuple):
    wish: StepWish
    token: int
    tries: int
    answer: _ANSWER


def steps_keep(seen: Seen, wishes: Sequence[StepWish], *, now: datetime) -> None:
    """Every wish is a row, once."""
    believed = {owner.owner: owner for owner in seen.observed.owners}
    known = {UUID(step.step) for step in seen.observed.steps}
    new = [wish for wish in wishes if UUID(wish.step) not in known]
    sample = keys_before(seen, new)
    rows = [_row(seen, wish, believed, now) for wish in new]
    for row in rows:
        if row.kind == "erase" and row.owner in sample:
            row.args["sample"] = sample[row.owner]
    Step.objects.bulk_create(rows, ignore_conflicts=True)


def _row(seen: Seen, wish: StepWish, believed: Mapping[int, OwnerSeen], now: datetime) -> Step:
    owner, place = believed.get(wish.owner), seen.places.get(wish.owner)
    at = wish.args.get("position") or {}
    return Step(
        id=UUID(wish.step),
        operation=seen.operation.id,
        tenant_id=seen.operation.tenant_id,
        intent_generation=seen.operation.generation,
        attempt=wish.attempt,
        node=node_of(seen, wish) if place else None,
        source=wish.source,
        dp_rank=wish.dp_rank or 0,
        tier=wish.tier,
        owner=wish.owner,
        kind=wish.kind,
        boot=wish.boot,
        args={name: value for name, value in wish.args.items() if name != "targets"}
        | ({"node": str(place.node)} if place and wish.kind == "probe" else {}),
        created_at=now,
        due_at=max(now, datetime.fromtimestamp(wish.not_before, UTC)),
        total_bytes=owner.bytes if owner else 0,
        total_blocks=owner.blocks if owner else 0,
        at_boot=at.get("boot", ""),
        at_stream=at.get("stream", ""),
        at_seq=at.get("seq", -1),
    )


def dispatch(seen: Seen, wishes: Sequence[StepWish], *, holder: str, now: datetime) -> Dispatched:
    """Due steps were sent, each by one holder, and what came back is kept."""
    due = {UUID(w.step): w for w in wishes if w.kind not in LOCAL and w.not_before <= now.timestamp()}
    leased = _lease(seen, list(due), holder, now) if due else {}
    if not leased:
        return Dispatched(0, 0, 0)
    sent = _send(seen, [(due[step], *taken) for step, taken in leased.items()])
    at = datetime.now(UTC)
    came = [Came(UUID(s.wish.step), s.token, s.answer) for s in sent if isinstance(s.answer, agents.Answered)]
    kept = receipts_keep(seen.operation, came, now=at)
    running = [s for s in sent if isinstance(s.answer, agents.UnderWay)]
    for one in running:
        assert isinstance(one.answer, agents.UnderWay)
        total = {"total_bytes": one.answer.total_bytes} if one.answer.total_bytes else {}
        _give_back(one, at + timedelta(seconds=AGAIN_SECONDS), code="", done_bytes=one.answer.done_bytes, **total)
    failed = [s for s in sent if isinstance(s.answer, NotAnswered)]
    for one in failed:
        assert isinstance(one.answer, NotAnswered)
        wait = BACKOFF_SECONDS[min(one.tries - 1, len(BACKOFF_SECONDS) - 1)]
        _give_back(one, at + timedelta(seconds=wait), code=one.answer.code[:63])
    return Dispatched(kept, len(running), len(failed))


def _lease(seen: Seen, steps: list[UUID], holder: str, now: datetime) -> dict[UUID, tuple[int, int]]:
    """Step → (fence of the lease, how often it was tried), of those that nobody else is at."""
    values: dict[str, Any] = {
        "holder": holder, "until": now + timedelta(seconds=LEASE_SECONDS), "now": now, "steps": steps,
        "operation": seen.operation.id, "most": MOST_AT_ONCE,
    }  # fmt: skip
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "operations.sql")["steps_lease"], values)
        return {step: (token, tries) for step, token, tries in cursor.fetchall()}


def _give_back(sent: _Sent, due_at: datetime, **fields: object) -> None:
    mine = Step.objects.filter(id=UUID(sent.wish.step), state="waiting", lease_token=sent.token)
    mine.update(due_at=due_at, lease_until=None, **fields)


# --- the calls ------------------------------------------------------------------------------


def _send(seen: Seen, leased: Sequence[tuple[StepWish, int, int]]) -> list[_Sent]:
    """All nodes are asked at once; whose proofs were of an older head is asked again under the newest."""
    calls = _Calls(seen, [wish for wish, _, _ in leased])
    proofs = _proofs(seen, None) if any(wish.kind in DESTROYS for wish, _, _ in leased) else None
    found: list[_Sent] = []
    left = in_turn(seen, leased)
    with ThreadPoolExecutor(min(MOST_THREADS, len(leased)), "order") as pool:
        for _ in range(STALE_TRIES):
            pairs = list(zip(left, _answers(pool, calls, [wish for wish, _, _ in left], proofs), strict=True))
            stale = [a for _, a in pairs if isinstance(a, NotAnswered) and a.code == "stale-size" and a.size]
            found += [_Sent(*lease, answer) for lease, answer in pairs if answer not in stale]
            left = [lease for lease, answer in pairs if answer in stale]
            if not left:
                return found
            proofs = _proofs(seen, max(answer.size or 0 for answer in stale))
    return found + [_Sent(*lease, NotAnswered("stale-size")) for lease in left]


def in_turn(seen: Seen, leased: Sequence[tuple[StepWish, int, int]]) -> list[tuple[StepWish, int, int]]:
    """Every node has its first step before any has its second: a node takes its time for each."""
    had: Counter[UUID] = Counter()
    turns = []
    for one in leased:
        node = node_of(seen, one[0])
        turns.append(had[node])
        had[node] += 1
    return [one for _, one in sorted(zip(turns, leased, strict=True), key=lambda pair: pair[0])]


def _answers(
    pool: ThreadPoolExecutor, calls: "_Calls", wishes: Sequence[StepWish], proofs: agents.Proofs | NotAnswered | None
) -> list[_ANSWER]:
    """What came back for each: commands are signed together, and each is on its way as soon as it is signed."""
    came: dict[str, Future[_ANSWER] | NotAnswered] = {}
    for destroying in (True, False):
        given = proofs if destroying else None
        some = [(wish, calls.nodes.get(calls.to(wish))) for wish in wishes if (wish.kind in DESTROYS) is destroying]
        if some and destroying and not isinstance(given, agents.Proofs):
            came |= dict.fromkeys([wish.step for wish, _ in some], given or NotAnswered("order-not-logged"))
            continue
        assert not isinstance(given, NotAnswered)
        came |= {w.step: NotAnswered("node-not-enrolled", final=True) for w, n in some if n is None or not n.public_key}
        ready = [(wish, node, calls.command(wish, node)) for wish, node in some if node and node.public_key]
        envelopes = agents.signed([command for _, _, command in ready], given)
        for (wish, node, command), envelope in zip(ready, envelopes, strict=True):
            came[wish.step] = pool.submit(calls.ask, wish, node, command, envelope, given)
    return [one.result() if isinstance(one := came[wish.step], Future) else one for wish in wishes]


class _Calls:
    """What all calls of a round have in common. Threads use it."""

    def __init__(self, seen: Seen, wishes: Sequence[StepWish]) -> None:
        self._seen, self._probes, self._reach = seen, probes_of(seen, wishes), _Reach(seen)
        self.nodes: dict[UUID, Node] = Node.objects.in_bulk({self.to(wish) for wish in wishes})

    def to(self, wish: StepWish) -> UUID:
        """Who is asked."""
        probe = self._probes.get(wish.step)
        return probe.node if probe else self._seen.places[wish.owner].node

    def command(self, wish: StepWish, node: Node, part: int = 0) -> Command:
        """The command, with the part of this number of what it reaches."""
        probe = self._probes.get(wish.step)
        return _command(self._seen, wish, node, probe.args if probe else {**wish.args, **self._reach.args(part)[0]})

    def ask(
        self, wish: StepWish, node: Node, command: Command, envelope: Signed | NotAnswered, given: agents.Proofs | None
    ) -> _ANSWER:
        """The node's answer when it has all parts that it wants; one that is under way wants none."""
        if wish.step in self._probes:
            return agents.send(node, command, envelope)
        parts = self._reach.parts
        answer = agents.send(node, command, envelope, self._reach.args(0)[1])
        for _ in parts:
            if not isinstance(answer, agents.UnderWay) or answer.wants is None:
                break
            number = next((n for n, part in enumerate(parts) if part.first == answer.wants), 0)
            answer = agents.order(node, self.command(wish, node, number), given, self._reach.args(number)[1])
        return answer


class _Reach:
    """The targets of an operation as they are sent: in parts, each with what proves that it is of the order's."""

    def __init__(self, seen: Seen) -> None:
        self.bound = Bound(erase_targets(seen.intent.targets))
        self.parts = self.bound.parts()
        self.keys = keys_of(seen.operation.id) if attached_of(self.bound.targets) else {}

        self._made: dict[int, tuple[dict[str, Any], dict[str, bytes]]] = {}

    def args(self, number: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What a command says of the part of this number, and the keys that go beside it: the same for every node."""
        if number not in self._made:
            part = self.parts[number]
            mine = self.bound.targets[part.first : part.first + part.length]
            said = {"targets": msgspec.to_builtins(list(mine)), "part": msgspec.to_builtins(part),
                    "targets_root": self.bound.root}  # fmt: skip
            self._made[number] = said, {name: self.keys[name] for name in attached_of(mine)}
        return self._made[number]


def _command(seen: Seen, wish: StepWish, node: Node, args: dict[str, Any]) -> Command:
    now = time.time()
    return Command(
        v=PROTOCOL,
        step=wish.step,
        kind=wish.kind,
        node=str(node.id),
        order_hash=bytes(seen.operation.order_hash or b"").hex(),
        issued_at=now,
        expires_at=min(now + COMMAND_SECONDS, seen.operation.not_after.timestamp()),
        args=args,
    )


def _proofs(seen: Seen, size: int | None) -> agents.Proofs | NotAnswered:
    """Order and approval as evidence under a head: the newest that is known here, or the one the signer wants."""
    operation = seen.operation
    newest = checkpoint_latest()
    at = size or (newest.size if newest else 0)
    order = evidence_of(operation.order_event, at) if operation.order_event else None
    if order is None:
        return NotAnswered("order-not-logged")
    if operation.approval is None:
        return agents.Proofs(order, None, at)
    decision = decision_of(operation.approval)
    approval = evidence_of(decision, at) if decision else None
    return agents.Proofs(order, approval, at) if approval else NotAnswered("approval-not-logged")
