"""Readers of a running router: each asks over HTTP with a token of its own, as often as it can, where a block is."""

import random
import threading
from collections.abc import Sequence
from typing import Any

from tests.accept.tenancy import Caller


class Readers:
    """Threads that ask where single blocks of one namespace generation are, until they are told to stop."""

    def __init__(self, callers: Sequence[Caller], digest: bytes, keys: Sequence[bytes]) -> None:
        self.digest, self.keys = digest, keys
        self.looks = [0] * len(callers)
        self.wrong: list[Any] = []
        self.places: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(n, who)) for n, who in enumerate(callers)]

    def __enter__(self) -> "Readers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, number: int, caller: Caller) -> None:
        chance = random.Random(number)
        while not self._stop.is_set():
            key = chance.choice(self.keys)
            body = {"namespace": self.digest.hex(), "generation": 1, "keys": [key.hex()]}
            answer = caller("POST", "/prefixes:lookup", body)
            if answer.status_code != 200:
                self.wrong.append((answer.status_code, answer.text[:200]))
                return
            said = answer.json()
            owners = [(owner["node"], owner["tier"]) for run in said["runs"] for owner in run["owners"]]
            self.looks[number] += 1
            self.places |= set(owners)
            if len(owners) != 1:
                self.wrong.append((key.hex()[:16], owners, said["index"]))
