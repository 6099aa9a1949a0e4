"""Decides what of the outboxes is sent when, and what an answer of the console means for them.

One task per lane sends one message at a time, in order: an inventory that is owed, then frames, then a digest where
all frames it names are acknowledged. One task tells positions twice a second for lanes that had nothing to send.
The console being away costs nothing here but waiting: outboxes keep what they may and give up the rest as a whole.
"""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import msgspec

from kvcore.messages import Answer, Heartbeat, SourcePosition
from kvcore.wire import UNREADABLE
from nodeagent.config import Ingest
from nodeagent.keys import KeyRing
from nodeagent.outbox import Lane, Outbox

FLUSH_SECONDS = 0.05
BEAT_SECONDS = 0.5
BEAT_LEAST_SECONDS = 0.02
BEAT_ANSWER_SECONDS = 5.0
"""A heartbeat without an answer is given up then: a connection that died must not make its sources seem silent."""
REFUSED_MOST = 1000
"""Entries of a heartbeat about what was refused."""
WAIT_FIRST_SECONDS = 0.05
WAIT_MOST_SECONDS = 3.0
WAIT_REFUSED_SECONDS = 10.0
_answer = msgspec.msgpack.Decoder(Answer)
_encode = msgspec.msgpack.Encoder().encode


class Refusal(Exception):
    """The console read the message and will not take it: sending it again changes nothing. `code` says why."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


class Away(Exception):
    """Nobody took the message now; the same message may be sent again after `seconds` (0 = our own back-off)."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__("the console did not take the message")
        self.seconds = seconds


