"""Sources that live, speak over a bad road and know what they hold: the far side of the kill tests."""

import random
import threading
import time
from collections.abc import Callable

import httpx
import msgspec

from kvcore.events import Drop, Move
from kvcore.messages import Answer
from tests.catalog.ingest.rig import Sim, add

_decode = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.encode
EVENTS, INVENTORY = "/api/v1/ingest/events", "/api/v1/ingest/inventory"


class Sender(threading.Thread):
    """One source and its outbox. `calm()` ends the acting; the thread ends when everything is acknowledged."""

    def __init__(self, sim: Sim, token: str, urls: list[str], ns: bytes, *, seed: int, window: int = 8) -> None:
        super().__init__(daemon=True)
        self.sim, self.urls, self.ns, self.window = sim, urls, ns, window
        self.rng = random.Random(seed)
        self.client = httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=30)
        self.next, self.acked, self.top = 0, -1, 1
        self.owes = False
        self.life = (sim.boot, sim.stream)
        self.gapped: dict[tuple[str, str], int] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.failures = 0
        self.error: BaseException | None = None
        self._calm = threading.Event()

    def calm(self) -> None:
        """No more acts and no more losses; what is held is told to the end."""
        self._calm.set()

    def run(self) -> None:
        """Acts and sends."""
        try:
            self.sim.frame()
            while True:
                if not self._calm.is_set() and self.sim.seq - self.acked < self.window:
                    self._act()
                if self.owes:
                    self._inventory()
                elif self.next <= self.sim.seq:
                    self._frames()
                elif self._calm.is_set():
                    if self.acked == self.sim.seq and self._verified():
                        return
                    self.next = self.acked + 1
                else:
                    time.sleep(0.005)
        except BaseException as e:
            self.error = e
            raise
        finally:
            self.client.close()

    # ---------------------------------------------------------------- acting
    def _act(self) -> None:
        rng, sim = self.rng, self.sim
        roll = rng.random()
        held = list(sim.held)
        if roll < 0.004:
            sim.restart()
            sim.frame()
            self._begin()
        elif roll < 0.25 and held:
            gone = rng.sample(held, min(3, len(held)))
            sim.frame(*(Drop(ns=p.ns, gen=p.gen, keys=p.key, tier=p.tier, reason="value") for p in gone))
        elif roll < 0.4 and (warm := [p for p in held if p.tier == "hbm"]):
            p = rng.choice(warm)
            sim.frame(Move(ns=p.ns, gen=p.gen, keys=p.key, from_="hbm", to="dram"))
        else:
            self.top += 12
            sim.frame(add(self.ns, *range(self.top, self.top + 10), tier=rng.choice(("hbm", "dram"))))

    def _begin(self) -> None:
        self.life, self.next, self.acked, self.owes = (self.sim.boot, self.sim.stream), 0, -1, False

    # --------------------------------------------------------------- sending
    def _post(self, path: str, message: object) -> Answer | None:
        for url in self.urls:
            try:
                got = self.client.post(url + path, content=_encode(message))
            except httpx.HTTPError:
                continue
            if got.status_code == 200:
                return _decode(got.content)
            assert got.status_code == 503, got.text
        self.failures += 1
        time.sleep(0.05 + 0.1 * self.rng.random())
        return None

    def _frames(self) -> None:
        frame = self.sim.frames.get(self.next)
        if frame is None:
            self.owes = True
            return
        roll = 1.0 if self._calm.is_set() else self.rng.random()
        if roll < 0.05 and self.next < self.sim.seq:
            self.next += 1  # lost on the way
            return
        answer = self._post(EVENTS, frame)
        if answer is None:
            return
        if roll > 0.95 and roll < 1.0:
            self._post(EVENTS, frame)  # and once more
        if answer.state == "gap":
            self.gapped[self.life] = max(self.gapped.get(self.life, -1), frame.seq)
            self.next = answer.expect_seq
            self.owes = answer.inventory or answer.expect_seq not in self.sim.frames
            return
        assert not answer.rejected, answer
        self.next += 1
        self._ack(answer)
        self.owes = answer.inventory

    def _ack(self, answer: Answer) -> None:
        if answer.committed_seq >= 0:
            self.acked = max(self.acked, answer.committed_seq)
            self.committed[self.life] = self.acked

    def _inventory(self) -> None:
        for page in self.sim.inventory(pages=self.rng.choice((1, 2))):
            answer = self._post(INVENTORY, page)
            if answer is None or answer.state == "stale":
                return
        self.next, self.owes = self.sim.seq + 1, False
        self._ack(answer)

    def _verified(self) -> bool:
        answer = self._post(INVENTORY, self.sim.digest())
        if answer is not None and answer.inventory:
            self.owes = True
        return answer is not None and answer.state == "equal"


class Watch(threading.Thread):
    """Reads the sources' rows all the time: none is ever called exact while a frame it has answered is missing."""

    def __init__(self, senders: list[Sender], read: Callable[[], list[tuple]]) -> None:
        super().__init__(daemon=True)
        self.senders, self.read = senders, read
        self.looks = 0
        self.bad: list[object] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Looks until told to end; a database that is away is looked at later."""
        while not self.over.is_set():
            known = {s.sim.node: dict(s.gapped) for s in self.senders}
            for node, state, boot, stream, seq in self.read():
                self.looks += 1
                if state == "exact" and known.get(node, {}).get((boot, stream), -1) > seq:
                    self.bad.append((node, state, boot, stream, seq))
            time.sleep(0.02)