class Road:
    """The ingest URLs of one shard, tried in turn."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self._client, self._urls, self._at, self._failed = client, [_base(u) for u in urls], 0, 0

    async def post(self, path: str, body: bytes, *, seconds: float | None = None) -> Answer:
        """The console's answer.

        Args:
            path, body: of the request.
            seconds: longest wait; None = the client's.

        Raises:
            Away, Refusal.
        """
        headers = {"content-type": "application/msgpack"}
        wait = httpx.USE_CLIENT_DEFAULT if seconds is None else seconds
        try:
            got = await self._client.post(self._urls[self._at] + path, content=body, headers=headers, timeout=wait)
        except httpx.HTTPError:
            self._at = (self._at + 1) % len(self._urls)
            raise Away from None
        if got.status_code == 200:
            try:
                return _answer.decode(got.content)
            except UNREADABLE:
                raise Away from None
        if got.status_code >= 500 or got.status_code in (408, 421, 425, 429):
            self._at = (self._at + 1) % len(self._urls)
            later = got.headers.get("retry-after", "")
            tried_all = self._at == 0
            raise Away(min(float(later), WAIT_MOST_SECONDS) if tried_all and later.isdigit() else 0.0)
        raise Refusal(got.status_code, _code(got))


class Sender:
    """Sends for all outboxes of a node until cancelled."""

    def __init__(
        self,
        node: str,
        outboxes: Sequence[Outbox],
        ring: KeyRing,
        *,
        client: httpx.AsyncClient,
        ingest: Sequence[Ingest],
        digest_seconds: float = 10.0,
        flush_seconds: float = FLUSH_SECONDS,
        on_allowances: Callable[[dict[str, Any]], object] = lambda allowances: False,  # who cannot keep to them
        refused: Callable[[], list[dict[str, Any]]] = list,
        load: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self.node, self.outboxes, self.ring = node, list(outboxes), ring
        self.digest_seconds, self.flush_seconds = digest_seconds, flush_seconds
        self.counts: Counter[str] = Counter()
        """Messages and answers by what they were, for `status`."""
        self.rejected: Counter[str] = Counter()
        """Items the console refused, by code."""
        self.halted: dict[tuple[str, int], str] = {}
        """(source, dp_rank) that the console will not hear any more, and why."""
        self.allowances = 0
        self.heard_at = 0.0
        """When the console last answered, Unix seconds; 0 = never."""
        self._on_allowances, self._refused, self._load = on_allowances, refused, load
        self._roads = {s: Road(client, [i.url for i in ingest if i.shard == s]) for s in {i.shard for i in ingest}}
        self._last_sent: dict[tuple[int, int], float] = {}
        self._beaten_at = 0.0
        """When a heartbeat last went."""
        self._untold: Counter[tuple[tuple[str, Any], ...]] = Counter()
        """Refusals that no heartbeat has carried yet: entries without their counts."""
        self._life, self._refused_seq = str(uuid.uuid4()), 0
        self._telling: Counter[tuple[tuple[str, Any], ...]] = Counter()
        """The batch of refusals `_refused_seq`; it stays as it is until the console has it, so it is counted once."""
        self._ranks = {box.source: 0 for box in outboxes}
        for box in outboxes:
            self._ranks[box.source] = max(self._ranks[box.source], (box.dp_rank or 0) + 1)
        self._stated = asyncio.Event()
        """Every writer was told how many ranks each source has; before, it takes rank 0 alone, so nothing is sent."""
        self._restated: set[tuple[str, int]] = set()
        """Those for whose sake it is told once more, as a new writer may not know it."""
        if all(count == 1 for count in self._ranks.values()):
            self._stated.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        async with asyncio.TaskGroup() as group:
            for box in self.outboxes:
                for lane in box.lanes:
                    group.create_task(self._lane(box, lane))
            group.create_task(self._beats())

    async def _lane(self, box: Outbox, lane: Lane) -> None:
        wait = refused = WAIT_FIRST_SECONDS
        next_digest = time.monotonic() + self.digest_seconds
        digest: tuple[str, int, bytes] | None = None
        while True:
            try:
                if not (box.boot and self._stated.is_set()) or self.halted.get(_speaker(box)):
                    await asyncio.sleep(WAIT_FIRST_SECONDS)
                    continue
                if lane.need_inventory and box.lister is not None:
                    await self._inventory(box, lane)
                    digest = None
                elif digest is not None and lane.acked >= digest[1]:
                    body, digest = digest, None
                    await self._digest(box, lane, *body)
                elif box.due(lane, flush_seconds=self.flush_seconds):
                    await self._frame(box, lane)
                elif digest is None and time.monotonic() >= next_digest:
                    next_digest = time.monotonic() + self.digest_seconds * random.uniform(0.9, 1.1)
                    digest = await asyncio.to_thread(self._report, box, lane)
                else:
                    await asyncio.sleep(self.flush_seconds / 2)
                wait = refused = WAIT_FIRST_SECONDS
            except Away as e:
                self.counts["away"] += 1
                await asyncio.sleep((e.seconds or wait) * random.uniform(0.5, 1.5))
                wait = min(wait * 2, WAIT_MOST_SECONDS)
            except Refusal as e:
                self._refusal(box, e)
                await asyncio.sleep(refused * random.uniform(0.5, 1.5))
                refused = min(refused * 4, WAIT_REFUSED_SECONDS)

    async def _frame(self, box: Outbox, lane: Lane) -> None:
        made = box.frame(lane, node=self.node, fence_seq=self.ring.fence_seq, allowances=self.allowances)
        if made is None:
            return
        seq, stream, body = made
        answer = await self._post(box, lane, "/api/v1/ingest/events", body)
        self.counts[f"frame_{answer.state}"] += 1
        box.acknowledge(lane, stream, answer.committed_seq)
        if answer.state == "gap":
            if not box.rewind(lane, stream, answer.expect_seq):
                self.counts["beyond_outbox"] += 1
                box.lost("overflow")
            elif answer.expect_seq == seq:
                await asyncio.sleep(WAIT_FIRST_SECONDS)  # it wants what it was just given: do not spin
        else:
            box.sent(lane, stream, seq)
            for refused in answer.rejected:
                self.rejected[refused.code] += 1
        if answer.inventory and (box.lister is not None or answer.state == "gap"):
            box.lost("restart")

    async def _inventory(self, box: Outbox, lane: Lane) -> None:
        """Sends one whole inventory; what interrupts it makes the lane owe a new one."""
        stream, seq, pages = await asyncio.to_thread(self._pages, box, lane)
        state = "stale"
        try:
            for page in pages:
                answer = await self._post_until_taken(box, lane, "/api/v1/ingest/inventory", page)
                state = answer.state
                self.counts[f"inventory_{state}"] += 1
                if state == "stale":
                    break
        finally:
            box.listed(lane, stream, seq, applied=state == "applied")
        if state != "applied":
            await asyncio.sleep(WAIT_FIRST_SECONDS * 4)

    async def _post_until_taken(self, box: Outbox, lane: Lane, path: str, body: bytes) -> Answer:
        wait = WAIT_FIRST_SECONDS
        while True:
            try:
                return await self._post(box, lane, path, body)
            except Away as e:
                self.counts["away"] += 1
                if lane.need_inventory:  # the outbox overflowed meanwhile: these pages are of no use any more
                    raise
                await asyncio.sleep((e.seconds or wait) * random.uniform(0.5, 1.5))
                wait = min(wait * 2, WAIT_MOST_SECONDS)

    async def _digest(self, box: Outbox, lane: Lane, stream: str, seq: int, body: bytes) -> None:
        if stream != box.stream or lane.acked != seq:
            return  # a reset or a rewind came in between; the next one will do
        answer = await self._post(box, lane, "/api/v1/ingest/inventory", body)
        self.counts[f"digest_{answer.state}"] += 1
        if answer.state == "differs" or answer.inventory:
            box.owe_inventory()

    def _pages(self, box: Outbox, lane: Lane) -> tuple[str, int, list[bytes]]:
        return box.pages(lane, node=self.node, fence_seq=self.ring.fence_seq, allowances=self.allowances)

    def _report(self, box: Outbox, lane: Lane) -> tuple[str, int, bytes] | None:
        return box.report(lane, node=self.node, fence_seq=self.ring.fence_seq, allowances=self.allowances)

    def _refusal(self, box: Outbox, refusal: Refusal) -> None:
        """The console will not take this message: nothing is sent again that it will never take."""
        self.counts[f"refused_{refusal.code}"] += 1
        if refusal.code == "fenced-boot":
            self.halted[_speaker(box)] = refusal.code
        elif refusal.code == "wrong-dp-rank" and _speaker(box) not in self._restated:
            self._restated.add(_speaker(box))
            self._stated.clear()
        elif refusal.status in (400, 413, 422):
            box.lost("decode")

    async def _beats(self) -> None:
        wait, self._beaten_at = WAIT_FIRST_SECONDS, time.monotonic()
        while True:
            stated = self._stated.is_set()
            await asyncio.sleep(self._beat_in(time.monotonic()) if stated else wait)
            now = time.monotonic()
            quiet = [
                place
                for box in self.outboxes
                for place, lane in zip(box.positions(), box.lanes, strict=True)
                if box.boot and now - self._last_sent.get((id(box), lane.shard), 0.0) >= BEAT_SECONDS
            ]
            for entry in self._refused():
                self._untold[tuple((k, v) for k, v in entry.items() if k != "count")] += entry["count"]
            load = self._load()
            if not quiet and not self._untold and not self._telling and not load and stated:
                continue
            self._beaten_at = now
            if self._untold and not self._telling:
                self._refused_seq += 1
                self._telling = Counter(dict(self._untold.most_common(REFUSED_MOST)))
                self._untold -= self._telling
            heard = [
                await self._beat(road, quiet, Counter() if n else self._telling, load)  # each is told to one writer
                for n, road in enumerate(self._roads.values())
            ]
            wait = min(wait * 2, WAIT_MOST_SECONDS)
            if all(heard):
                wait = WAIT_FIRST_SECONDS
                self._stated.set()

    def _beat_in(self, now: float) -> float:
        """Seconds until the lane that was heard of longest ago has to be: no answer, so no fence, is waited for longer.

        A frame is as good as a heartbeat; lanes that nobody hears of yet are asked for as often.
        """
        lanes = [(id(box), lane.shard) for box in self.outboxes if box.boot for lane in box.lanes]
        due = max(min((self._last_sent.get(one, 0.0) for one in lanes), default=now), self._beaten_at) + BEAT_SECONDS
        return min(max(due - now, BEAT_LEAST_SECONDS), BEAT_SECONDS)

    async def _beat(
        self, road: Road, quiet: list[SourcePosition], told: Counter[tuple[tuple[str, Any], ...]],
        load: list[dict[str, Any]],
    ) -> bool:  # fmt: skip
        """Whether the writer took the heartbeat."""
        beat = Heartbeat(
            sources=quiet, fence_seq=self.ring.fence_seq, allowances=self.allowances,
            refused=[{**dict(entry), "count": count} for entry, count in told.items()],
            life=self._life, refused_seq=self._refused_seq if told else 0, ranks=self._ranks,
            load=load,
        )  # fmt: skip
        try:
            answer = await road.post(f"/api/v1/nodes/{self.node}:heartbeat", _encode(beat), seconds=BEAT_ANSWER_SECONDS)
        except (Away, Refusal) as e:
            self.counts["heartbeat_away" if isinstance(e, Away) else f"heartbeat_{e.code}"] += 1
            return False
        self.counts["heartbeat"] += 1
        if told:
            self._telling = Counter()
        await self._take(answer)
        for box in self.outboxes if answer.inventory else ():
            box.owe_inventory()
        return True

    async def _post(self, box: Outbox, lane: Lane, path: str, body: bytes) -> Answer:
        answer = await self._roads[lane.shard].post(path, body)
        self._restated.discard(_speaker(box))
        self._last_sent[id(box), lane.shard] = time.monotonic()
        await self._take(answer)
        return answer

    async def _take(self, answer: Answer) -> None:
        """Applies what rides on every answer, before anything more is sent."""
        self.heard_at = time.time()
        if answer.fences_after:
            await asyncio.to_thread(self.ring.fence, answer.fence_seq, answer.fences_after)
        elif answer.fence_seq:
            self.ring.fence(answer.fence_seq, ())
        self.ring.heard = True
        version = answer.allowances.get("version")
        if not isinstance(version, int) or version <= self.allowances:
            return
        if await asyncio.to_thread(self._on_allowances, answer.allowances) is not False:
            self.allowances = max(self.allowances, version)  # what is not in force yet comes again with each answer


def _speaker(box: Outbox) -> tuple[str, int]:
    return box.source, box.dp_rank or 0


def _base(url: str) -> str:
    """The URL without the API path, which we add."""
    return url.split("/api/", 1)[0].rstrip("/")


def _code(answer: httpx.Response) -> str:
    """The `code` of a problem answer."""
    try:
        code = msgspec.json.decode(answer.content).get("code", "")
    except (*UNREADABLE, AttributeError):
        code = ""
    return code if isinstance(code, str) and code else f"http-{answer.status_code}"
